/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_error_test.c - completion errors on both sides: length, protection, receiver not ready,
 * nobody there. Each row says what the requester and the responder must see.
 */
#include "support/softverbs.h"
#include "support/rows.h"
#include "soft/object/attention.h"
#include "soft/rc/completer.h"
#include "soft/rc/progress.h"

static struct sv_end a, b;

static int open_default(void **state) {
    (void)state;
    sv_pair(&a, SV_OPTIONS(), &b, SV_OPTIONS());
    return 0;
}

static int open_mapped(void **state) {
    (void)state;
    struct sv_options o = SV_OPTIONS(.mapped = true);
    sv_pair(&a, o, &b, o);
    sv_wait_mapped(&a);
    return 0;
}

/* RNR: 10 us twice (code 1, retry 1) and 20 ms thrice (code 23 = 20.48 ms, retry 2). */
static int open_rnr_short(void **state) {
    (void)state;
    struct sv_options o = SV_OPTIONS(.finite_rnr = true, .rnr_retry = 1, .rnr_timer = 1);
    sv_pair(&a, o, &b, o);
    return 0;
}

static int open_rnr_long(void **state) {
    (void)state;
    struct sv_options o = SV_OPTIONS(.finite_rnr = true, .rnr_retry = 2, .rnr_timer = 23);
    sv_pair(&a, o, &b, o);
    return 0;
}

static int close_pair(void **state) {
    (void)state;
    sv_unpair(&a, &b);
    return 0;
}

static void expect(struct sv_end *e, struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status) {
    struct ibv_wc wc = sv_poll(cq);
    assert_int_equal(wc.status, status);
    must_data_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.qp_num, e->qp->qp_num);
}

/* ---- length ------------------------------------------------------------------------------------ */

struct message {
    size_t bytes, room;
};

