/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_qp_calls_test.c - how many system calls the work of a queue pair over TCP takes: whatever is asked for at once goes at
 * once. All threads are counted.
 */
#include "support/softverbs_tcp.h"

#include <stdatomic.h>

#include "soft/iwarp/qp_tcp.h"
#include "soft/object/mw.h"
#include "soft/verbs/mw.h"
#include "support/rows.h"
#include "support/socket_calls.h"

#define AREA (1u << 20)

static struct tcp_pair p;
static atomic_uint calls, bytes_sent, reads;
static _Thread_local unsigned with_payload; /* of this thread */

static void count(long number, ssize_t n) {
    if (n > 0 && (number == SYS_recvfrom || number == SYS_recvmsg))
        atomic_fetch_add(&reads, 1);
    if (n <= 0 || (number != SYS_sendto && number != SYS_sendmsg))
        return;
    atomic_fetch_add(&calls, 1);
    with_payload += n > 64;
    atomic_fetch_add(&bytes_sent, (unsigned)n);
}

struct reads {
    bool crc;
    unsigned bytes, count, most; /* of a READ; of them; calls for each, with its request */
};

static int shut(void **state) {
    (void)state;
    tcp_close(&p);
    return 0;
}

static void the_answer_to_a_read_takes_few_calls(void **state) {
    const struct reads *r = *state;
    tcp_open(&p, &(struct tcp_options){.o = {.bytes = 2 * AREA}, .crc = r->crc, .extended = true});
    struct ibv_send_wr wr = {
        .wr_id = 1,
        .opcode = IBV_WR_RDMA_READ,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)p.b.buf + AREA, .rkey = p.open->rkey}};
    sv_fill(p.b.buf + AREA, r->bytes, 5);
    atomic_store(&calls, 0);
    atomic_store(&bytes_sent, 0);
    for (unsigned i = 0; i < r->count; i++) {
        assert_int_equal(tcp_post(&p, wr, 0, r->bytes, 1), 0);
        tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
    }
    sv_check(p.a.buf, r->bytes, 5);
    assert_true(atomic_load(&bytes_sent) > r->bytes * r->count);
    assert_in_range(atomic_load(&calls), 2 * r->count, r->most * r->count);
}

struct window {
    bool mapped, still;
};

/* Of what may change a copy is summed, in shorter segments. Of what is still none is needed, wherever it lies. */
static void what_is_still_is_answered_from_where_it_lies(void **state) {
    const struct window *w = *state;
    const unsigned bytes = AREA / 4, rights = IBV_ACCESS_REMOTE_READ;
    tcp_open(&p, &(struct tcp_options){
                     .o = {.bytes = AREA, .mapped = w->mapped}, .crc = true, .extended = true});
    struct ibv_mw *mw = soft_alloc_mw(p.b.pd, IBV_MW_TYPE_2);
    assert_non_null(mw);
    uint32_t rkey = mw->rkey ^ 1;
    struct ibv_mw_bind_info info = {p.open, (uintptr_t)p.b.buf, bytes,
                                    rights | (w->still ? SOFT_ACCESS_STILL : 0)};
    assert_int_equal(sv_bind(p.b.qp, mw, rkey, info), 0);
    tcp_expect(p.b.scq, 5, IBV_WC_SUCCESS);
    soft_lock(); /* a segment never gets shorter */
    const unsigned most = soft_qp_of(p.b.qp)->tcp->tx.mulpdu - IWARP_TAGGED_BYTES;
    soft_unlock();
    const unsigned whole = (bytes + most - 1) / most;
    sv_fill(p.b.buf, bytes, 3);
    struct ibv_send_wr wr = {.wr_id = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = (uintptr_t)p.b.buf, .rkey = rkey}};
    assert_int_equal(tcp_post(&p, wr, 0, bytes, 1), 0);
    tcp_expect(p.a.scq, 1, IBV_WC_SUCCESS);
    sv_check(p.a.buf, bytes, 3);
    soft_lock();
    const uint64_t frames = soft_qp_of(p.a.qp)->tcp->rx.frames;
    soft_unlock();
    if (w->still)
        assert_true(frames <= whole);
    else
        assert_true(frames >= bytes / IWARP_TX_LENT_SEGMENT);
    assert_int_equal(soft_dealloc_mw(mw), 0);
}

#define BURST 8u
#define BURSTS 200u

static void open_pair(void) {
    tcp_open(&p, &(struct tcp_options){.crc = true, .extended = true});
}

static void post_burst(void) {
    for (unsigned i = 0; i < BURST; i++) {
        tcp_recv(&p, i, i * 64, 64, 1);
        assert_int_equal(sv_send(&p.a, i, i * 64, 64, i + 1 == BURST ? IBV_SEND_SIGNALED : 0), 0);
    }
}

