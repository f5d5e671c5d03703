/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * reason_sent_test.c - an iWARP device gives a send that broke with its connection a status that elsewhere says that the
 * device is at fault: there the peer is lost, and whether the message arrived is not known.
 */
#include "support/reason.h"

TEST(a_send_that_breaks_with_its_connection_is_the_peers_loss) {
    static const struct {
        const char *name;
        enum ibv_wc_status wc;
        bool iwarp;
        sluice_reason reason;
        sluice_status status, outcome;
    } rows[] = {
        {"GENERAL_ERR", IBV_WC_GENERAL_ERR, true, SLUICE_REASON_PEER_LOST, SLUICE_EUNKNOWN,
         SLUICE_EUNKNOWN},
        {"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR, true, SLUICE_REASON_PEER_LOST, SLUICE_EUNKNOWN,
         SLUICE_EUNKNOWN},
        {"GENERAL_ERR", IBV_WC_GENERAL_ERR, false, SLUICE_REASON_DEVICE_ERROR, SLUICE_EDEVICE,
         SLUICE_EDEVICE},
        {"LOC_QP_OP_ERR", IBV_WC_LOC_QP_OP_ERR, false, SLUICE_REASON_DEVICE_ERROR, SLUICE_EDEVICE,
         SLUICE_EDEVICE},
        /* What it says of this side's memory is nothing else on iWARP. */
        {"LOC_PROT_ERR", IBV_WC_LOC_PROT_ERR, true, SLUICE_REASON_DEVICE_ERROR, SLUICE_EDEVICE,
         SLUICE_EDEVICE},
    };
    struct pair p;
    char plan[64];
    watched_open(&p, PAIR_LINK());
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        pair_connect(&p, ONCE);
        snprintf(plan, sizeof plan, "qp=* send=1 status=%s", rows[i].name);
        fault_plan(plan);
        p.b.node->traits.sent_is_local = rows[i].iwarp;
        assert_int_equal(
            pair_send(&p.b, 10, 1,
                      &(sluice_send_options){.size = sizeof(sluice_send_options), .tag = 7}),
            0);
        sluice_event sent = pair_expect(&p, &p.b, SLUICE_SENT);
        assert_int_equal(sent.tag, 7);
        assert_int_equal(sent.status, rows[i].outcome);
        EXPECT_END(&p, &p.b, rows[i].reason, rows[i].status, (uint32_t)rows[i].wc, NOTHING, NOTHING,
                   (int32_t)rows[i].wc, NULL);
        p.b.node->traits.sent_is_local = false;
        fault_plan(NULL);
        EXPECT_END(&p, &p.a, LOST_LINE);
    }
    watched_close(&p);
}