static void too_long(void **state) {
    const struct message *row = *state;
    const size_t room = row->room;
    assert_int_equal(sv_recv(&b, 50, 0, room), 0);
    assert_int_equal(sv_recv(&b, 51, 0, 65536), 0);
    memset(b.buf, 0x77, 65536);
    assert_int_equal(sv_send(&a, 1, 0, row->bytes, 0),
                     0); /* unsignaled: an error completes anyway */
    assert_int_equal(sv_send(&a, 2, 0, 8, IBV_SEND_SIGNALED), 0);
    expect(&b, b.rcq, 50, IBV_WC_LOC_LEN_ERR);
    expect(&b, b.rcq, 51, IBV_WC_WR_FLUSH_ERR);
    expect(&a, a.scq, 1, IBV_WC_REM_INV_REQ_ERR);
    expect(&a, a.scq, 2, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(sv_state(&a), IBV_QPS_ERR);
    assert_int_equal(sv_state(&b), IBV_QPS_ERR);
    for (size_t i = room; i < 65536; i++) /* not a byte outside the receive */
        must_data_equal(b.buf[i], 0x77);
}

#define WITH(open, name) TEST_WITH(open, close_pair, name)

WITH(open_default, a_message_for_a_receive_without_buffers) {
    struct ibv_recv_wr wr = {.wr_id = 8, .num_sge = 0}, *bad;
    assert_int_equal(ibv_post_recv(b.qp, &wr, &bad), 0);
    assert_int_equal(ibv_post_recv(b.qp, &wr, &bad), 0);
    assert_int_equal(sv_send(&a, 1, 0, 0, IBV_SEND_SIGNALED), 0); /* nothing fits into nothing */
    expect(&b, b.rcq, 8, IBV_WC_SUCCESS);
    expect(&a, a.scq, 1, IBV_WC_SUCCESS);
    assert_int_equal(sv_send(&a, 2, 0, 1, IBV_SEND_SIGNALED), 0);
    expect(&b, b.rcq, 8, IBV_WC_LOC_LEN_ERR);
    expect(&a, a.scq, 2, IBV_WC_REM_INV_REQ_ERR);
}

/* ---- protection -------------------------------------------------------------------------------- */

/* The ways in which a buffer can be wrong; the registration is [buf, buf + 65536). */
enum { BAD_KEY, KEY_PLUS_ONE, BEHIND, BEFORE, AROUND_THE_END, OTHER_PD, DEREGISTERED, WAYS };

static struct ibv_pd *other_pd;
static struct ibv_mr *other_mr;

static struct ibv_sge wrong(struct sv_end *e, unsigned way, uint32_t bytes) {
    struct ibv_sge sge = sv_sge(e, 0, bytes);
    other_pd = NULL;
    switch (way) {
    case BAD_KEY:
        sge.lkey = 0;
        break;
    case KEY_PLUS_ONE:
        sge.lkey += 1;
        break;
    case BEHIND:
        sge.addr += 65536 - bytes + 1;
        break;
    case BEFORE:
        sge.addr -= 1;
        break;
    case AROUND_THE_END:
        sge.addr = UINT64_MAX - 3;
        break;
    case OTHER_PD:
        other_pd = soft_alloc_pd(e->ctx);
        must(other_pd);
        other_mr = soft_reg_mr(other_pd, e->buf, 65536, IBV_ACCESS_LOCAL_WRITE);
        must(other_mr);
        sge.lkey = other_mr->lkey;
        break;
    case DEREGISTERED:
        other_mr = soft_reg_mr(e->pd, e->buf, 65536, IBV_ACCESS_LOCAL_WRITE);
        must(other_mr);
        sge.lkey = other_mr->lkey;
        must(soft_dereg_mr(other_mr) == 0);
        break;
    }
    return sge;
}

static void wrong_done(void) {
    if (!other_pd)
        return;
    must(soft_dereg_mr(other_mr) == 0);
    must(soft_dealloc_pd(other_pd) == 0);
}

TEST(a_bad_send_buffer_ends_the_sender_only) {
    const uint32_t sizes[] = {8, 400, 20000};
    for (unsigned way = 0; way < WAYS; way++)
        for (unsigned s = 0; s < 3; s++)
            for (int how = 0; how < 4; how++) {
                int second = how & 1;
                if (how & 2)
                    open_mapped(NULL); /* the peer reads it where it lies */
                else
                    open_default(NULL);
                /* As the only buffer, or behind a good one that goes out in several segments. */
                struct ibv_sge sge[2] = {sv_sge(&a, 0, 1000), wrong(&a, way, sizes[s])};
                struct ibv_send_wr wr = {.wr_id = 4,
                                         .sg_list = second ? sge : sge + 1,
                                         .num_sge = 1 + second,
                                         .opcode = IBV_WR_SEND},
                                   *bad;
                assert_int_equal(sv_recv(&b, 1, 0, 64), 0);
                assert_int_equal(sv_recv(&b, 2, 0, 65536), 0);
                assert_int_equal(sv_send(&a, 3, 0, 8, 0), 0); /* this one is good */
                assert_int_equal(ibv_post_send(a.qp, &wr, &bad), 0);
                assert_int_equal(sv_send(&a, 5, 0, 8, 0), 0);
                expect(&b, b.rcq, 1, IBV_WC_SUCCESS);
                expect(&a, a.scq, 4, IBV_WC_LOC_PROT_ERR);
                expect(&a, a.scq, 5, IBV_WC_WR_FLUSH_ERR);
                assert_int_equal(sv_state(&a), IBV_QPS_ERR);
                assert_int_equal(sv_state(&b), IBV_QPS_RTS);
                sv_stays_empty(b.rcq, a.scq);
                wrong_done();
                close_pair(NULL);
            }
}

TEST(a_bad_receive_buffer_ends_both_sides) {
    const uint32_t sizes[] = {8, 400, 20000};
    for (unsigned way = 0; way < WAYS; way++)
        for (unsigned s = 0; s < 3; s++)
            for (int mapped = 0; mapped < 2; mapped++) {
                if (mapped)
                    open_mapped(NULL);
                else
                    open_default(NULL);
                struct ibv_sge sge = wrong(&b, way, sizes[s]);
                struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
                assert_int_equal(ibv_post_recv(b.qp, &wr, &bad), 0);
                assert_int_equal(sv_recv(&b, 2, 0, 64), 0);
                assert_int_equal(sv_send(&a, 3, 0, sizes[s], 0), 0);
                assert_int_equal(sv_send(&a, 4, 0, 8, 0), 0);
                expect(&b, b.rcq, 1, IBV_WC_LOC_PROT_ERR);
                expect(&b, b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
                expect(&a, a.scq, 3, IBV_WC_REM_OP_ERR);
                expect(&a, a.scq, 4, IBV_WC_WR_FLUSH_ERR);
                wrong_done();
                close_pair(NULL);
            }
}

/* ---- receiver not ready ------------------------------------------------------------------------ */

TEST_EACH(finite_rnr_retries_run_out,
          {"finite_rnr_retries_run_out/short", finite_rnr_retries_run_out, open_rnr_short,
           close_pair, NULL},
          {"finite_rnr_retries_run_out/long", finite_rnr_retries_run_out, open_rnr_long, close_pair,
           NULL}) {
    assert_int_equal(sv_send(&a, 1, 0, 8, 0), 0);
    assert_int_equal(sv_send(&a, 2, 0, 8, 0), 0);
    expect(&a, a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
    expect(&a, a.scq, 2, IBV_WC_WR_FLUSH_ERR);
    assert_int_equal(sv_state(&a), IBV_QPS_ERR);
    assert_int_equal(sv_state(&b), IBV_QPS_RTS); /* stays usable */
    sv_stays_empty(b.rcq, NULL);
}

WITH(open_rnr_long, a_receive_within_the_retries_is_in_time) {
    for (unsigned i = 0; i < 3; i++) { /* each message has its own patience */
        assert_int_equal(sv_send(&a, i, 0, 8, IBV_SEND_SIGNALED), 0);
        struct ibv_wc wc;
        uint64_t until = soft_now_ns() + 30000000; /* of 3 x 20 ms */
        while (soft_now_ns() < until) {
            assert_int_equal(ibv_poll_cq(a.scq, 1, &wc), 0);
            assert_int_equal(ibv_poll_cq(b.rcq, 1, &wc), 0);
        }
        assert_int_equal(sv_recv(&b, i, 0, 64), 0);
        expect(&b, b.rcq, i, IBV_WC_SUCCESS);
        expect(&a, a.scq, i, IBV_WC_SUCCESS);
    }
}

/* ---- nobody there ------------------------------------------------------------------------------ */

static void no_retries_last_for(uint32_t dest, uint64_t ns_min) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.timeout = 13, .retry_cnt = 1)); /* 33.6 ms, twice */
    sv_connect(&e, dest);
    uint64_t start = soft_now_ns();
    assert_int_equal(sv_recv(&e, 9, 0, 64), 0);
    assert_int_equal(sv_send(&e, 1, 0, 8, 0), 0);
    assert_int_equal(sv_send(&e, 2, 0, 8, IBV_SEND_SIGNALED), 0);
    expect(&e, e.scq, 1, IBV_WC_RETRY_EXC_ERR);
    assert_true(soft_now_ns() - start >= ns_min);
    expect(&e, e.scq, 2, IBV_WC_WR_FLUSH_ERR);
    expect(&e, e.rcq, 9, IBV_WC_WR_FLUSH_ERR);
    sv_close(&e);
}