/* Also those that end with a message of which somebody is told. */
TEST_WITH(NULL, shut, what_is_posted_between_two_polls_goes_together) {
    open_pair();
    with_payload = 0;
    for (unsigned k = 0; k < BURSTS; k++) {
        struct ibv_wc wc;
        post_burst();
        unsigned sent = 0, received = 0;
        sv_until((sent += (unsigned)ibv_poll_cq(p.a.scq, 1, &wc),
                  received += (unsigned)ibv_poll_cq(p.b.rcq, 1, &wc),
                  sent == 1 && received == BURST));
    }
    /* One call each; where the queue pair was quiet, as this thread had no CPU, one for each message. */
    assert_in_range(with_payload, BURSTS, 4 * BURSTS);
}

static unsigned posted, sent, received; /* bursts, signalled messages, messages */

/* a makes a turn. */
static void turn(void) {
    struct ibv_wc wc;
    sent += (unsigned)ibv_poll_cq(p.a.scq, 1, &wc);
}

/* Both ends, until all has come. Returns the calls since this thread began to count. */
static unsigned take_all(void) {
    struct ibv_wc wc;
    sv_until((turn(), received += (unsigned)ibv_poll_cq(p.b.rcq, 1, &wc),
              sent == posted && received == posted * BURST));
    unsigned n = with_payload;
    with_payload = 0;
    return n;
}

static void post_and_count(void) {
    post_burst();
    posted++;
}

static void open_counted(void) {
    posted = sent = received = with_payload = 0;
    open_pair();
}

/* As the messages between the last two turns were many, these are likely to be. */
TEST_WITH(NULL, shut, behind_many_messages_the_first_waits_too) {
    open_counted();
    unsigned alone = 0;
    sv_until((post_and_count(), alone += take_all() == 1, alone >= 20));
}

/* The peer takes much before it can take this one. */
TEST_WITH(NULL, shut, behind_a_large_message_a_small_one_waits_too) {
    const struct soft_tcp *tcp;
    unsigned waited = 0;
    struct ibv_send_wr large = {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE};
    posted = sent = received = with_payload = 0;
    tcp_open(&p, &(struct tcp_options){.o = {.bytes = AREA}, .crc = true, .extended = true});
    tcp = soft_qp_of(p.a.qp)->tcp;
    large.wr.rdma.remote_addr = (uintptr_t)p.b.buf;
    large.wr.rdma.rkey = p.open->rkey;
    for (unsigned i = 1; waited < 20; i++) {
        assert_int_equal(tcp_post(&p, large, 0, AREA / 4, 1), 0);
        turn();
        tcp_recv(&p, i, 0, 64, 1);
        assert_int_equal(sv_send(&p.a, i, 0, 64, IBV_SEND_SIGNALED), 0);
        soft_lock();
        waited += tcp->gathered;
        soft_unlock();
        sv_until((turn(), received += (unsigned)ibv_poll_cq(p.b.rcq, 1, &(struct ibv_wc){0}),
                  sent == i && received == i));
        assert_true(i < 100000);
    }
}

/* Posts a burst, and polls. True: that was a turn that sent nothing, as there is no acknowledgement yet. */
static bool keep_back(void) {
    const struct soft_tcp *tcp = soft_qp_of(p.a.qp)->tcp;
    post_and_count();
    soft_lock();
    uint32_t before = tcp->turns;
    soft_unlock();
    turn();
    soft_lock();
    bool kept = tcp->turns != before && tcp->gathered;
    soft_unlock();
    return kept;
}

TEST_WITH(NULL, shut, what_the_peer_did_not_acknowledge_yet_lets_others_wait) {
    open_counted();
    unsigned kept = 0;
    sv_until((post_and_count(), turn(), kept += keep_back(), (void)take_all(), kept >= 20));
}

/* READs that b has asked for, those of no bytes among them. */
static uint32_t questions(void) {
    soft_lock();
    uint32_t all = soft_qp_of(p.b.qp)->tcp->tx.msn[IWARP_QUEUE_REQUEST];
    soft_unlock();
    return all;
}

/* Behind a message that is acknowledged, and so behind the frame that asked for that. */
TEST_WITH(NULL, shut, a_key_is_taken_back_without_a_question) {
    open_pair();
    struct ibv_mw *mw = soft_alloc_mw(p.b.pd, IBV_MW_TYPE_2);
    assert_non_null(mw);
    uint32_t rkey = mw->rkey ^ 1;
    struct ibv_mw_bind_info info = {p.open, (uintptr_t)p.b.buf, 64, IBV_ACCESS_REMOTE_READ};
    for (unsigned queued = 0; queued < 2;
         queued++) { /* what is in front of it is complete, or not yet */
        assert_int_equal(sv_bind(p.b.qp, mw, rkey, info), 0);
        tcp_expect(p.b.scq, 5, IBV_WC_SUCCESS);
        assert_int_equal(sv_recv(&p.a, 1, 0, 64), 0);
        assert_int_equal(sv_send(&p.b, 1, 0, 64, IBV_SEND_SIGNALED), 0);
        if (!queued)
            tcp_expect(p.b.scq, 1, IBV_WC_SUCCESS);
        tcp_expect(p.a.rcq, 1, IBV_WC_SUCCESS);
        uint32_t before = questions();
        assert_int_equal(sv_invalidate(p.b.qp, rkey), 0);
        if (queued)
            tcp_expect(p.b.scq, 1, IBV_WC_SUCCESS);
        tcp_expect(p.b.scq, 6, IBV_WC_SUCCESS);
        assert_int_equal(questions(), before);
        rkey = ibv_inc_rkey(rkey);
    }
    assert_int_equal(soft_dealloc_mw(mw), 0);
}

