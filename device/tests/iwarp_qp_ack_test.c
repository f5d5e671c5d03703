/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_ack_test.c - acknowledgements of a queue pair over TCP: a request is complete when the peer has said that it is there,
 * however far the stream has come, and no sooner than it can have been.
 */
#include "support/softverbs_tcp_peer.h"

#include <poll.h>

#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/qp_tcp.h"
#include "support/iwarp.h"
#include "support/rows.h"

#define GIB ((uint64_t)1 << 30)
#define SEND_BYTES 40u

static struct tcp_peer p;

static int open_plain(void **state) {
    (void)state;
    tcp_peer_open(&p, &(struct tcp_options){.extended = true});
    return 0;
}

static int open_narrow(void **state) {
    (void)state;
    tcp_peer_open(&p, &(struct tcp_options){.extended = true, .buffer = 4096});
    return 0;
}

static int shut(void **state) {
    (void)state;
    tcp_peer_close(&p);
    return 0;
}

/* As if so much had been sent: answers to the peer's READs. */
static void come_so_far(uint64_t bytes) {
    struct soft_qp *qp = soft_qp_of(p.e.qp);
    spin_lock(&qp->lock);
    assert_true(qp->tcp->tx.sent == qp->tcp->tx.framed);
    qp->tcp->tx.sent += bytes;
    qp->tcp->tx.framed += bytes;
    spin_unlock(&qp->lock);
}

/* The next frame is of that kind. */
static void expect_frame(unsigned opcode, size_t payload) {
    uint8_t frame[256];
    struct iwarp_ddp ddp;
    size_t whole = iwarp_fpdu_bytes(IWARP_UNTAGGED_BYTES + payload), have = 0;
    while (have < whole) {
        struct pollfd there = {.fd = p.fd, .events = POLLIN};
        assert_int_equal(poll(&there, 1, 20000), 1);
        ssize_t n = recv(p.fd, frame + have, whole - have, 0);
        assert_true(n > 0);
        have += (size_t)n;
    }
    assert_int_equal(iwarp_ddp_get(&ddp, frame + IWARP_LENGTH_BYTES, true), IWARP_FINE);
    assert_int_equal(ddp.opcode, opcode);
}

static void acknowledge(void) {
    struct iwarp_ddp ddp = {.opcode = IWARP_READ_RESPONSE, .last = true};
    tcp_peer_say(&p, p.frame, iwarp_frame(p.frame, &ddp, NULL, 0));
}

struct far {
    uint64_t gib;
};

/* What was sent for the peer's sake, since the last request was acknowledged, acknowledges none. */
static void a_request_far_behind_the_last_waits_to_be_acknowledged(void **state) {
    const struct far *far = *state;
    come_so_far(far->gib * GIB);
    assert_int_equal(sv_send(&p.e, 1, 0, SEND_BYTES, IBV_SEND_SIGNALED), 0);
    expect_frame(IWARP_SEND, SEND_BYTES);
    expect_frame(IWARP_READ_REQUEST, IWARP_READ_BYTES);
    sv_stays_empty(p.e.scq, p.e.rcq);
    acknowledge();
    tcp_expect(p.e.scq, 1, IBV_WC_SUCCESS);
}

/* Where nobody waits for any of them, they are acknowledged before there is too much. */
TEST_WITH(open_plain, shut, requests_that_complete_unseen_are_acknowledged_in_time) {
    assert_int_equal(sv_send(&p.e, 1, 0, SEND_BYTES, 0), 0);
    expect_frame(IWARP_SEND, SEND_BYTES);
    come_so_far(5 * GIB);
    assert_int_equal(sv_send(&p.e, 2, 0, SEND_BYTES, IBV_SEND_SIGNALED), 0);
    expect_frame(IWARP_READ_REQUEST, IWARP_READ_BYTES);
    struct pollfd more = {.fd = p.fd, .events = POLLIN};
    sv_stays_empty(p.e.scq, p.e.rcq);
    assert_int_equal(poll(&more, 1, 0), 0);
    acknowledge();
    sv_stays_empty(p.e.scq, p.e.rcq);
    expect_frame(IWARP_SEND, SEND_BYTES);
    expect_frame(IWARP_READ_REQUEST, IWARP_READ_BYTES);
    acknowledge();
    tcp_expect(p.e.scq, 2, IBV_WC_SUCCESS);
}

