/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_peer_test.c - a queue pair over TCP whose peer is played by hand: frames that are wrong, connections that break in the
 * middle, bytes that come slowly or not at all, and memory that goes away while they do.
 */
#include "support/softverbs_tcp.h"

#include <poll.h>

#include "soft/iwarp/ddp.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/iwarp/terminate.h"
#include "soft/verbs/mw.h"
#include "support/iwarp.h"
#include "support/rows.h"

#define LARGE 40000u
#define RECEIVES 2u
#define TARGET 65536u /* where its memory for the peer begins */

static struct sv_end e;
static struct ibv_mr *open_mr;
static int peer;
static uint8_t payload[LARGE], frame[65536];

static void open_buffer(int buffer) {
    int fd[2];
    tcp_sockets(fd, buffer);
    peer = fd[1];
    sv_open(&e, SV_OPTIONS(.bytes = 4 * 65536));
    tcp_connect(&e, fd[0], &(struct tcp_options){.crc = true});
    open_mr = soft_reg_mr(e.pd, e.buf + TARGET, 65536,
                          IBV_ACCESS_LOCAL_WRITE | TCP_REMOTE | IBV_ACCESS_MW_BIND);
    must(open_mr);
    for (unsigned i = 0; i < RECEIVES; i++)
        must(sv_recv(&e, i, 0, LARGE) == 0);
    sv_fill(payload, LARGE, 1);
}

static int open_plain(void **state) {
    (void)state;
    open_buffer(0);
    return 0;
}

static int open_narrow(void **state) {
    (void)state;
    open_buffer(4096);
    return 0;
}

static int shut(void **state) {
    (void)state;
    if (e.qp)
        must(soft_destroy_qp(e.qp) == 0);
    e.qp = NULL;
    if (open_mr)
        must(soft_dereg_mr(open_mr) == 0);
    sv_close(&e);
    close(peer);
    return 0;
}

static void say_bytes(const uint8_t *from, size_t bytes) {
    assert_int_equal(send(peer, from, bytes, MSG_NOSIGNAL), bytes);
}

static struct iwarp_ddp message(uint8_t opcode) {
    bool tagged = iwarp_opcode_tagged(opcode);
    struct iwarp_ddp ddp = {.opcode = opcode, .last = true};
    if (!tagged) {
        ddp.queue = iwarp_opcode_queue(opcode);
        ddp.msn = 1;
        return ddp;
    }
    ddp.stag = open_mr->rkey;
    ddp.offset = (uintptr_t)open_mr->addr;
    return ddp;
}

static uint8_t placed(const uint8_t *at) {
    struct soft_qp *qp = soft_qp_of(e.qp);
    spin_lock(&qp->lock);
    uint8_t value = *at;
    spin_unlock(&qp->lock);
    return value;
}

/* So much has come. */
static void wait_taken(const uint8_t *last, uint8_t value) {
    sv_until(placed(last) == value);
}

/* The last it says is this Terminate, 0: none; then it ends. */
static void expect_end(unsigned refusal) {
    struct iwarp_end *end = iwarp_end(0, true, false);
    uint8_t bytes[4096];
    char what[64];
    for (;;) {
        struct pollfd fd = {.fd = peer, .events = POLLIN};
        assert_int_equal(poll(&fd, 1, 20000), 1);
        ssize_t n = recv(peer, bytes, sizeof bytes, 0);
        if (n <= 0)
            break;
        iwarp_end_feed(end, bytes, (size_t)n, (size_t)n, 0, false);
    }
    snprintf(what, sizeof what, "terminated %x,", refusal);
    if (refusal ? !strstr(end->log, what) : strstr(end->log, "terminated") != NULL)
        fail_msg("expected %x, it said: %s", refusal, end->log);
    free(end);
}

static void flushed_from(unsigned first) {
    for (unsigned i = first; i < RECEIVES; i++)
        tcp_expect(e.rcq, i, IBV_WC_WR_FLUSH_ERR);
    tcp_wait_down(&e);
}

/* ---- frames that are wrong ------------------------------------------------------------------------------- */