/* Messages to and fro, each taken by a first poll: an end acknowledges in the call that sends its own message. */
TEST_WITH(NULL, shut, an_acknowledgement_goes_with_the_answer) {
    enum { ROUNDS = 64 };
    struct ibv_wc wc;
    tcp_open(&p, &(struct tcp_options){.o = {.cqe = 2 * ROUNDS}, .crc = true, .extended = true});
    soft_lock(); /* the engine has no turn */
    atomic_store(&calls, 0);
    for (unsigned k = 0; k < ROUNDS; k++) {
        assert_int_equal(sv_recv(&p.b, k, 0, 64), 0);
        assert_int_equal(sv_recv(&p.a, k, 0, 64), 0);
        assert_int_equal(sv_send(&p.a, k, 0, 64, IBV_SEND_SIGNALED), 0);
        while (ibv_poll_cq(p.b.rcq, 1, &wc) == 0)
            continue;
        assert_int_equal(sv_send(&p.b, k, 0, 64, IBV_SEND_SIGNALED), 0);
        while (ibv_poll_cq(p.a.rcq, 1, &wc) == 0)
            continue;
    }
    unsigned made = atomic_load(&calls);
    soft_unlock();
    assert_in_range(made, 2 * ROUNDS, 2 * ROUNDS + ROUNDS / 8);
    for (unsigned k = 0; k < ROUNDS; k++) {
        tcp_expect(p.a.scq, k, IBV_WC_SUCCESS);
        tcp_expect(p.b.scq, k, IBV_WC_SUCCESS);
    }
}

/* Best of some tries, as the socket may have less room at first. */
TEST_WITH(NULL, shut, a_message_of_64_kib_is_one_read) {
    enum { BYTES = 65536 };
    struct ibv_wc wc;
    tcp_open(&p, &(struct tcp_options){.o = {.bytes = BYTES}, .crc = true, .extended = true});
    unsigned best = UINT32_MAX;
    for (unsigned k = 0; k < 50 && best > 1; k++) {
        assert_int_equal(sv_recv(&p.b, k, 0, BYTES), 0);
        soft_lock(); /* the engine has no turn */
        atomic_store(&reads, 0);
        assert_int_equal(sv_send(&p.a, k, 0, BYTES, IBV_SEND_SIGNALED), 0);
        while (ibv_poll_cq(p.b.rcq, 1, &wc) == 0)
            continue;
        best = atomic_load(&reads) < best ? atomic_load(&reads) : best;
        soft_unlock();
        tcp_expect(p.a.scq, k, IBV_WC_SUCCESS);
    }
    assert_int_equal(best, 1);
}

/* By the engine: nobody polls the sender's CQs. */
TEST_WITH(NULL, shut, what_is_posted_goes_without_a_poll) {
    open_pair();
    for (unsigned k = 0; k < 20; k++) {
        post_burst();
        for (unsigned i = 0; i < BURST; i++)
            tcp_expect(p.b.rcq, i, IBV_WC_SUCCESS);
        tcp_expect(p.a.scq, BURST - 1, IBV_WC_SUCCESS);
    }
}

/* To a peer that is not this device, too, where nothing is said last. */
TEST_WITH(NULL, shut, what_was_posted_goes_before_the_end) {
    tcp_open(&p, &(struct tcp_options){.crc = true});
    post_burst();
    assert_int_equal(sv_to(&p.a, IBV_QPS_ERR), 0);
    for (unsigned i = 0; i < BURST; i++)
        tcp_expect(p.b.rcq, i, IBV_WC_SUCCESS);
}

#define WINDOW(name, ...)                                                                          \
    ROW_WITH(NULL, shut, what_is_still_is_answered_from_where_it_lies__##name,                     \
             what_is_still_is_answered_from_where_it_lies, window, __VA_ARGS__)
#define READS(name, ...)                                                                           \
    ROW_WITH(NULL, shut, the_answer_to_a_read_takes_few_calls__##name,                             \
             the_answer_to_a_read_takes_few_calls, reads, __VA_ARGS__)

TEST_CASES(READS(of_8_kib, true, 8192, 50, 3), READS(of_64_kib, true, 65536, 50, 4),
           READS(of_a_mib, true, AREA, 20, 20),
           READS(of_a_mib_without_check_values, false, AREA, 20, 20),
           WINDOW(memory_of_the_device, true, true), WINDOW(memory_of_the_program, false, true),
           WINDOW(memory_that_may_change, true, false));

int main(void) {
    socket_call_made = count;
    return tests_run(NULL, NULL);
}
