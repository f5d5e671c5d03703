/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * state_test.c - queue pair states: every pair of states, required and forbidden attributes, what may
 * be posted in each state, what a query returns, and the order of what ERR and RESET leave behind.
 */
#include "contract/ends.h"

enum { STATES = IBV_QPS_ERR + 1 };
static const char *const names[STATES] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
static const enum ibv_qp_state real[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                         IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};

/* The attributes that a legal transition of an RC queue pair needs, 0 for an illegal one. */
static int required(enum ibv_qp_state from, enum ibv_qp_state to) {
    if (to == IBV_QPS_ERR && from == IBV_QPS_RESET)
        return facts.reset_to_err ? IBV_QP_STATE : 0;
    if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
        return IBV_QP_STATE;
    if (from == IBV_QPS_RESET)
        return to == IBV_QPS_INIT ? CT_INIT_MASK : 0;
    if (from == IBV_QPS_INIT)
        return to == IBV_QPS_INIT ? IBV_QP_STATE : to == IBV_QPS_RTR ? CT_RTR_MASK : 0;
    if (from == IBV_QPS_RTR)
        return to == IBV_QPS_RTS ? CT_RTS_MASK : 0;
    if (from == IBV_QPS_RTS || from == IBV_QPS_SQD)
        return to == IBV_QPS_RTS || to == IBV_QPS_SQD ? IBV_QP_STATE : 0;
    return 0;
}

static struct ct_end a, b;

static int open_two(void **state) {
    (void)state;
    ct_open(&a, CT_OPTIONS());
    ct_open(&b, CT_OPTIONS());
    return 0;
}

static int open_pair(void **state) {
    (void)state;
    ct_open_pair(&a, &b, CT_OPTIONS(), CT_OPTIONS());
    return 0;
}

static int close_two(void **state) {
    (void)state;
    ct_close(&a);
    ct_close(&b);
    return 0;
}

static int try(enum ibv_qp_state from, enum ibv_qp_state to, int mask) {
    struct ibv_qp_attr attr = ct_attr(&a, to, b.qp->qp_num);
    attr.cur_qp_state = from;
    return ibv_modify_qp(a.qp, &attr, mask);
}

static bool drains(void) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state == IBV_QPS_SQD && attr.sq_draining;
}

/* In SQD a device may still drain its queue: until a query says that it is done, only ERR is a way out. */
static void wait_until_drained(void) {
    uint64_t end = ct_now_ms() + (uint64_t)facts.wait_ms;
    while (drains()) {
        if (ct_now_ms() > end)
            fail_msg("the queue of sends is not drained");
        ct_pause();
    }
}

/* What is under way is gone with RESET; where that leaves a trace of it, ERR flushes it before. */
static void reset(void) {
    struct ibv_wc flushed;
    enum ibv_qp_state now = ct_state(a.qp);
    bool flushes = facts.reset_counts_sends && (now == IBV_QPS_RTS || now == IBV_QPS_SQD);
    if (flushes)
        assert_int_equal(ct_to(&a, IBV_QPS_ERR), 0);
    assert_int_equal(ct_to(&a, IBV_QPS_RESET), 0);
    while (flushes && ibv_poll_cq(a.rcq, 1, &flushed) + ibv_poll_cq(a.scq, 1, &flushed) > 0)
        continue;
}

/* Brings a's QP to a state by way of RESET. */
static void bring_to(enum ibv_qp_state to) {
    wait_until_drained();
    reset();
    if (to == IBV_QPS_RESET)
        return;
    assert_int_equal(try(IBV_QPS_RESET, IBV_QPS_INIT, CT_INIT_MASK), 0);
    if (to == IBV_QPS_ERR)
        assert_int_equal(ct_to(&a, IBV_QPS_ERR), 0);
    if (to == IBV_QPS_ERR)
        return;
    if (to == IBV_QPS_INIT)
        return;
    assert_int_equal(try(IBV_QPS_INIT, IBV_QPS_RTR, CT_RTR_MASK), 0);
    if (to == IBV_QPS_RTR)
        return;
    assert_int_equal(try(IBV_QPS_RTR, IBV_QPS_RTS, CT_RTS_MASK), 0);
    if (to == IBV_QPS_SQD) {
        assert_int_equal(ct_to(&a, IBV_QPS_SQD), 0);
        wait_until_drained();
    }
}

static enum ibv_qp_state shown(void) {
    enum ibv_qp_state now = ct_state(a.qp);
    assert_int_equal(a.qp->state, now); /* the public struct shows the same */
    return now;
}