struct wrong {
    uint8_t opcode;
    size_t bytes, flip; /* flip: this byte of the frame is changed; 0: none */
    size_t first;       /* it comes in two parts; 0: at once */
    uint32_t msn, key;  /* added */
    unsigned refusal;
    enum ibv_wc_status receive;
};

static void it_ends_with_its_terminate(void **state) {
    const struct wrong *wrong = *state;
    struct iwarp_ddp ddp = message(wrong->opcode);
    ddp.msn += wrong->msn;
    ddp.stag += wrong->key;
    size_t bytes = iwarp_frame(frame, &ddp, payload, wrong->bytes);
    if (wrong->flip)
        frame[wrong->flip] ^= 0x10;
    if (wrong->first) {
        say_bytes(frame, wrong->first);
        wait_taken(e.buf + 4095, sv_byte(4095, 1));
    }
    say_bytes(frame + wrong->first, bytes - wrong->first);
    expect_end(wrong->refusal);
    tcp_expect(e.rcq, 0, wrong->receive);
    flushed_from(1);
}

/* ---- connections that break ------------------------------------------------------------------------------ */

struct broken {
    size_t bytes; /* of a frame of LARGE bytes that arrive */
    bool reset;
};

static void a_connection_that_breaks_ends_it(void **state) {
    const struct broken *broken = *state;
    struct ibv_sge sge = sv_sge(&e, 3 * 65536, 100);
    struct ibv_send_wr *bad, wr = {.wr_id = 7,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_READ,
                                   .send_flags = IBV_SEND_SIGNALED};
    struct iwarp_ddp ddp = message(IWARP_SEND);
    iwarp_frame(frame, &ddp, payload, LARGE);
    assert_int_equal(ibv_post_send(e.qp, &wr, &bad), 0);
    assert_int_equal(sv_send(&e, 8, 0, 64, IBV_SEND_SIGNALED), 0);
    say_bytes(frame, broken->bytes);
    if (broken->bytes > 5000)
        wait_taken(e.buf + 4095, sv_byte(4095, 1));
    if (broken->reset) {
        struct linger now = {.l_onoff = 1};
        assert_int_equal(setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
        close(peer);
        peer = -1;
    } else {
        assert_int_equal(shutdown(peer, SHUT_WR), 0);
    }
    tcp_expect(e.scq, 7, IBV_WC_RETRY_EXC_ERR);
    tcp_expect(e.scq, 8, IBV_WC_WR_FLUSH_ERR);
    flushed_from(0);
    if (!broken->reset)
        expect_end(0);
}

/* More messages than receives: nothing is read any more. */
static void say_too_many(void) {
    for (unsigned i = 0; i < RECEIVES + 3; i++) {
        struct iwarp_ddp ddp = message(IWARP_SEND);
        ddp.msn += i;
        say_bytes(frame, iwarp_frame(frame, &ddp, payload, 30000));
    }
    for (unsigned i = 0; i < RECEIVES; i++)
        tcp_expect(e.rcq, i, IBV_WC_SUCCESS);
    sv_until(atomic_load(&soft_qp_of(e.qp)->rx_stalled));
}

static void a_reset_is_heard_while_nothing_is_read(void **state) {
    (void)state;
    say_too_many();
    struct linger now = {.l_onoff = 1};
    assert_int_equal(setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    close(peer);
    peer = -1;
    uint64_t since = soft_now_ns();
    tcp_wait_down(&e);
    assert_true(soft_now_ns() - since < 4000000000ull); /* before the patience for a receive ends */
}

/* What the peer sent and nobody read does not make a reset of the end. */
static void an_end_with_bytes_unread_is_no_reset(void **state) {
    (void)state;
    uint8_t byte;
    say_too_many();
    assert_int_equal(soft_destroy_qp(e.qp), 0);
    e.qp = NULL;
    struct pollfd fd = {.fd = peer, .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 20000), 1);
    assert_int_equal(recv(peer, &byte, 1, 0), 0);
}

static void a_socket_is_closed_whatever_the_peer_does(void **state) {
    (void)state;
    unsigned before = sv_fds();
    assert_int_equal(soft_destroy_qp(e.qp), 0);
    e.qp = NULL;
    sv_until(sv_fds() == before - 1);
}

/* A frame that does not go on: 20 s ago it should have. */
static void who_does_not_go_on_is_cut_off(void **state) {
    (void)state;
    struct soft_qp *qp = soft_qp_of(e.qp);
    struct iwarp_ddp ddp = message(IWARP_SEND);
    iwarp_frame(frame, &ddp, payload, LARGE);
    say_bytes(frame, 100);
    bool begun = false;
    do {
        spin_lock(&qp->lock);
        begun = qp->tcp->inside_ns != 0;
        if (begun)
            qp->tcp->inside_ns -= 21000000000ull;
        spin_unlock(&qp->lock);
    } while (!begun);
    expect_end(IWARP_MPA_LOST);
    flushed_from(0);
}

static void bytes_may_come_one_at_a_time(void **state) {
    (void)state;
    struct iwarp_ddp ddp = message(IWARP_SEND);
    struct ibv_wc wc;
    size_t bytes = iwarp_frame(frame, &ddp, payload, 300);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(ibv_poll_cq(e.rcq, 1, &wc), 0);
        say_bytes(frame + i, 1);
    }
    tcp_expect(e.rcq, 0, IBV_WC_SUCCESS);
    sv_check(e.buf, 300, 1);
}

