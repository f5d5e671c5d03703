/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * error_test.c - completion errors of messages on both sides: length, protection, receiver not
 * ready, nobody there; and the flush of what stands behind them.
 */
#include "contract/ends.h"

static struct ct_end a, b;

static int open_default(void **state) {
    (void)state;
    ct_open_pair(&a, &b, CT_OPTIONS(), CT_OPTIONS());
    return 0;
}

static int open_rnr_short(void **state) { /* once more after 10 us */
    (void)state;
    struct ct_options o = CT_OPTIONS(.finite_rnr = true, .rnr_retry = 1, .rnr_timer = 1);
    ct_open_pair(&a, &b, o, o);
    return 0;
}

static int open_rnr_none(void **state) {
    (void)state;
    struct ct_options o = CT_OPTIONS(.finite_rnr = true, .rnr_retry = 0, .rnr_timer = 1);
    ct_open_pair(&a, &b, o, o);
    return 0;
}

static int open_rnr_long(void **state) { /* six times 164 ms (code 29) */
    (void)state;
    struct ct_options o = CT_OPTIONS(.finite_rnr = true, .rnr_retry = 6, .rnr_timer = 29);
    ct_open_pair(&a, &b, o, o);
    return 0;
}

static int close_pair(void **state) {
    (void)state;
    ct_close(&a);
    ct_close(&b);
    return 0;
}

/* ---- length ---------------------------------------------------------------------------------------------- */

