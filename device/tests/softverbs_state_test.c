/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_state_test.c - queue pair states: every attribute mask of every transition, values,
 * queries, and what ERR and RESET leave behind.
 */
#include "support/softverbs.h"

enum { STATES = IBV_QPS_ERR + 1 };
static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
static const enum ibv_qp_state real[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                         IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};

/* The ibv_modify_qp page for RC, written down once more. */
struct rule {
    enum ibv_qp_state from, to;
    int required, optional;
};
#define LIVE_OPTIONAL                                                                              \
    (IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_ALT_PATH |             \
     IBV_QP_PATH_MIG_STATE)
static const struct rule rules[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, SV_INIT_MASK, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, IBV_QP_STATE,
     IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR, SV_RTR_MASK,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, SV_RTS_MASK, LIVE_OPTIONAL},
    {IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_STATE, LIVE_OPTIONAL},
    {IBV_QPS_RTS, IBV_QPS_SQD, IBV_QP_STATE, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {IBV_QPS_SQD, IBV_QPS_RTS, IBV_QP_STATE, LIVE_OPTIONAL},
    {IBV_QPS_SQD, IBV_QPS_SQD, IBV_QP_STATE,
     IBV_QP_PORT | IBV_QP_AV | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_ALT_PATH | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
         IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE | IBV_QP_PKEY_INDEX},
};

static bool rule_of(enum ibv_qp_state from, enum ibv_qp_state to, struct rule *out) {
    for (unsigned i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].from == from && rules[i].to == to) {
            *out = rules[i];
            return true;
        }
    *out = (struct rule){from, to, IBV_QP_STATE, IBV_QP_CUR_STATE};
    return to == IBV_QPS_ERR || to == IBV_QPS_RESET;
}

static struct sv_end a, b;

static int open_two(void **state) {
    (void)state;
    sv_open(&a, SV_OPTIONS());
    sv_open(&b, SV_OPTIONS());
    return 0;
}

static int open_pair(void **state) {
    (void)state;
    sv_pair(&a, SV_OPTIONS(), &b, SV_OPTIONS());
    sv_wait_linked(&a);
    sv_wait_linked(&b);
    return 0;
}

static int open_one_cq(void **state) {
    (void)state;
    struct sv_options o = SV_OPTIONS(.one_cq = true, .cqe = 8);
    sv_pair(&a, o, &b, o);
    sv_wait_linked(&a);
    return 0;
}

static int close_two(void **state) {
    (void)state;
    sv_unpair(&a, &b);
    return 0;
}

/* Brings a's QP to a state through RESET, b's number being its destination. */
static void bring_to(enum ibv_qp_state to) {
    must(sv_to(&a, IBV_QPS_RESET) == 0);
    if (to == IBV_QPS_RESET)
        return;
    if (to == IBV_QPS_ERR) {
        must(sv_to(&a, IBV_QPS_ERR) == 0);
        return;
    }
    must(sv_to_init(&a) == 0);
    if (to == IBV_QPS_INIT)
        return;
    must(sv_to_rtr(&a, b.qp->qp_num) == 0);
    if (to == IBV_QPS_RTR)
        return;
    must(sv_to_rts(&a) == 0);
    if (to == IBV_QPS_SQD)
        must(sv_to(&a, IBV_QPS_SQD) == 0);
}

static enum ibv_qp_state queried(struct sv_end *e) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    must(soft_query_qp(e->qp, &attr, IBV_QP_STATE, &init) == 0);
    must(attr.qp_state == e->qp->state); /* the public struct shows the same */
    return attr.qp_state;
}

static int try(enum ibv_qp_state from, enum ibv_qp_state to, int mask) {
    struct ibv_qp_attr attr = sv_attr(&a, to, b.qp->qp_num);
    attr.cur_qp_state = from;
    return soft_modify_qp(a.qp, &attr, mask);
}

#define WITH(open, name) TEST_WITH(open, close_two, name)

