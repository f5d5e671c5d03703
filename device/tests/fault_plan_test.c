/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fault_plan_test.c - every rule of the grammar is read as documented; every malformed plan is refused
 * with the line and the column of what is wrong.
 */
#include "support/test.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

#include "soft/fault/plan.h"

static struct soft_plan *parse(const char *text) {
    struct soft_plan_error error;
    struct soft_plan *plan = soft_plan_parse(text, &error);
    if (!plan)
        print_error("'%s': %u:%u: %s\n", text, error.line, error.column, error.reason);
    assert_non_null(plan);
    return plan;
}

TEST(every_kind_of_rule_is_read) {
    struct soft_plan *plan = parse("# a comment\n"
                                   "qp=* send=100 status=RETRY_EXC_ERR\n"
                                   "  qp=0x123401 send=5..9 delay=2ms ; qp=2 send=20.. loss=3\n"
                                   "qp=* recv=* rnr=10 # behind a rule\r\n"
                                   "\n"
                                   "id=* connect=1 event=UNREACHABLE status=-110\n"
                                   "id=3 event=ROUTE_ERROR\n"
                                   "id=1 after=ESTABLISHED event=ADDR_CHANGE\n"
                                   "cm=REP n=2 delay=50ms;cm=* loss;\n"
                                   "call=reg_mr n=3 errno=ENOMEM\n"
                                   "qp=1 send=7 device=remove order=removal-first\n"
                                   "device=address-change address=::1\n"
                                   "qp=1 send=2 cut; qp=* send=3.. corrupt; qp=2 recv=1 stall=3ms");
    assert_int_equal(plan->count, 15);
    const struct soft_rule *r = plan->rule;
    assert_int_equal(r[0].what, FAULT_STATUS);
    assert_int_equal(r[0].value, IBV_WC_RETRY_EXC_ERR);
    assert_int_equal(r[0].first, 100);
    assert_int_equal(r[0].last, 100);
    assert_int_equal(r[0].line, 2);
    assert_true(r[1].by_number && r[1].who == 0x123401 && r[1].ns == 2000000);
    assert_true(r[1].first == 5 && r[1].last == 9 && r[1].line == 3);
    assert_true(!r[2].by_number && r[2].who == 2 && r[2].what == FAULT_LOSS && r[2].value == 3);
    assert_true(r[2].first == 20 && r[2].last == UINT32_MAX && r[2].line == 3);
    assert_true(r[3].when == FAULT_RECV && r[3].what == FAULT_RNR && r[3].value == 10);
    assert_true(r[4].when == FAULT_CONNECT && r[4].event == RDMA_CM_EVENT_UNREACHABLE);
    assert_int_equal(r[4].value, -110);
    assert_true(r[5].when == FAULT_RESOLVE_ROUTE && r[5].who == 3 && r[5].value == -ETIMEDOUT);
    assert_true(r[6].when == FAULT_AFTER && r[6].after == RDMA_CM_EVENT_ESTABLISHED);
    assert_true(r[7].scope == FAULT_CM && r[7].who == 3 && r[7].ns == 50000000 && r[7].first == 2);
    assert_true(r[8].scope == FAULT_CM && r[8].who == 0 && r[8].what == FAULT_LOSS);
    assert_true(r[9].who == FAULT_CALL_reg_mr && r[9].value == ENOMEM && r[9].first == 3);
    assert_true(r[10].what == FAULT_ACTION && r[10].action.order == ORDER_REMOVAL_FIRST);
    assert_int_equal(r[11].action.address.ss_family, AF_INET6);
    assert_true(r[12].what == FAULT_CUT && r[12].when == FAULT_SEND && r[12].first == 2);
    assert_true(r[13].what == FAULT_CORRUPT && r[13].last == UINT32_MAX);
    assert_true(r[14].what == FAULT_STALL && r[14].when == FAULT_RECV && r[14].ns == 3000000);
    free(plan);
}