/* ---- transitions ------------------------------------------------------------------------------------------- */

#define WITH(open, name) TEST_WITH(open, close_two, name)

WITH(open_two, every_pair_of_states_is_as_the_specification_says) {
    for (unsigned f = 0; f < 6; f++)
        for (unsigned t = 0; t < STATES; t++) {
            int mask = required(real[f], (enum ibv_qp_state)t);
            bring_to(real[f]);
            int rc = try(real[f], (enum ibv_qp_state)t, mask ? mask : IBV_QP_STATE);
            if (rc != (mask ? 0 : EINVAL))
                fail_msg("%s -> %s gave %d", names[real[f]], names[t], rc);
            /* with every attribute at once nothing illegal becomes legal */
            if (!mask)
                assert_int_equal(try(real[f], (enum ibv_qp_state)t, CT_RTR_MASK | CT_RTS_MASK),
                                 EINVAL);
            assert_int_equal(shown(), mask ? t : real[f]);
        }
}

WITH(open_two, every_required_attribute_is_required) {
    for (unsigned f = 0; f < 6; f++)
        for (unsigned t = 0; t < STATES; t++) {
            int mask = required(real[f], (enum ibv_qp_state)t);
            for (int bit = 2; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
                if (!(mask & bit))
                    continue;
                bring_to(real[f]);
                int rc = try(real[f], (enum ibv_qp_state)t, mask & ~bit);
                if (rc != EINVAL)
                    fail_msg("%s -> %s without bit %#x gave %d", names[real[f]], names[t], bit, rc);
                assert_int_equal(shown(), real[f]);
            }
        }
}

WITH(open_two, attributes_of_another_transition_are_refused) {
    bring_to(IBV_QPS_RESET);
    assert_int_equal(try(IBV_QPS_RESET, IBV_QPS_INIT, CT_INIT_MASK | IBV_QP_DEST_QPN), EINVAL);
    bring_to(IBV_QPS_INIT);
    assert_int_equal(try(IBV_QPS_INIT, IBV_QPS_RTR, CT_RTR_MASK | IBV_QP_SQ_PSN), EINVAL);
    bring_to(IBV_QPS_RTR);
    assert_int_equal(try(IBV_QPS_RTR, IBV_QPS_RTS, CT_RTS_MASK | IBV_QP_PATH_MTU), EINVAL);
    bring_to(IBV_QPS_RTS);
    assert_int_equal(try(IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_DEST_QPN), EINVAL);
    assert_int_equal(shown(), IBV_QPS_RTS);
}