WITH(open_two, every_attribute_mask_is_checked) {
    for (unsigned f = 0; f < 6; f++)
        for (unsigned t = 0; t < STATES; t++) {
            struct rule rule;
            if (!rule_of(real[f], (enum ibv_qp_state)t, &rule))
                continue;
            for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
                if (bit == IBV_QP_STATE || bit == IBV_QP_CAP)
                    continue;
                bring_to(real[f]);
                bool fine = rule.required & bit ? false : (rule.optional & bit) != 0;
                int mask = rule.required ^ bit; /* one less, or one more */
                int rc = try(real[f], (enum ibv_qp_state)t, mask);
                if (rc != (fine ? 0 : EINVAL))
                    print_error("%s -> %s with bit %#x of mask %#x gave %d\n", names[real[f]],
                                names[t], bit, mask, rc);
                assert_int_equal(rc, fine ? 0 : EINVAL);
                assert_int_equal(queried(&a), fine ? t : real[f]);
            }
        }
}

WITH(open_two, values_out_of_range_change_nothing) {
    struct ibv_qp_attr attr;
    bring_to(IBV_QPS_RESET);
    attr = sv_attr(&a, IBV_QPS_INIT, 0);
    attr.port_num = 2;
    assert_int_equal(soft_modify_qp(a.qp, &attr, SV_INIT_MASK), EINVAL);
    attr = sv_attr(&a, IBV_QPS_INIT, 0);
    attr.pkey_index = 1;
    assert_int_equal(soft_modify_qp(a.qp, &attr, SV_INIT_MASK), EINVAL);
    assert_int_equal(queried(&a), IBV_QPS_RESET);
    bring_to(IBV_QPS_INIT);
    for (unsigned row = 0; row < 5; row++) {
        attr = sv_attr(&a, IBV_QPS_RTR, b.qp->qp_num);
        attr.path_mtu = row == 0 ? 0 : row == 1 ? IBV_MTU_4096 + 1 : attr.path_mtu;
        attr.dest_qp_num = row == 2 ? 0x1000000 : attr.dest_qp_num;
        attr.min_rnr_timer = row == 3 ? 32 : attr.min_rnr_timer;
        attr.max_dest_rd_atomic = row == 4 ? 255 : attr.max_dest_rd_atomic;
        assert_int_equal(soft_modify_qp(a.qp, &attr, SV_RTR_MASK), EINVAL);
        assert_int_equal(queried(&a), IBV_QPS_INIT);
    }
    bring_to(IBV_QPS_RTR);
    for (unsigned row = 0; row < 4; row++) {
        attr = sv_attr(&a, IBV_QPS_RTS, 0);
        attr.timeout = row == 0 ? 32 : attr.timeout;
        attr.retry_cnt = row == 1 ? 8 : attr.retry_cnt;
        attr.rnr_retry = row == 2 ? 8 : attr.rnr_retry;
        attr.max_rd_atomic = row == 3 ? 255 : attr.max_rd_atomic;
        assert_int_equal(soft_modify_qp(a.qp, &attr, SV_RTS_MASK), EINVAL);
        assert_int_equal(queried(&a), IBV_QPS_RTR);
    }
}

WITH(open_two, a_query_returns_what_was_set) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    bring_to(IBV_QPS_RTS);
    assert_int_equal(soft_query_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init), 0);
    assert_int_equal(attr.qp_state, IBV_QPS_RTS);
    assert_int_equal(attr.cur_qp_state, IBV_QPS_RTS);
    assert_int_equal(attr.dest_qp_num, b.qp->qp_num);
    assert_int_equal(attr.path_mtu, IBV_MTU_4096);
    assert_int_equal(attr.port_num, 1);
    assert_int_equal(attr.min_rnr_timer, a.o.rnr_timer);
    assert_int_equal(attr.timeout, a.o.timeout);
    assert_int_equal(attr.retry_cnt, a.o.retry_cnt);
    assert_int_equal(attr.rnr_retry, 7);
    assert_int_equal(attr.cap.max_send_wr, a.cap.max_send_wr);
    assert_int_equal(attr.cap.max_recv_wr, a.cap.max_recv_wr);
    assert_int_equal(attr.cap.max_send_sge, a.cap.max_send_sge);
    assert_int_equal(attr.cap.max_recv_sge, a.cap.max_recv_sge);
    assert_int_equal(attr.cap.max_inline_data, a.cap.max_inline_data);
    assert_ptr_equal(init.send_cq, a.scq);
    assert_ptr_equal(init.recv_cq, a.rcq);
    assert_int_equal(init.qp_type, IBV_QPT_RC);
    assert_int_equal(init.sq_sig_all, 0);
    struct ibv_qp_attr change = {.min_rnr_timer = 12};
    assert_int_equal(soft_modify_qp(a.qp, &change, IBV_QP_MIN_RNR_TIMER), 0); /* no state bit */
    assert_int_equal(soft_query_qp(a.qp, &attr, 0, &init), 0);
    assert_int_equal(attr.min_rnr_timer, 12);
    assert_int_equal(attr.timeout, a.o.timeout);
}

