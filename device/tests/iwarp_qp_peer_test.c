/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_peer_test.c - a queue pair over TCP whose peer is played by hand: frames that are wrong, connections that break in the
 * middle, bytes that come slowly or not at all, READs without an end.
 */
#include "support/softverbs_tcp_peer.h"

#include <netinet/tcp.h>
#include <poll.h>

#include "soft/iwarp/qp_tcp.h"
#include "soft/iwarp/terminate.h"
#include "support/iwarp.h"
#include "support/rows.h"

static struct tcp_peer p;

static int open_plain(void **state) {
    (void)state;
    tcp_peer_open(&p, &(struct tcp_options){0});
    return 0;
}

static int open_narrow(void **state) {
    (void)state;
    tcp_peer_open(&p, &(struct tcp_options){.buffer = 4096});
    return 0;
}

static int shut(void **state) {
    (void)state;
    tcp_peer_close(&p);
    return 0;
}

/* ---- frames that are wrong ------------------------------------------------------------------------------- */

struct wrong {
    uint8_t opcode;
    size_t bytes, flip; /* flip: this byte of the frame is changed; 0: none */
    size_t first;       /* it comes in two parts; 0: at once */
    uint32_t msn, key;  /* added */
    unsigned refusal;
    enum ibv_wc_status receive;
    uint64_t offset; /* added */
    bool closed;     /* the key of memory that is not for peers */
    bool guessed;    /* counted as a wrong key */
};

static bool has_guessed(void) {
    struct soft_qp *qp = soft_qp_of(p.e.qp);
    spin_lock(&qp->lock);
    bool guessed = qp->tcp->guessed;
    spin_unlock(&qp->lock);
    return guessed;
}

static void it_ends_with_its_terminate(void **state) {
    const struct wrong *wrong = *state;
    struct iwarp_ddp ddp = tcp_peer_message(&p, wrong->opcode);
    ddp.msn += wrong->msn;
    ddp.stag = (wrong->closed ? p.e.mr->rkey : ddp.stag) + wrong->key;
    ddp.offset += wrong->offset;
    size_t bytes = iwarp_frame(p.frame, &ddp, p.payload, wrong->bytes);
    if (wrong->flip)
        p.frame[wrong->flip] ^= 0x10;
    if (wrong->first) {
        tcp_peer_say(&p, p.frame, wrong->first);
        if (wrong->opcode == IWARP_WRITE)
            sv_until(has_guessed());
        else
            tcp_peer_wait_taken(&p, p.e.buf + 4095, sv_byte(4095, 1));
    }
    tcp_peer_say(&p, p.frame + wrong->first, bytes - wrong->first);
    tcp_peer_expect_end(&p, wrong->refusal);
    tcp_expect(p.e.rcq, 0, wrong->receive);
    tcp_peer_flushed_from(&p, 1);
    assert_int_equal(has_guessed(), wrong->guessed);
}

/* ---- connections that break ------------------------------------------------------------------------------ */

struct broken {
    size_t bytes; /* of a frame of TCP_PEER_LARGE bytes that arrive */
    bool reset;
};

static void a_connection_that_breaks_ends_it(void **state) {
    const struct broken *broken = *state;
    struct ibv_sge sge = sv_sge(&p.e, 3 * 65536, 100);
    struct ibv_send_wr *bad, wr = {.wr_id = 7,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_READ,
                                   .send_flags = IBV_SEND_SIGNALED};
    struct iwarp_ddp ddp = tcp_peer_message(&p, IWARP_SEND);
    iwarp_frame(p.frame, &ddp, p.payload, TCP_PEER_LARGE);
    assert_int_equal(ibv_post_send(p.e.qp, &wr, &bad), 0);
    assert_int_equal(sv_send(&p.e, 8, 0, 64, IBV_SEND_SIGNALED), 0);
    tcp_peer_say(&p, p.frame, broken->bytes);
    if (broken->bytes > 5000)
        tcp_peer_wait_taken(&p, p.e.buf + 4095, sv_byte(4095, 1));
    if (broken->reset) {
        tcp_peer_reset(&p);
    } else {
        assert_int_equal(shutdown(p.fd, SHUT_WR), 0);
    }
    tcp_expect(p.e.scq, 7, IBV_WC_RETRY_EXC_ERR);
    tcp_expect(p.e.scq, 8, IBV_WC_WR_FLUSH_ERR);
    tcp_peer_flushed_from(&p, 0);
    if (!broken->reset)
        tcp_peer_expect_end(&p, 0);
}

