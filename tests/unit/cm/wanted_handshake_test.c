/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wanted_handshake_test.c - a listener whose device may not send first, as iWARP's, and a dialer whose device is another
 * kind: the listener asks for a handshake, and the dialer makes one.
 */
#include "core/context.h"
#include "support/pair.h"

static void messages_cross(struct pair *p) {
    for (unsigned i = 0; i < 2; i++) {
        struct side *from = i ? &p->a : &p->b, *to = i ? &p->b : &p->a;
        assert_int_equal(pair_send(from, 5000, i, NULL), 0);
        assert_true(pair_check(pair_expect(p, to, SLUICE_MESSAGE).msg, 5000, i));
    }
}

/* Though the dialer was to try once only: it is the same address, and the same conversation. */
PAIR_WITH(pair_opened, a_dialer_makes_the_handshake_that_the_listener_wants) {
    struct pair *p = *state;
    p->a.node->traits.dialer_first = true;
    pair_connect(p, PAIR_LINK(.flags = SLUICE_ONCE));
    assert_int_equal(pair_info(p->b.session).tries, 2);
    assert_true(pair_session(&p->b)->connection->cm.rep.features & PRIVATE_DATA_FEATURE_HANDSHAKE);
    messages_cross(p);
}

PAIR_WITH(pair_opened, one_that_has_something_to_say_makes_it_at_once) {
    struct pair *p = *state;
    p->a.node->traits.dialer_first = true;
    pair_connect(p, PAIR_LINK(.private_data = "word", .private_bytes = 4));
    assert_int_equal(pair_info(p->b.session).tries, 1);
    messages_cross(p);
}

/* ---- a listener that is never content ------------------------------------------------------------ */

static unsigned refusals;

static int refuse(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    struct private_data_rej rej = {.reason = SLUICE_REASON_UNSUPPORTED,
                                   .code = PRIVATE_DATA_REJ_WANTS_HANDSHAKE};
    uint8_t data[PRIVATE_DATA_REJ_BYTES];
    (void)param;
    refusals++;
    return fabric_soft.reject(id, data, (uint8_t)private_data_rej_encode(&rej, data));
}

TEST(who_has_made_it_is_not_asked_a_third_time) {
    struct pair p;
    struct fabric_ops ops = fabric_soft;
    ops.accept = refuse;
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    p.a.node->fabric = &ops;
    pair_dial(&p, PAIR_LINK());
    sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_UNSUPPORTED);
    assert_int_equal(refusals, 2);
    pair_close(&p);
}