/* ---- flush ------------------------------------------------------------------------------------- */

static void expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status) {
    struct ibv_wc wc = sv_poll(cq);
    must_data_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.status, status);
}

/* What arrived before counts as sent, what did not is flushed: a success never follows a flush. */
WITH(open_pair, delivered_sends_succeed_before_the_flush) {
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(sv_recv(&b, i, 0, 64), 0);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(sv_send(&a, i, 0, 8, IBV_SEND_SIGNALED), 0);
    for (unsigned i = 0; i < 3; i++)
        expect(b.rcq, i, IBV_WC_SUCCESS);
    struct ibv_wc wc;
    for (unsigned i = 0; i < 1000; i++) /* the receiver tells what it took */
        assert_int_equal(ibv_poll_cq(b.rcq, 1, &wc), 0);
    assert_int_equal(sv_to(&a, IBV_QPS_ERR), 0);
    for (unsigned i = 0; i < 6; i++)
        expect(a.scq, i, i < 3 ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
}

/* 16 flushes through a CQ of 8: none is lost, none comes twice. */
WITH(open_one_cq, a_flush_larger_than_the_completion_queue_waits_for_the_poller) {
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(sv_send(&a, i, 0, 8, 0), 0);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(sv_recv(&a, 100 + i, 0, 64), 0);
    assert_int_equal(sv_to(&a, IBV_QPS_ERR), 0);
    unsigned sends = 0, recvs = 0;
    while (sends + recvs < 20) {
        struct ibv_wc wc = sv_poll(a.scq);
        assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
        if (wc.wr_id >= 100)
            must_data_equal(wc.wr_id, 100 + recvs++);
        else
            must_data_equal(wc.wr_id, sends++);
    }
    sv_stays_empty(a.scq, NULL);
}

/* Sends that never left, in places of the queue where delivered ones were before. */
WITH(open_pair, a_flush_taken_one_by_one_never_turns_into_success) {
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(sv_recv(&b, i, 0, 1024), 0);
        assert_int_equal(sv_send(&a, i, 0, 8, IBV_SEND_SIGNALED), 0);
        expect(b.rcq, i, IBV_WC_SUCCESS);
        expect(a.scq, i, IBV_WC_SUCCESS);
    }
    for (unsigned i = 0; i < 64; i++) /* no receive; 400 bytes are 4 slots: most of them wait */
        assert_int_equal(sv_send(&a, 100 + i, 0, 400, IBV_SEND_SIGNALED), 0);
    assert_int_equal(sv_to(&b, IBV_QPS_ERR), 0);
    expect(a.scq, 100, IBV_WC_RETRY_EXC_ERR);
    for (unsigned i = 1; i < 64; i++)
        expect(a.scq, 100 + i, IBV_WC_WR_FLUSH_ERR);
    sv_stays_empty(a.scq, a.rcq);
}

WITH(open_pair, reset_forgets_everything_and_the_pair_can_start_again) {
    for (unsigned round = 0; round < 20; round++) {
        assert_int_equal(sv_recv(&a, 1, 0, 64), 0);
        assert_int_equal(sv_send(&a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
        if (round % 2)
            assert_int_equal(sv_to(&a, IBV_QPS_ERR), 0); /* flushed into the CQs, not polled */
        assert_int_equal(sv_to(&a, IBV_QPS_RESET), 0);
        assert_int_equal(sv_to(&b, IBV_QPS_RESET), 0);
        sv_stays_empty(a.scq, a.rcq);
        sv_stays_empty(b.scq, b.rcq);
        sv_connect(&b, a.qp->qp_num);
        sv_connect(&a, b.qp->qp_num);
        sv_fill(a.buf, 200, round);
        assert_int_equal(sv_recv(&b, 3, 0, 256), 0);
        assert_int_equal(sv_send(&a, 4, 0, 200, IBV_SEND_SIGNALED), 0);
        expect(b.rcq, 3, IBV_WC_SUCCESS);
        expect(a.scq, 4, IBV_WC_SUCCESS);
        sv_check(b.buf, 200, round);
    }
}