/* More messages than receives: nothing is read any more. */
static void say_too_many(void) {
    for (unsigned i = 0; i < TCP_PEER_RECEIVES + 3; i++) {
        struct iwarp_ddp ddp = tcp_peer_message(&p, IWARP_SEND);
        ddp.msn += i;
        tcp_peer_say(&p, p.frame, iwarp_frame(p.frame, &ddp, p.payload, 30000));
    }
    for (unsigned i = 0; i < TCP_PEER_RECEIVES; i++)
        tcp_expect(p.e.rcq, i, IBV_WC_SUCCESS);
    sv_until(atomic_load(&soft_qp_of(p.e.qp)->rx_stalled));
}

#define WITH(open, name) TEST_WITH(open, shut, name)

WITH(open_plain, a_reset_is_heard_while_nothing_is_read) {
    say_too_many();
    tcp_peer_reset(&p);
    uint64_t since = soft_now_ns();
    tcp_wait_down(&p.e);
    assert_true(soft_now_ns() - since < 4000000000ull); /* before the patience for a receive ends */
}

/* What the peer sent and nobody read does not make a reset of the end. */
WITH(open_plain, an_end_with_bytes_unread_is_no_reset) {
    uint8_t byte;
    say_too_many();
    assert_int_equal(soft_destroy_qp(p.e.qp), 0);
    p.e.qp = NULL;
    struct pollfd fd = {.fd = p.fd, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 20000), 1);
    assert_int_equal(recv(p.fd, &byte, 1, 0), 0);
}

WITH(open_plain, a_socket_is_closed_whatever_the_peer_does) {
    unsigned before = sv_fds();
    assert_int_equal(soft_destroy_qp(p.e.qp), 0);
    p.e.qp = NULL;
    sv_until(sv_fds() == before - 1);
}

/* A frame that does not go on: 20 s ago it should have. */
WITH(open_plain, who_does_not_go_on_is_cut_off) {
    struct soft_qp *qp = soft_qp_of(p.e.qp);
    struct iwarp_ddp ddp = tcp_peer_message(&p, IWARP_SEND);
    iwarp_frame(p.frame, &ddp, p.payload, TCP_PEER_LARGE);
    tcp_peer_say(&p, p.frame, 100);
    bool begun = false;
    do {
        spin_lock(&qp->lock);
        begun = qp->tcp->inside_ns != 0;
        if (begun)
            qp->tcp->inside_ns -= 21000000000ull;
        spin_unlock(&qp->lock);
    } while (!begun);
    tcp_peer_expect_end(&p, IWARP_MPA_LOST);
    tcp_peer_flushed_from(&p, 0);
}

/* What is sent and not taken: TCP gives up after that, unless the queue pair's own patience is longer. */
WITH(open_plain, who_does_not_read_has_twenty_seconds) {
    const struct soft_qp *qp = soft_qp_of(p.e.qp);
    uint64_t own = (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1u) / 1000000u;
    unsigned ms = 0;
    socklen_t bytes = sizeof ms;
    struct iwarp_ddp ddp = tcp_peer_message(&p, IWARP_SEND);
    tcp_peer_say(&p, p.frame, iwarp_frame(p.frame, &ddp, p.payload, 100));
    tcp_expect(p.e.rcq, 0, IBV_WC_SUCCESS); /* so it has had a turn */
    assert_true(qp->attr.timeout != 0);
    assert_int_equal(getsockopt(qp->tcp->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &bytes), 0);
    assert_int_equal(ms, own > 20000 ? own : 20000);
}

WITH(open_plain, bytes_may_come_one_at_a_time) {
    struct iwarp_ddp ddp = tcp_peer_message(&p, IWARP_SEND);
    struct ibv_wc wc;
    size_t bytes = iwarp_frame(p.frame, &ddp, p.payload, 300);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(ibv_poll_cq(p.e.rcq, 1, &wc), 0);
        tcp_peer_say(&p, p.frame + i, 1);
    }
    tcp_expect(p.e.rcq, 0, IBV_WC_SUCCESS);
    sv_check(p.e.buf, 300, 1);
}

