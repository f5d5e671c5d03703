/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* announced.c - see announced.h. */
#include "support/announced.h"

#include "datapath/rndv/internal.h"
#include "datapath/rndv/mw.h"

void announced_always(struct pair *p) {
    pair_session(&p->a)->tx.alone_max = pair_session(&p->b)->tx.alone_max = 0;
}

uint64_t announced(struct pair *p) {
    const struct rndv *r = pair_session(&p->b)->rndv;
    return r ? r->out_order : 0;
}

void announced_send(struct pair *p, uint32_t bytes) {
    assert_int_equal(pair_send(&p->b, bytes, 0, NULL), 0);
    while (announced(p) == 0)
        assert_int_equal(sluice_poll(p->b.loop, NULL, 0, 0), 0);
}

void announced_lost(struct pair *p, uint32_t bytes) {
    announced_send(p, bytes);
    for (unsigned i = 0; i < RNDV_NUMBERS; i++)
        mw_free(p->b.node, &pair_session(&p->b)->rndv->out[i].mw);
    sluice_event event = pair_expect(p, &p->a, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_LOST);
    assert_int_equal(event.vendor, IBV_WC_REM_ACCESS_ERR);
    pair_expect(p, &p->b, SLUICE_CLOSED);
}