/* ---- READs without an end -------------------------------------------------------------------------------- */

static size_t say_read(uint32_t msn, uint32_t bytes) {
    struct iwarp_read read = {
        .bytes = bytes, .source_stag = open_mr->rkey, .source_offset = (uintptr_t)open_mr->addr};
    struct iwarp_ddp ddp = message(IWARP_READ_REQUEST);
    uint8_t request[IWARP_READ_BYTES];
    ddp.msn = msn;
    iwarp_read_put(request, &read);
    size_t n = iwarp_frame(frame, &ddp, request, sizeof request);
    say_bytes(frame, n);
    return n;
}

/* Their number is bounded, and no answer is made before the one in front of it went. */
static void a_storm_of_reads_ends_it(void **state) {
    (void)state;
    for (unsigned i = 1; i <= 20; i++)
        (void)say_read(i, 65536);
    flushed_from(0);
}

/* ---- memory that goes away ------------------------------------------------------------------------------- */

/* All of a frame but its last bytes, of which the first are in place. */
static size_t say_most(uint8_t opcode, const uint8_t *place) {
    struct iwarp_ddp ddp = message(opcode);
    size_t bytes = iwarp_frame(frame, &ddp, payload, LARGE);
    say_bytes(frame, bytes - 10000);
    wait_taken(place + LARGE - 11000, sv_byte(LARGE - 11000, 1));
    return bytes - 10000;
}