/* Their number is bounded, and no answer is made before the one in front of it went. */
WITH(open_narrow, a_storm_of_reads_ends_it) {
    for (unsigned i = 1; i <= 20; i++)
        tcp_peer_say_read(&p, i, 65536);
    tcp_peer_flushed_from(&p, 0);
}

WITH(open_plain, it_may_be_destroyed_in_the_middle) {
    (void)tcp_peer_say_most(&p, IWARP_SEND, p.e.buf);
    for (unsigned i = 0; i < 60; i++)
        assert_int_equal(sv_send(&p.e, i, 65536, 65536, 0), 0);
    assert_int_equal(soft_destroy_qp(p.e.qp), 0);
    p.e.qp = NULL;
}

#define WRONG(name, ...)                                                                           \
    ROW_WITH(open_plain, shut, name, it_ends_with_its_terminate, wrong, __VA_ARGS__)
#define BROKEN(name, ...)                                                                          \
    ROW_WITH(open_plain, shut, name, a_connection_that_breaks_ends_it, broken, __VA_ARGS__)

TEST_CASES(
    WRONG(a_changed_byte, IWARP_SEND, 100, .flip = 50, .refusal = IWARP_MPA_CRC,
          .receive = IBV_WC_WR_FLUSH_ERR),
    WRONG(a_changed_byte_of_a_message_that_has_begun, IWARP_SEND, TCP_PEER_LARGE, .flip = 30000,
          .first = 20000, .refusal = IWARP_MPA_CRC, .receive = IBV_WC_GENERAL_ERR),
    WRONG(a_message_out_of_order, IWARP_SEND, 100, .msn = 1, .refusal = IWARP_UNTAGGED_MSN,
          .receive = IBV_WC_WR_FLUSH_ERR),
    WRONG(an_answer_that_nobody_asked_for, IWARP_READ_RESPONSE, 100,
          .refusal = IWARP_DDP_CATASTROPHIC, .receive = IBV_WC_WR_FLUSH_ERR),
    WRONG(an_unknown_key_of_a_write, IWARP_WRITE, 100, .key = 1, .refusal = IWARP_TAGGED_STAG,
          .receive = IBV_WC_WR_FLUSH_ERR, .guessed = true),
    WRONG(an_unknown_key_of_a_large_write, IWARP_WRITE, TCP_PEER_LARGE, .key = 1u << 16,
          .refusal = IWARP_TAGGED_STAG, .receive = IBV_WC_WR_FLUSH_ERR, .guessed = true),
    WRONG(a_key_that_changed_on_the_way, IWARP_WRITE, TCP_PEER_LARGE, .flip = 7, .first = 20000,
          .refusal = IWARP_MPA_CRC, .receive = IBV_WC_WR_FLUSH_ERR, .guessed = true),
    WRONG(a_right_key_with_an_address_behind_the_end, IWARP_WRITE, 100, .offset = 65536,
          .refusal = IWARP_TAGGED_STAG, .receive = IBV_WC_WR_FLUSH_ERR, .guessed = true),
    WRONG(a_right_key_with_an_address_in_front, IWARP_WRITE, 100, .offset = -1ull,
          .refusal = IWARP_TAGGED_STAG, .receive = IBV_WC_WR_FLUSH_ERR, .guessed = true),
    WRONG(a_key_of_memory_that_is_not_for_peers, IWARP_WRITE, 100, .closed = true,
          .refusal = IWARP_TAGGED_STAG, .receive = IBV_WC_WR_FLUSH_ERR, .guessed = true),
    WRONG(a_key_of_no_window_to_invalidate, IWARP_SEND_INVALIDATE, 100, .closed = true,
          .refusal = IWARP_REMOTE_INVALIDATE, .receive = IBV_WC_LOC_ACCESS_ERR, .guessed = true),
    WRONG(an_unknown_key_to_invalidate, IWARP_SEND_INVALIDATE, 100, .key = 1,
          .refusal = IWARP_REMOTE_INVALIDATE, .receive = IBV_WC_LOC_ACCESS_ERR, .guessed = true),
    BROKEN(an_end_between_frames, 0, false), BROKEN(an_end_in_a_header, 9, false),
    BROKEN(an_end_in_the_middle, 20000, false), BROKEN(a_reset_between_frames, 0, true),
    BROKEN(a_reset_in_the_middle, 20000, true));