TEST(a_malformed_plan_is_refused_with_its_place) {
    static const struct {
        const char *text;
        unsigned line, column;
        const char *reason;
    } bad[] = {
        {"", 1, 1, "empty"},
        {" \n# only\n", 3, 1, "empty"},
        {"frob=1", 1, 1, "a rule begins with"},
        {"profile=roce qp=1 send=1 loss", 1, 9, "one of nic, rxe, rxe7, iwarp"},
        {"profile", 1, 1, "one of nic, rxe, rxe7, iwarp"},
        {"profile=rxe loss", 1, 13, "nothing goes with"},
        {"profile=rxe\nprofile=rxe", 2, 1, "twice"},
        {"qp", 1, 1, "needs a value"},
        {"qp=", 1, 4, "missing"},
        {"=1", 1, 1, "a rule begins with"},
        {"qp=0 send=1 loss", 1, 4, "not a number"},
        {"qp=x send=1 loss", 1, 4, "not a number"},
        {"qp=-1 send=1 loss", 1, 4, "not a number"},
        {"qp=0x1000000 send=1 loss", 1, 4, "not a number"},
        {"qp=99999999999999999999 send=1 loss", 1, 4, "not a number"},
        {"qp=1 loss", 1, 10, "send=N or recv=N"},
        {"qp=1 send=1", 1, 12, "no effect"},
        {"qp=1 send=0 loss", 1, 11, "none of"},
        {"qp=1 send=9..5 loss", 1, 11, "none of"},
        {"qp=1 send=1..x loss", 1, 11, "none of"},
        {"qp=1 send=1.. send=2 loss", 1, 15, "twice"},
        {"qp=1 send=1 loss delay=1ms", 1, 18, "twice"},
        {"qp=1 send=1 loss status=LOC_PROT_ERR", 1, 18, "twice"},
        {"qp=1 send=1 status=SUCCESS", 1, 20, "knows no"},
        {"qp=1 send=1 status=-5", 1, 20, "knows no"},
        {"qp=1 send=1 delay=5", 1, 19, "no time"},
        {"qp=1 send=1 delay=0ms", 1, 19, "no time"},
        {"qp=1 send=1 delay=61s", 1, 19, "no time"},
        {"qp=1 send=1 loss=0", 1, 18, "not a number"},
        {"qp=1 send=1 rnr=3", 1, 13, "does not go with send"},
        {"qp=1 recv=1 loss", 1, 13, "does not go with recv"},
        {"qp=1 recv=1 event=REJECTED", 1, 13, "does not go with"},
        {"qp=1 recv=1 cut", 1, 13, "does not go with recv"},
        {"qp=1 recv=1 corrupt", 1, 13, "does not go with recv"},
        {"qp=1 send=1 cut=1", 1, 13, "means nothing"},
        {"qp=1 send=1 stall", 1, 13, "means nothing"},
        {"qp=1 send=1 stall=0ms", 1, 19, "no time"},
        {"qp=1 send=1 cut corrupt", 1, 17, "twice"},
        {"cm=REQ cut", 1, 8, "does not go with"},
        {"id=1 connect=1 stall=1ms", 1, 16, "does not go with"},
        {"qp=1 connect=1 loss", 1, 6, "does not go with"},
        {"qp=1 send=1 wibble", 1, 13, "means nothing"},
        {"qp=1 send=1 wibble=2", 1, 13, "means nothing"},
        {"qp=1 send=1 loss\nqp=1 send=1 lost", 2, 13, "means nothing"},
        {"qp=1 send=1 loss; qp=1 send=1 lost", 1, 31, "means nothing"},
        {"id=1 event=NONSENSE", 1, 12, "knows no"},
        {"id=1 event=ADDR_CHANGE", 1, 6, "after=EVENT"},
        {"id=1 connect=1 event=ADDR_ERROR", 1, 22, "does not end with"},
        {"id=1 after=ESTABLISHED event=CONNECT_REQUEST", 1, 30, "made up"},
        {"id=1 connect=1 event=REJECTED status=EGG", 1, 38, "neither"},
        {"id=1 connect=1 status=5", 1, 16, "goes with event"},
        {"id=1 connect=1", 1, 15, "no effect"},
        {"cm=HELLO loss", 1, 4, "knows no"},
        {"cm=REQ loss=3", 1, 8, "does not go with"},
        {"cm=REQ", 1, 7, "no effect"},
        {"call=fork errno=ENOMEM", 1, 6, "knows no"},
        {"call=reg_mr errno=EWHAT", 1, 19, "knows no"},
        {"call=reg_mr delay=1ms", 1, 13, "does not go with"},
        {"device=explode", 1, 8, "knows no"},
        {"device=remove order=never", 1, 21, "knows no"},
        {"device=restore order=fatal-first", 1, 16, "goes with"},
        {"device=remove address=1.2.3.4", 1, 15, "goes with"},
        {"device=address-change address=1.2.3", 1, 31, "no IP address"},
        {"device=remove device=restore", 1, 15, "twice"},
        {"qp=1 send=1 los\001s", 1, 16, "no text"},
        {"qp=1 send=1 status=\303\204", 1, 20, "no text"},
        {"averyveryveryveryverylongkey=1", 1, 1, "that long"},
        {"qp=11111111111111111111111111111111111111111111111111111111111111111111111111111111111",
         1, 4, "that long"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct soft_plan_error error;
        struct soft_plan *plan = soft_plan_parse(bad[i].text, &error);
        if (plan || error.line != bad[i].line || error.column != bad[i].column ||
            !strstr(error.reason, bad[i].reason))
            fail_msg("'%s': %s %u:%u '%s', expected %u:%u '%s'", bad[i].text,
                     plan ? "accepted" : "refused", error.line, error.column, error.reason,
                     bad[i].line, bad[i].column, bad[i].reason);
    }
}

TEST(the_number_of_rules_is_bounded) {
    static char text[SOFT_PLAN_RULES * 20 + 100];
    for (int i = 0; i <= SOFT_PLAN_RULES; i++)
        strcat(text, "qp=1 send=1 loss\n");
    struct soft_plan_error error;
    assert_null(soft_plan_parse(text, &error));
    assert_int_equal(error.line, SOFT_PLAN_RULES + 1);
}

/* Whatever the bytes, the parser ends, and says where. */
TEST(random_bytes_are_refused_or_read) {
    static const char *const pieces[] = {
        "qp=", "*",      " ",        "send=",   "recv=", "1",       "..",      "loss",   ";",  "\n",
        "id=", "event=", "REJECTED", "status=", "-",     "device=", "remove",  "delay=", "ms", "#",
        "=",   "\xff",   "0x",       "cm=",     "REQ",   "cut",     "corrupt", "stall="};
    uint32_t seed = 12345;
    for (int i = 0; i < 20000; i++) {
        char text[256] = "";
        for (int k = 0; k < 12; k++) {
            seed = seed * 1664525 + 1013904223;
            strcat(text, pieces[(seed >> 16) % (sizeof pieces / sizeof *pieces)]);
        }
        struct soft_plan_error error;
        struct soft_plan *plan = soft_plan_parse(text, &error);
        assert_true(plan ? plan->count > 0 : error.line > 0 && error.column > 0 && error.reason[0]);
        free(plan);
    }
}