static void sends_and_asks(uint64_t wr_id, bool asks) {
    assert_int_equal(sv_send(&p.e, wr_id, 0, SEND_BYTES, IBV_SEND_SIGNALED), 0);
    expect_frame(IWARP_SEND, SEND_BYTES);
    if (asks)
        expect_frame(IWARP_READ_REQUEST, IWARP_READ_BYTES);
}

/* A round trip that began before it does not hold up what was sent meanwhile; but there are not more of them than a few. */
TEST_WITH(open_plain, shut, what_is_sent_later_is_asked_for_before_the_answer) {
    uint64_t sent = 0, done = 0;
    while (sent < SOFT_TCP_ACKS)
        sends_and_asks(sent++, true);
    sends_and_asks(sent++, false);
    sends_and_asks(sent++, false);
    sv_stays_empty(p.e.scq, p.e.rcq);
    struct pollfd more = {.fd = p.fd, .events = POLLIN};
    assert_int_equal(poll(&more, 1, 0), 0);
    acknowledge();
    tcp_expect(p.e.scq, done++, IBV_WC_SUCCESS);
    expect_frame(IWARP_READ_REQUEST, IWARP_READ_BYTES);
    while (done < SOFT_TCP_ACKS) {
        acknowledge();
        tcp_expect(p.e.scq, done++, IBV_WC_SUCCESS);
    }
    acknowledge();
    while (done < sent)
        tcp_expect(p.e.scq, done++, IBV_WC_SUCCESS);
    sv_stays_empty(p.e.scq, p.e.rcq);
    assert_int_equal(poll(&more, 1, 0), 0); /* and that is all */
}

/* Its memory would be the application's again, and read by the peer with what is written there next. */
TEST_WITH(open_narrow, shut, who_acknowledges_what_was_not_sent_frees_nothing) {
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(sv_send(&p.e, i, 0, 100000, IBV_SEND_SIGNALED), 0);
    const struct soft_qp *qp = soft_qp_of(p.e.qp);
    assert_true(qp->tcp->tx.sent < qp->tcp->tx.framed);
    acknowledge();
    for (uint64_t i = 0; i < 2; i++)
        assert_int_not_equal(sv_poll(p.e.scq).status, IBV_WC_SUCCESS);
    tcp_wait_down(&p.e);
}

/* Nor who answers a READ that was not sent. */
TEST_WITH(open_narrow, shut, who_answers_what_was_not_asked_frees_nothing) {
    struct ibv_sge sge = {(uintptr_t)p.e.buf + 131072, 8, p.e.mr->lkey};
    struct ibv_send_wr read = {.wr_id = 1,
                               .sg_list = &sge,
                               .num_sge = 1,
                               .opcode = IBV_WR_RDMA_READ,
                               .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    assert_int_equal(sv_send(&p.e, 0, 0, 100000, 0), 0);
    assert_int_equal(ibv_post_send(p.e.qp, &read, &bad), 0);
    const struct soft_qp *qp = soft_qp_of(p.e.qp);
    assert_true(qp->tcp->tx.sent < qp->tcp->tx.framed && qp->waiting == 1);
    struct iwarp_ddp ddp = {.opcode = IWARP_READ_RESPONSE, .last = true, .stag = qp->wait_index};
    tcp_peer_say(&p, p.frame, iwarp_frame(p.frame, &ddp, "answered", 8));
    assert_int_not_equal(sv_poll(p.e.scq).status, IBV_WC_SUCCESS);
    assert_int_not_equal(sv_poll(p.e.scq).status, IBV_WC_SUCCESS);
    tcp_wait_down(&p.e);
}

TEST_CASES(ROW_WITH(open_plain, shut, 3_gib, a_request_far_behind_the_last_waits_to_be_acknowledged,
                    far, 3),
           ROW_WITH(open_plain, shut, 11_gib,
                    a_request_far_behind_the_last_waits_to_be_acknowledged, far, 11));