static void too_long(size_t bytes, size_t room) {
    assert_int_equal(ct_recv(&b, 50, 0, room), 0);
    assert_int_equal(ct_recv(&b, 51, 0, CT_BYTES), 0);
    memset(b.buf, 0x77, CT_BYTES);
    assert_int_equal(ct_send(&a, 1, 0, bytes, 0), 0); /* unsignaled: an error completes anyway */
    assert_int_equal(ct_send(&a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
    ct_wc(b.rcq, 50, facts.too_long_receive);
    ct_wc(b.rcq, 51, IBV_WC_WR_FLUSH_ERR);
    ct_wc(a.scq, 1, facts.too_long_send);
    ct_wc(a.scq, 2, IBV_WC_WR_FLUSH_ERR);
    ct_in_err(a.qp);
    ct_in_err(b.qp);
    for (size_t i = room; i < CT_BYTES; i++) /* not a byte outside the receive */
        assert_int_equal(b.buf[i], 0x77);
}

#define WITH(open, name) TEST_WITH(open, close_pair, name)

WITH(open_default, a_message_longer_than_its_receive) {
    too_long(101, 100);
}

WITH(open_default, a_long_message_one_byte_longer_than_its_receive) {
    too_long(30001, 30000);
}

/* ---- protection -------------------------------------------------------------------------------------------- */

enum way { BAD_KEY, BEHIND, BEFORE, OTHER_PD, DEREGISTERED, WAYS };

/* A buffer of that end which is wrong in one way; *extra and *pd are what wrong_done() takes back. */
static struct ibv_sge wrong(struct ct_end *e, enum way way, struct ibv_pd **pd,
                            struct ibv_mr **extra) {
    struct ibv_sge sge = ct_sge(e, 0, 500);
    *pd = NULL;
    *extra = NULL;
    switch (way) {
    case BAD_KEY:
        sge.lkey ^= 1;
        break;
    case BEHIND:
        sge.addr += CT_BYTES - 499;
        break;
    case BEFORE:
        sge.addr -= 1;
        break;
    case OTHER_PD:
        *pd = ibv_alloc_pd(e->ctx);
        assert_non_null(*pd);
        *extra = ibv_reg_mr(*pd, e->buf, CT_BYTES, IBV_ACCESS_LOCAL_WRITE);
        assert_non_null(*extra);
        sge.lkey = (*extra)->lkey;
        break;
    case DEREGISTERED: {
        struct ibv_mr *mr = ibv_reg_mr(e->pd, e->buf, CT_BYTES, IBV_ACCESS_LOCAL_WRITE);
        assert_non_null(mr);
        sge.lkey = mr->lkey;
        assert_int_equal(ibv_dereg_mr(mr), 0);
        break;
    }
    case WAYS:
        break;
    }
    return sge;
}

static void wrong_done(struct ibv_pd *pd, struct ibv_mr *extra) {
    if (extra)
        assert_int_equal(ibv_dereg_mr(extra), 0);
    if (pd)
        assert_int_equal(ibv_dealloc_pd(pd), 0);
}

TEST(a_wrong_send_buffer_ends_the_sender_only) {
    for (enum way way = 0; way < WAYS; way++) {
        struct ibv_pd *pd;
        struct ibv_mr *extra;
        open_default(NULL);
        struct ibv_sge sge = wrong(&a, way, &pd, &extra);
        struct ibv_send_wr wr = {.wr_id = 4, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
                           *bad;
        assert_int_equal(ct_recv(&b, 1, 0, 64), 0);
        assert_int_equal(ct_recv(&b, 2, 0, CT_BYTES), 0);
        assert_int_equal(ct_send(&a, 3, 0, 8, IBV_SEND_SIGNALED), 0); /* this one is good */
        ct_wc(b.rcq, 1, IBV_WC_SUCCESS);
        ct_wc(a.scq, 3, IBV_WC_SUCCESS);
        assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
        ct_wc(a.scq, 4,
              way == BEHIND || way == BEFORE ? facts.wrong_send_range : facts.wrong_send_key);
        assert_int_equal(ct_send(&a, 5, 0, 8, 0), 0);
        ct_wc(a.scq, 5, IBV_WC_WR_FLUSH_ERR);
        ct_in_err(a.qp);
        assert_int_equal(ct_state(b.qp), IBV_QPS_RTS);
        ct_empty(b.rcq);
        wrong_done(pd, extra);
        close_pair(NULL);
    }
}

TEST(a_wrong_receive_buffer_ends_both_sides) {
    for (enum way way = 0; way < WAYS; way++) {
        struct ibv_pd *pd;
        struct ibv_mr *extra;
        open_default(NULL);
        struct ibv_sge sge = wrong(&b, way, &pd, &extra);
        struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
        assert_int_equal(ibv_post_recv(b.qp, &wr, &bad), 0);
        assert_int_equal(ct_recv(&b, 2, 0, 64), 0);
        assert_int_equal(ct_send(&a, 3, 0, 500, 0), 0);
        assert_int_equal(ct_send(&a, 4, 0, 8, 0), 0);
        ct_wc(b.rcq, 1, facts.wrong_receive_buffer);
        ct_wc(b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
        ct_wc(a.scq, 3, IBV_WC_REM_OP_ERR);
        ct_wc(a.scq, 4, IBV_WC_WR_FLUSH_ERR);
        wrong_done(pd, extra);
        close_pair(NULL);
    }
}

WITH(open_default, a_receive_needs_the_right_to_write_and_a_send_does_not) {
    struct ibv_mr *from = ibv_reg_mr(a.pd, a.buf, 4096, 0);
    struct ibv_mr *to = ibv_reg_mr(b.pd, b.buf, 4096, 0);
    assert_true(from && to);
    struct ibv_sge source = {(uintptr_t)a.buf, 8, from->lkey},
                   sge = {(uintptr_t)b.buf, 64, to->lkey};
    struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad_recv;
    struct ibv_send_wr wr = {.wr_id = 3,
                             .sg_list = &source,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    assert_int_equal(ct_recv(&b, 0, 0, 64), 0);
    assert_int_equal(ibv_post_recv(b.qp, &recv, &bad_recv), 0);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    ct_wc(b.rcq, 0, IBV_WC_SUCCESS);
    ct_wc(a.scq, 3, IBV_WC_SUCCESS);
    assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
    ct_wc(b.rcq, 1, facts.wrong_receive_buffer);
    ct_wc(a.scq, 3, IBV_WC_REM_OP_ERR);
    assert_int_equal(ibv_dereg_mr(from), 0);
    assert_int_equal(ibv_dereg_mr(to), 0);
}

/* ---- receiver not ready --------------------------------------------------------------------------------------- */

WITH(open_default, rnr_retry_7_waits_for_ever) {
    for (unsigned i = 0; i < 3; i++) {
        ct_fill(a.buf + i * 64, 64, i);
        assert_int_equal(ct_send(&a, i, i * 64, 64, IBV_SEND_SIGNALED), 0);
    }
    ct_empty(a.scq);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(ct_recv(&b, i, i * 64, 64), 0);
        ct_wc(b.rcq, i, IBV_WC_SUCCESS);
        ct_check(b.buf + i * 64, 64, i);
        ct_wc(a.scq, i, IBV_WC_SUCCESS);
    }
}

WITH(open_rnr_short, rnr_retries_run_out) {
    assert_int_equal(ct_send(&a, 1, 0, 8, 0), 0);
    ct_wc(a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    assert_int_equal(ct_send(&a, 2, 0, 8, 0), 0);
    ct_wc(a.scq, 2, IBV_WC_WR_FLUSH_ERR);
    ct_in_err(a.qp);
    assert_int_equal(ct_state(b.qp), IBV_QPS_RTS); /* stays usable */
    ct_empty(b.rcq);
}

/* A receive that comes before the last retry is in time, however short the patience after it. */
WITH(open_rnr_long, a_receive_within_the_retries_is_in_time) {
    assert_int_equal(ct_send(&a, 1, 0, 8, IBV_SEND_SIGNALED), 0);
    struct ibv_wc wc;
    uint64_t end = ct_now_ms() + 250; /* of 6 x 164 ms */
    while (ct_now_ms() < end)
        assert_int_equal(ibv_poll_cq(a.scq, 1, &wc), 0);
    assert_int_equal(ct_recv(&b, 1, 0, 64), 0);
    ct_wc(b.rcq, 1, IBV_WC_SUCCESS);
    ct_wc(a.scq, 1, IBV_WC_SUCCESS);
}

/* The timer is the receiver's: six waits of 164 ms at least. */
WITH(open_rnr_long, rnr_patience_is_timer_times_retries) {
    uint64_t start = ct_now_ms();
    assert_int_equal(ct_send(&a, 1, 0, 8, 0), 0);
    ct_wc(a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    assert_true(ct_now_ms() - start >= 6 * 163);
}

/* ---- nobody there ----------------------------------------------------------------------------------------------- */

static void nobody_answers(uint32_t dest) {
    struct ct_end e;
    ct_open(&e, CT_OPTIONS(.timeout = 13, .retry_cnt = 1)); /* 33.6 ms, twice */
    ct_connect_qp(&e, dest);
    uint64_t start = ct_now_ms();
    assert_int_equal(ct_recv(&e, 9, 0, 64), 0);
    assert_int_equal(ct_send(&e, 1, 0, 8, 0), 0);
    assert_int_equal(ct_send(&e, 2, 0, 8, IBV_SEND_SIGNALED), 0);
    ct_wc(e.scq, 1, IBV_WC_RETRY_EXC_ERR);
    assert_true(ct_now_ms() - start >= facts.no_qp_retries_ms);
    ct_wc(e.scq, 2, IBV_WC_WR_FLUSH_ERR);
    ct_wc(e.rcq, 9, IBV_WC_WR_FLUSH_ERR);
    ct_close(&e);
}

TEST(a_number_nobody_has_exhausts_the_retries) {
    nobody_answers(0x00fffffe);
}

/* It exists, but its destination is somebody else. */
WITH(open_default, a_pair_connected_elsewhere_does_not_listen) {
    if (!facts.checks_sender)
        ct_skip("a queue pair takes messages from any sender at its peer's address");
    assert_int_equal(ct_recv(&b, 1, 0, 64), 0);
    nobody_answers(b.qp->qp_num);
    assert_int_equal(ct_send(&a, 2, 0, 8, IBV_SEND_SIGNALED), 0); /* the right one gets through */
    ct_wc(b.rcq, 1, IBV_WC_SUCCESS);
    ct_wc(a.scq, 2, IBV_WC_SUCCESS);
}

TEST(a_peer_in_err_or_reset_exhausts_the_retries) {
    const enum ibv_qp_state ends[] = {IBV_QPS_ERR, IBV_QPS_RESET};
    for (unsigned i = 0; i < 2; i++) {
        struct ct_options o = CT_OPTIONS(.timeout = 13, .retry_cnt = 1);
        ct_open_pair(&a, &b, o, o);
        assert_int_equal(ct_recv(&b, 7, 0, 64), 0);
        assert_int_equal(ct_send(&a, 7, 0, 8, IBV_SEND_SIGNALED), 0);
        ct_wc(a.scq, 7, IBV_WC_SUCCESS);
        assert_int_equal(ct_to(&b, ends[i]), 0);
        assert_int_equal(ct_send(&a, 1, 0, 8, 0), 0);
        assert_int_equal(ct_send(&a, 2, 0, 8, 0), 0);
        ct_wc(a.scq, 1, IBV_WC_RETRY_EXC_ERR);
        ct_wc(a.scq, 2, IBV_WC_WR_FLUSH_ERR);
        close_pair(NULL);
    }
}

/* The peer's QP is not there yet; with timeout 0 the requester waits for it. */
TEST(timeout_0_waits_until_the_peer_appears) {
    if (!facts.timeout_0_waits)
        ct_skip("without a timer nothing is sent again, so what came too early is lost for ever");
    struct ct_end c, d;
    ct_open(&c, CT_OPTIONS());
    ct_open(&d, CT_OPTIONS());
    struct ibv_qp_attr attr = ct_attr(&c, IBV_QPS_INIT, 0);
    assert_int_equal(ibv_modify_qp(c.qp, &attr, CT_INIT_MASK), 0);
    attr = ct_attr(&c, IBV_QPS_RTR, d.qp->qp_num);
    assert_int_equal(ibv_modify_qp(c.qp, &attr, CT_RTR_MASK), 0);
    attr = ct_attr(&c, IBV_QPS_RTS, 0);
    attr.timeout = 0;
    assert_int_equal(ibv_modify_qp(c.qp, &attr, CT_RTS_MASK), 0);
    assert_int_equal(ct_send(&c, 1, 0, 8, IBV_SEND_SIGNALED), 0);
    ct_empty(c.scq);
    ct_connect_qp(&d, c.qp->qp_num);
    assert_int_equal(ct_recv(&d, 2, 0, 64), 0);
    ct_wc(d.rcq, 2, IBV_WC_SUCCESS);
    ct_wc(c.scq, 1, IBV_WC_SUCCESS);
    ct_close(&c);
    ct_close(&d);
}

TEST_CASES({"rnr_retry_0_gives_up_at_once", rnr_retries_run_out, open_rnr_none, close_pair, NULL});

int main(void) {
    return ct_run();
}