WITH(open_two, a_wrong_current_state_is_refused) {
    bring_to(IBV_QPS_RTS);
    assert_int_equal(try(IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
    assert_int_equal(try(IBV_QPS_RTS, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
}

WITH(open_two, a_port_that_does_not_exist_is_einval) {
    struct ibv_qp_attr attr = ct_attr(&a, IBV_QPS_INIT, 0);
    attr.port_num = 2;
    assert_int_equal(ibv_modify_qp(a.qp, &attr, CT_INIT_MASK), EINVAL);
    assert_int_equal(shown(), IBV_QPS_RESET);
}

/* ---- queries ------------------------------------------------------------------------------------------------ */

WITH(open_two, a_query_returns_what_was_set) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    a.o.rnr_timer = 12;
    a.o.timeout = 15;
    a.o.retry_cnt = 5;
    a.o.finite_rnr = true;
    a.o.rnr_retry = 3;
    bring_to(IBV_QPS_RTS);
    const int all = CT_INIT_MASK | CT_RTR_MASK | CT_RTS_MASK | IBV_QP_CAP;
    assert_int_equal(ibv_query_qp(a.qp, &attr, all, &init), 0);
    assert_int_equal(attr.qp_state, IBV_QPS_RTS);
    assert_int_equal(attr.dest_qp_num, b.qp->qp_num);
    assert_int_equal(attr.port_num, 1);
    assert_int_equal(attr.path_mtu, IBV_MTU_1024);
    assert_int_equal(attr.max_dest_rd_atomic, 4);
    assert_int_equal(attr.max_rd_atomic, 4);
    assert_int_equal(attr.min_rnr_timer, 12);
    assert_int_equal(attr.timeout, 15);
    assert_int_equal(attr.retry_cnt, 5);
    assert_int_equal(attr.rnr_retry, 3);
    assert_int_equal(attr.qp_access_flags & CT_REMOTE, CT_REMOTE);
    assert_int_equal(attr.ah_attr.is_global, 1);
    assert_int_equal(attr.ah_attr.port_num, 1);
    assert_memory_equal(&attr.ah_attr.grh.dgid, &a.gid, sizeof a.gid);
    assert_int_equal(attr.cap.max_send_wr, a.cap.max_send_wr + facts.queue_spare);
    assert_ptr_equal(init.send_cq, a.scq);
    assert_ptr_equal(init.recv_cq, a.rcq);
    assert_int_equal(init.qp_type, IBV_QPT_RC);
    assert_int_equal(init.cap.max_recv_wr, a.cap.max_recv_wr + facts.queue_spare);
    assert_int_equal(init.cap.max_recv_sge, a.cap.max_recv_sge);
    assert_int_equal(init.sq_sig_all, 0);
}

/* ---- posting -------------------------------------------------------------------------------------------------- */

/* A receive posted in ERR. */
static void flushed_later(uint64_t wr_id) {
    if (!facts.err_flushes_later_receives) {
        if (!facts.err_may_flush)
            ct_empty(a.rcq);
        assert_int_equal(ct_to(&a, IBV_QPS_ERR), 0); /* which looks at the queue once more */
    }
    ct_wc(a.rcq, wr_id, IBV_WC_WR_FLUSH_ERR);
    ct_empty(a.rcq);
}

WITH(open_two, posting_is_allowed_in_the_right_states) {
    for (unsigned f = 0; f < 6; f++) {
        bring_to(real[f]);
        bool can_send = real[f] == IBV_QPS_RTS || real[f] == IBV_QPS_SQD || real[f] == IBV_QPS_ERR;
        int sent = ct_send(&a, 1, 0, 8, 0), received = ct_recv(&a, 2, 0, 64);
        if (sent != (can_send ? 0 : EINVAL))
            fail_msg("a send in %s gave %d", names[real[f]], sent);
        if (received != (real[f] == IBV_QPS_RESET ? EINVAL : 0))
            fail_msg("a receive in %s gave %d", names[real[f]], received);
        if (real[f] == IBV_QPS_ERR) {
            ct_wc(a.scq, 1, IBV_WC_WR_FLUSH_ERR);
            flushed_later(2);
        }
    }
    bring_to(IBV_QPS_RESET);
}

WITH(open_two, a_receive_posted_in_init_takes_the_first_message) {
    bring_to(IBV_QPS_INIT);
    assert_int_equal(ct_recv(&a, 77, 0, 64), 0);
    assert_int_equal(try(IBV_QPS_INIT, IBV_QPS_RTR, CT_RTR_MASK), 0);
    ct_connect_qp(&b, a.qp->qp_num); /* a stays in RTR: it hears, and need not speak */
    ct_fill(b.buf, 20, 9);
    assert_int_equal(ct_send(&b, 1, 0, 20, IBV_SEND_SIGNALED), 0);
    ct_wc(a.rcq, 77, IBV_WC_SUCCESS);
    ct_check(a.buf, 20, 9);
    ct_wc(b.scq, 1, IBV_WC_SUCCESS);
    if (facts.comm_est_event)
        ct_async(a.ctx, IBV_EVENT_COMM_EST, a.qp);
    else
        ct_no_async(a.ctx);
}

WITH(open_pair, sends_of_a_drained_queue_wait_until_rts) {
    assert_int_equal(ct_recv(&b, 1, 0, 64), 0);
    assert_int_equal(ct_to(&a, IBV_QPS_SQD), 0);
    wait_until_drained();
    assert_int_equal(ct_send(&a, 5, 0, 8, IBV_SEND_SIGNALED), 0);
    ct_empty(a.scq);
    ct_empty(b.rcq);
    assert_int_equal(ct_recv(&a, 2, 0, 64), 0); /* it still receives */
    assert_int_equal(ct_send(&b, 6, 0, 8, IBV_SEND_SIGNALED), 0);
    ct_wc(a.rcq, 2, IBV_WC_SUCCESS);
    ct_wc(b.scq, 6, IBV_WC_SUCCESS);
    assert_int_equal(ct_to(&a, IBV_QPS_RTS), 0);
    if (!facts.rts_resumes) { /* only the next post looks at the queue */
        ct_empty(b.rcq);
        assert_int_equal(ct_recv(&b, 7, 0, 64), 0);
        assert_int_equal(ct_send(&a, 8, 0, 8, 0), 0);
    }
    ct_wc(b.rcq, 1, IBV_WC_SUCCESS);
    ct_wc(a.scq, 5, IBV_WC_SUCCESS);
}

/*
 * Every place of the queue was used before. Where a device takes the place of the next send for one that is under
 * way, it drains for ever: RESET is refused, and ERR is the way out.
 */
WITH(open_pair, a_queue_that_was_used_drains) {
    for (unsigned i = 0; i < 2 * (a.cap.max_send_wr + facts.queue_spare) + 2; i++) {
        assert_int_equal(ct_recv(&b, i, 0, 64), 0);
        assert_int_equal(ct_send(&a, i, 0, 8, IBV_SEND_SIGNALED), 0);
        ct_wc(b.rcq, i, IBV_WC_SUCCESS);
        ct_wc(a.scq, i, IBV_WC_SUCCESS);
    }
    assert_int_equal(ct_to(&a, IBV_QPS_SQD), 0);
    if (facts.used_queue_drains) {
        wait_until_drained();
    } else {
        ct_empty(a.scq); /* which takes as long as one can wait for nothing */
        assert_true(drains());
        assert_int_equal(ct_to(&a, IBV_QPS_RESET), EINVAL);
        assert_int_equal(ct_to(&a, IBV_QPS_ERR), 0);
    }
    assert_int_equal(ct_to(&a, IBV_QPS_RESET), 0);
}

/* ---- flush ------------------------------------------------------------------------------------------------------ */

WITH(open_pair, err_flushes_everything_in_order_unsignaled_too) {
    for (unsigned i = 0; i < 10; i++) /* b posted nothing: all of them are pending */
        assert_int_equal(ct_send(&a, i, 0, 8, i % 3 == 0 ? IBV_SEND_SIGNALED : 0), 0);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(ct_recv(&a, 100 + i, 0, 64), 0);
    assert_int_equal(ct_to(&a, IBV_QPS_ERR), 0);
    assert_int_equal(ct_send(&a, 10, 0, 8, 0), 0);
    for (unsigned i = 0; i <= 10; i++)
        ct_wc(a.scq, i, IBV_WC_WR_FLUSH_ERR);
    for (unsigned i = 0; i < 10; i++)
        ct_wc(a.rcq, 100 + i, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(ct_recv(&a, 110, 0, 64), 0);
    flushed_later(110);
    ct_empty(a.scq);
    ct_empty(a.rcq);
}

/* What was completed before stays a success; a success never follows a flush. */
WITH(open_pair, delivered_sends_succeed_before_the_flush) {
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(ct_recv(&b, i, 0, 64), 0);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(ct_send(&a, i, 0, 8, IBV_SEND_SIGNALED), 0);
    for (unsigned i = 0; i < 3; i++) {
        ct_wc(b.rcq, i, IBV_WC_SUCCESS);
        ct_wc(a.scq, i, IBV_WC_SUCCESS);
    }
    assert_int_equal(ct_to(&a, IBV_QPS_ERR), 0);
    for (unsigned i = 3; i < 6; i++)
        ct_wc(a.scq, i, IBV_WC_WR_FLUSH_ERR);
    ct_empty(a.scq);
}

WITH(open_pair, reset_forgets_everything_and_the_pair_starts_again) {
    for (unsigned round = 0; round < 5; round++) {
        assert_int_equal(ct_recv(&a, 1, 0, 64), 0);
        assert_int_equal(ct_send(&a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
        assert_int_equal(ct_to(&a, IBV_QPS_RESET), 0);
        assert_int_equal(ct_to(&b, IBV_QPS_RESET), 0);
        ct_empty(a.scq);
        ct_empty(a.rcq);
        for (unsigned i = 0; i < 3; i++) { /* what is under way of an earlier life does no harm */
            ct_connect_qp(&b, a.qp->qp_num);
            ct_connect_qp(&a, b.qp->qp_num);
            assert_int_equal(ct_to(&a, IBV_QPS_RESET), 0);
            assert_int_equal(ct_to(&b, IBV_QPS_RESET), 0);
        }
        ct_connect_qp(&b, a.qp->qp_num);
        ct_connect_qp(&a, b.qp->qp_num);
        ct_fill(a.buf, 200, round);
        assert_int_equal(ct_recv(&b, 3, 0, 256), 0);
        assert_int_equal(ct_send(&a, 4, 0, 200, IBV_SEND_SIGNALED), 0);
        ct_wc(b.rcq, 3, IBV_WC_SUCCESS);
        ct_wc(a.scq, 4, IBV_WC_SUCCESS);
        ct_check(b.buf, 200, round);
    }
}

int main(void) {
    return ct_run();
}