static void a_write_ends_with_the_key_that_it_used(void **state) {
    (void)state;
    size_t said = say_most(IWARP_WRITE, e.buf + TARGET);
    assert_int_equal(soft_dereg_mr(open_mr), 0);
    open_mr = NULL;
    memset(e.buf + TARGET, 0xee, LARGE);
    (void)send(peer, frame + said, 10000, MSG_NOSIGNAL);
    expect_end(IWARP_TAGGED_STAG);
    flushed_from(0);
    for (unsigned i = 0; i < LARGE; i++)
        assert_int_equal(e.buf[TARGET + i], 0xee);
    struct ibv_async_event event;
    assert_int_equal(soft_get_async_event(e.ctx, &event), 0);
    assert_int_equal(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
    soft_ack_async_event(&event);
}

static void post_other(struct ibv_send_wr wr, uint64_t wr_id) {
    struct ibv_send_wr *bad;
    wr.wr_id = wr_id;
    wr.send_flags = IBV_SEND_SIGNALED;
    assert_int_equal(ibv_post_send(e.qp, &wr, &bad), 0);
    tcp_expect(e.scq, wr_id, IBV_WC_SUCCESS);
}

static void a_window_that_is_taken_back_is_written_no_more(void **state) {
    (void)state;
    struct ibv_mw *mw = soft_alloc_mw(e.pd, IBV_MW_TYPE_2);
    assert_non_null(mw);
    uint32_t rkey = mw->rkey ^ 1;
    post_other((struct ibv_send_wr){.opcode = IBV_WR_BIND_MW,
                                    .bind_mw = {.mw = mw,
                                                .rkey = rkey,
                                                .bind_info = {open_mr, (uintptr_t)e.buf + TARGET,
                                                              65536, IBV_ACCESS_REMOTE_WRITE}}},
               5);
    struct iwarp_ddp ddp = message(IWARP_WRITE);
    ddp.stag = rkey;
    size_t bytes = iwarp_frame(frame, &ddp, payload, LARGE);
    say_bytes(frame, bytes - 10000);
    wait_taken(e.buf + TARGET + LARGE - 11000, sv_byte(LARGE - 11000, 1));
    post_other((struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = rkey}, 6);
    memset(e.buf + TARGET, 0xee, LARGE);
    say_bytes(frame + bytes - 10000, 10000);
    expect_end(IWARP_TAGGED_STAG);
    flushed_from(0);
    for (unsigned i = 0; i < LARGE; i++)
        assert_int_equal(e.buf[TARGET + i], 0xee);
    assert_int_equal(soft_dealloc_mw(mw), 0);
}

static void a_receive_that_goes_away_is_filled_no_more(void **state) {
    (void)state;
    struct ibv_mr *mr = e.mr;
    size_t said = say_most(IWARP_SEND, e.buf);
    assert_int_equal(soft_dereg_mr(mr), 0);
    memset(e.buf, 0xee, LARGE);
    say_bytes(frame + said, 10000);
    expect_end(IWARP_LOCAL_CATASTROPHIC);
    tcp_expect(e.rcq, 0, IBV_WC_LOC_PROT_ERR);
    flushed_from(1);
    for (unsigned i = 0; i < LARGE; i++)
        assert_int_equal(e.buf[i], 0xee);
    e.mr = soft_reg_mr(e.pd, e.buf, 65536, IBV_ACCESS_LOCAL_WRITE);
}

static void where_a_read_goes_is_filled_no_more(void **state) {
    (void)state;
    struct ibv_sge sge = sv_sge(&e, 0, LARGE);
    struct ibv_send_wr *bad, wr = {.wr_id = 7,
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_RDMA_READ,
                                   .send_flags = IBV_SEND_SIGNALED};
    assert_int_equal(ibv_post_send(e.qp, &wr, &bad), 0);
    struct iwarp_ddp ddp = {.opcode = IWARP_READ_RESPONSE, .last = true}; /* to the first request */
    size_t bytes = iwarp_frame(frame, &ddp, payload, LARGE);
    say_bytes(frame, bytes - 10000);
    wait_taken(e.buf + LARGE - 11000, sv_byte(LARGE - 11000, 1));
    assert_int_equal(soft_dereg_mr(e.mr), 0);
    memset(e.buf, 0xee, LARGE);
    say_bytes(frame + bytes - 10000, 10000);
    tcp_expect(e.scq, 7, IBV_WC_LOC_PROT_ERR);
    flushed_from(0);
    for (unsigned i = 0; i < LARGE; i++)
        assert_int_equal(e.buf[i], 0xee);
    e.mr = soft_reg_mr(e.pd, e.buf, 65536, IBV_ACCESS_LOCAL_WRITE);
}

/* Nothing of it is read after the call: the peer takes what it likes, later. */
static void memory_that_is_being_sent_ends_it(void **state) {
    (void)state;
    struct ibv_mr *mr = e.mr;
    for (unsigned i = 0; i < 60; i++)
        assert_int_equal(sv_send(&e, i, 65536, 65536, 0), 0);
    assert_int_equal(soft_dereg_mr(mr), 0);
    tcp_wait_down(&e);
    e.mr = soft_reg_mr(e.pd, e.buf, 65536, IBV_ACCESS_LOCAL_WRITE);
}

static void an_answer_ends_with_the_key_that_it_used(void **state) {
    (void)state;
    for (unsigned i = 1; i <= 4; i++)
        (void)say_read(i, 65536);
    struct soft_qp *qp = soft_qp_of(e.qp);
    uint32_t asked;
    do { /* all are there, and the socket is full */
        spin_lock(&qp->lock);
        asked = qp->answer_tail;
        spin_unlock(&qp->lock);
    } while (asked < 4);
    assert_int_equal(soft_dereg_mr(open_mr), 0);
    open_mr = NULL;
    flushed_from(0);
}

static void it_may_be_destroyed_in_the_middle(void **state) {
    (void)state;
    (void)say_most(IWARP_SEND, e.buf);
    for (unsigned i = 0; i < 60; i++)
        assert_int_equal(sv_send(&e, i, 65536, 65536, 0), 0);
    assert_int_equal(soft_destroy_qp(e.qp), 0);
    e.qp = NULL;
}

#define WITH(open, fn) cmocka_unit_test_setup_teardown(fn, open, shut)
#define WRONG(name, ...)                                                                           \
    ROW_WITH(open_plain, shut, name, it_ends_with_its_terminate, wrong, __VA_ARGS__)
#define BROKEN(name, ...)                                                                          \
    ROW_WITH(open_plain, shut, name, a_connection_that_breaks_ends_it, broken, __VA_ARGS__)

int main(void) {
    const struct CMUnitTest tests[] = {
        WRONG(a_changed_byte, IWARP_SEND, 100, .flip = 50, .refusal = IWARP_MPA_CRC,
              .receive = IBV_WC_WR_FLUSH_ERR),
        WRONG(a_changed_byte_of_a_message_that_has_begun, IWARP_SEND, LARGE, .flip = 30000,
              .first = 20000, .refusal = IWARP_MPA_CRC, .receive = IBV_WC_GENERAL_ERR),
        WRONG(a_message_out_of_order, IWARP_SEND, 100, .msn = 1, .refusal = IWARP_UNTAGGED_MSN,
              .receive = IBV_WC_WR_FLUSH_ERR),
        WRONG(an_answer_that_nobody_asked_for, IWARP_READ_RESPONSE, 100,
              .refusal = IWARP_DDP_CATASTROPHIC, .receive = IBV_WC_WR_FLUSH_ERR),
        WRONG(an_unknown_key_of_a_write, IWARP_WRITE, 100, .key = 1, .refusal = IWARP_TAGGED_STAG,
              .receive = IBV_WC_WR_FLUSH_ERR),
        WRONG(an_unknown_key_to_invalidate, IWARP_SEND_INVALIDATE, 100, .key = 1,
              .refusal = IWARP_REMOTE_INVALIDATE, .receive = IBV_WC_LOC_ACCESS_ERR),
        BROKEN(an_end_between_frames, 0, false),
        BROKEN(an_end_in_a_header, 9, false),
        BROKEN(an_end_in_the_middle, 20000, false),
        BROKEN(a_reset_between_frames, 0, true),
        BROKEN(a_reset_in_the_middle, 20000, true),
        WITH(open_plain, a_reset_is_heard_while_nothing_is_read),
        WITH(open_plain, an_end_with_bytes_unread_is_no_reset),
        WITH(open_plain, a_socket_is_closed_whatever_the_peer_does),
        WITH(open_plain, who_does_not_go_on_is_cut_off),
        WITH(open_plain, bytes_may_come_one_at_a_time),
        WITH(open_narrow, a_storm_of_reads_ends_it),
        WITH(open_plain, a_write_ends_with_the_key_that_it_used),
        WITH(open_plain, a_window_that_is_taken_back_is_written_no_more),
        WITH(open_plain, a_receive_that_goes_away_is_filled_no_more),
        WITH(open_plain, where_a_read_goes_is_filled_no_more),
        WITH(open_narrow, memory_that_is_being_sent_ends_it),
        WITH(open_narrow, an_answer_ends_with_the_key_that_it_used),
        WITH(open_plain, it_may_be_destroyed_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
