/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_words_test.c - the device's own call for a few words (soft_post_words): as an inline SEND of them by
 * ibv_post_send(), or nothing happened.
 */
#include "support/softverbs.h"
#include "support/softverbs_tcp.h"

#define ROOM 2048u /* of a receive */

static const uint64_t words[SOFT_WORDS] = {1,    20, 300, 4000, 5,  60, 700,
                                           8000, 9,  10,  11,   12, 13, UINT64_MAX};

static void open_pair(struct sv_end *a, struct sv_end *b) {
    const struct sv_options o = SV_OPTIONS(.sends = 8);
    sv_pair(a, o, b, o);
    sv_wait_linked(a);
    sv_wait_linked(b);
}

static int post(struct sv_end *a, unsigned count, bool signalled, uint64_t wr_id) {
    return soft_post_words(a->qp, words, count, signalled, wr_id);
}

/* It is taken, at the latest when the engine let go of the queue pair: the call does not wait for its lock. */
static void put(struct sv_end *a, unsigned count, bool signalled, uint64_t wr_id) {
    int rc = EAGAIN;
    sv_until((rc = post(a, count, signalled, wr_id)) != EAGAIN);
    assert_int_equal(rc, 0);
}

TEST(words_arrive_as_one_message) {
    struct sv_end a, b;
    open_pair(&a, &b);
    for (unsigned count = 0; count <= SOFT_WORDS; count++) {
        memset(b.buf, 0xee, ROOM);
        assert_int_equal(sv_recv(&b, count, 0, ROOM), 0);
        put(&a, count, true, count);
        struct ibv_wc wc = sv_poll(b.rcq);
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.byte_len, count * sizeof *words);
        assert_memory_equal(b.buf, words, wc.byte_len);
        assert_int_equal(b.buf[wc.byte_len], 0xee);
        wc = sv_poll(a.scq);
        assert_true(wc.status == IBV_WC_SUCCESS && wc.wr_id == count && wc.opcode == IBV_WC_SEND);
    }
    sv_unpair(&a, &b);
}

/* As with ibv_post_send(), and in order with it. */
TEST(only_the_last_one_is_signalled) {
    struct sv_end a, b;
    open_pair(&a, &b);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(sv_recv(&b, i, i * ROOM, ROOM), 0);
    put(&a, 3, false, 0);
    assert_int_equal(sv_send(&a, 1, 0, 8, 0), 0);
    put(&a, 5, false, 2);
    assert_int_equal(sv_send(&a, 3, 0, 48, IBV_SEND_SIGNALED), 0);
    static const uint32_t bytes[] = {24, 8, 40, 48};
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(sv_poll(b.rcq).byte_len, bytes[i]);
    assert_int_equal(sv_poll(a.scq).wr_id, 3);
    sv_stays_empty(a.scq, b.rcq);
    sv_unpair(&a, &b);
}

TEST(what_does_not_fit_is_not_begun) {
    struct sv_end a, b;
    open_pair(&a, &b);
    const unsigned queue = a.cap.max_send_wr;
    assert_int_equal(post(&a, SOFT_WORDS + 1, true, 0), EAGAIN);
    for (unsigned i = 0; i < queue; i++)
        put(&a, 2, true, i);
    assert_int_equal(post(&a, 2, true, queue), EAGAIN);
    for (unsigned i = 0; i < queue; i++) {
        assert_int_equal(sv_recv(&b, i, 0, ROOM), 0);
        assert_int_equal(sv_poll(b.rcq).byte_len, 2 * sizeof *words);
        assert_int_equal(sv_poll(a.scq).wr_id, i);
    }
    sv_stays_empty(a.scq, b.rcq);
    sv_unpair(&a, &b);
}

TEST(a_full_ring_takes_none) {
    const struct sv_options o = SV_OPTIONS(.sends = 2 * SOFT_RING_SLOTS);
    struct sv_end a, b;
    sv_pair(&a, o, &b, o);
    sv_wait_linked(&a);
    for (unsigned i = 0; i < SOFT_RING_SLOTS; i++)
        put(&a, 1, false, i);
    assert_int_equal(post(&a, 1, false, SOFT_RING_SLOTS), EAGAIN);
    assert_int_equal(sv_slots_written(&a), SOFT_RING_SLOTS);
    sv_unpair(&a, &b);
}

TEST(a_queue_pair_that_ended_takes_none) {
    struct sv_end a, b;
    open_pair(&a, &b);
    assert_int_equal(sv_to(&a, IBV_QPS_ERR), 0);
    assert_int_equal(post(&a, 2, true, 1), EAGAIN);
    sv_stays_empty(a.scq, b.rcq);
    sv_unpair(&a, &b);
}

TEST(over_tcp_there_is_no_such_call) {
    static const struct tcp_options o = {.extended = true};
    struct tcp_pair p;
    tcp_open(&p, &o);
    tcp_recv(&p, 0, 0, ROOM, 1);
    assert_int_equal(post(&p.a, 2, true, 1), EAGAIN);
    sv_stays_empty(p.a.scq, p.b.rcq);
    tcp_close(&p);
}
