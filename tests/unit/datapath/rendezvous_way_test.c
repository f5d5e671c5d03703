/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rendezvous_way_test.c - which way a large message goes unless the application says: its receiver copies it where both
 * have it mapped, which needs no request; else by READ, which is a message less and needs no memory that was zeroed before.
 */
#include "support/announced.h"
#include "datapath/rndv/internal.h"

#define BYTES 300000u

static void goes(sluice_soft_net net, sluice_rendezvous asked, unsigned way) {
    struct pair p;
    memset(&p, 0, sizeof p);
    pair_open(&p, PAIR_NODE(.rendezvous = asked, .soft_net = net), PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    announced_send(&p, BYTES);
    assert_int_equal(pair_session(&p.b)->rndv->out[0].way, way);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, BYTES, 0));
    pair_close(&p);
}

TEST(a_large_message_goes_the_cheaper_way) {
    goes(SLUICE_SOFT_NET_OFF, SLUICE_RENDEZVOUS_AUTO, RNDV_BY_COPY);
    goes(SLUICE_SOFT_NET_REQUIRE, SLUICE_RENDEZVOUS_AUTO, RNDV_BY_READ);
}

TEST(a_large_message_goes_the_way_that_is_asked_for) {
    goes(SLUICE_SOFT_NET_OFF, SLUICE_RENDEZVOUS_READ, RNDV_BY_READ);
    goes(SLUICE_SOFT_NET_OFF, SLUICE_RENDEZVOUS_WRITE, RNDV_BY_WRITE);
}
