/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * alone_test.c - a side that is left alone in the middle of a large message: its peer's memory goes before its queue
 * pair does, as when a kernel ends a killed process.
 */
#include "support/pair.h"

#include "datapath/rndv/internal.h"
#include "datapath/rndv/mw.h"

#define BYTES 65536u

static uint64_t announced(struct pair *p) {
    const struct rndv *r = pair_session(&p->b)->rndv;
    return r ? r->out_order : 0;
}

static void memory_that_goes_before_it_was_read_is_the_peers_end(void **state) {
    (void)state;
    struct pair p;
    memset(&p, 0, sizeof p);
    pair_open(&p, PAIR_NODE(.rendezvous_bytes = BYTES - 1, .rendezvous = SLUICE_RENDEZVOUS_READ),
              PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    assert_int_equal(pair_send(&p.b, BYTES, 0, NULL), 0);
    while (announced(&p) == 0)
        assert_int_equal(sluice_poll(p.b.loop, NULL, 0, 0), 0);
    for (unsigned i = 0; i < RNDV_NUMBERS; i++)
        mw_free(p.b.node, &pair_session(&p.b)->rndv->out[i].mw);
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_LOST);
    assert_int_equal(event.vendor, IBV_WC_REM_ACCESS_ERR);
    pair_expect(&p, &p.b, SLUICE_CLOSED);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_goes_before_it_was_read_is_the_peers_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