WITH(open_default, a_number_of_a_process_without_that_pair_exhausts_the_retries) {
    uint32_t unused = (b.qp->qp_num & ~1023u) | ((b.qp->qp_num + 500) & 1023);
    no_retries_last_for(unused, 60000000);
}

TEST(a_peer_in_error_or_reset_exhausts_the_retries) {
    const enum ibv_qp_state ends[] = {IBV_QPS_ERR, IBV_QPS_RESET};
    for (unsigned i = 0; i < 2; i++) {
        open_default(NULL);
        sv_wait_linked(&a);
        assert_int_equal(sv_send(&a, 1, 0, 8, 0), 0);
        assert_int_equal(sv_to(&b, ends[i]), 0);
        assert_int_equal(sv_send(&a, 2, 0, 8, 0), 0);
        expect(&a, a.scq, 1, IBV_WC_RETRY_EXC_ERR);
        expect(&a, a.scq, 2, IBV_WC_WR_FLUSH_ERR);
        close_pair(NULL);
    }
}

/*
 * The peer has sent two messages and is down; a send to it was not taken. The array of the poll that sees this has a place
 * for one message. The engine, which has arrays without end, is kept away.
 */
TEST(what_a_peer_sent_before_it_was_down_is_taken_before_a_send_to_it_fails) {
    enum { MESSAGES = 2, SEND = 9 };
    struct sv_end a, b;
    struct ibv_wc wc;
    sv_pair(&a, SV_OPTIONS(), &b, SV_OPTIONS());
    sv_wait_linked(&a);
    sv_wait_linked(&b);
    soft_lock();
    must(sv_send(&a, SEND, 0, 8, IBV_SEND_SIGNALED) == 0);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        must(sv_recv(&a, i, 0, 64) == 0);
        must(sv_send(&b, i, 0, 8, 0) == 0);
    }
    struct soft_qp *up = soft_qp_of(a.qp), *down = soft_qp_of(b.qp);
    spin_lock(&down->lock);
    soft_qp_fail(down);
    spin_unlock(&down->lock);
    for (uint64_t i = 0; i < MESSAGES; i++) {
        soft_qp_attend(up);
        must(ibv_poll_cq(a.rcq, 1, &wc) == 1);
        must(wc.wr_id == i && wc.status == IBV_WC_SUCCESS);
    }
    must(ibv_poll_cq(a.rcq, 1, &wc) == 0);
    must(ibv_poll_cq(a.scq, 1, &wc) == 1);
    must(wc.wr_id == SEND && wc.status == IBV_WC_RETRY_EXC_ERR);
    soft_unlock();
    sv_unpair(&a, &b);
}

/* Completions that nobody polls and that do not fit: the CQ and its QPs are dead. */
TEST(cq_overrun_is_a_cq_error) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(.one_cq = true), &b, SV_OPTIONS(.one_cq = true, .cqe = 4));
    sv_wait_linked(&a);
    for (unsigned i = 0; i < 6; i++) {
        must(sv_recv(&b, i, 0, 64) == 0);
        must(sv_send(&a, i, 0, 8, IBV_SEND_SIGNALED) == 0);
    }
    struct ibv_wc wc;
    sv_until(ibv_poll_cq(a.rcq, 1, &wc) == 1); /* the engine over there took the messages */
    sv_async(b.ctx, IBV_EVENT_CQ_ERR, b.rcq);
    sv_until((soft_qp_progress(soft_qp_of(b.qp)), b.qp->state == IBV_QPS_ERR));
    sv_unpair(&a, &b);
}

TEST_CASES(ROW_WITH(open_default, close_pair, a_small_message_longer_than_its_receive, too_long,
                    message, 101, 100),
           ROW_WITH(open_default, close_pair, a_stream_longer_than_its_receive, too_long, message,
                    60000, 59999),
           ROW_WITH(open_mapped, close_pair, a_mapped_message_longer_than_its_receive, too_long,
                    message, 60000, 59999));
