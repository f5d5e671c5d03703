/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fault_cut_test.c - what the faults of a connection over TCP come to where there is none: cut, corrupt and stall between
 * queue pairs through shared memory. (Over TCP: iwarp_qp_fault_test.c.)
 */
#include "support/fault.h"

static struct sv_end a, b;

static void open_pair(struct sv_options o) {
    sv_pair(&a, o, &b, o);
    sv_wait_linked(&a);
}

static int shut(void **state) {
    (void)state;
    fault_clear();
    sv_unpair(&a, &b);
    return 0;
}

static void expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status) {
    struct ibv_wc wc = sv_poll(cq);
    must_data_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.status, status);
}

static void post(uint64_t wr_id) {
    must(sv_recv(&b, wr_id, 0, 64) == 0);
    must(sv_send(&a, wr_id, 0, 32, IBV_SEND_SIGNALED) == 0);
}

#define CUT_TEST(name) TEST_WITH(NULL, shut, name)

CUT_TEST(a_cut_ends_both_queue_pairs) {
    open_pair(SV_OPTIONS(0));
    fault_plan("qp=1 send=2 cut");
    post(1);
    post(2);
    expect(b.rcq, 1, IBV_WC_SUCCESS);
    expect(a.scq, 1, IBV_WC_SUCCESS);
    expect(a.scq, 2, IBV_WC_RETRY_EXC_ERR);
    assert_int_equal(sv_state(&a), IBV_QPS_ERR);
    must(sv_send(&b, 3, 0, 32, IBV_SEND_SIGNALED) == 0);
    expect(b.scq, 3, IBV_WC_RETRY_EXC_ERR);
    fault_log_is("qp#1 send 2: cut (line 1)\n");
}

CUT_TEST(what_is_corrupt_is_sent_again) {
    open_pair(SV_OPTIONS(.timeout = 12, .retry_cnt = 2)); /* 17 ms */
    fault_plan("qp=1 send=1 corrupt");
    uint64_t start = soft_now_ns();
    post(1);
    expect(b.rcq, 1, IBV_WC_SUCCESS);
    expect(a.scq, 1, IBV_WC_SUCCESS);
    assert_true(soft_now_ns() - start >= 4096ull << 12);
}

CUT_TEST(a_stall_is_late_and_in_order) {
    open_pair(SV_OPTIONS(0));
    fault_plan("qp=1 send=1 stall=20ms; qp=2 recv=2 stall=20ms");
    uint64_t start = soft_now_ns();
    post(1);
    post(2);
    expect(b.rcq, 1, IBV_WC_SUCCESS);
    assert_true(soft_now_ns() - start >= 20000000);
    expect(b.rcq, 2, IBV_WC_SUCCESS);
    assert_true(soft_now_ns() - start >= 40000000);
    expect(a.scq, 1, IBV_WC_SUCCESS);
    expect(a.scq, 2, IBV_WC_SUCCESS);
}
