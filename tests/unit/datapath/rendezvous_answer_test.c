/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rendezvous_answer_test.c - how the sender of a large message hears that it is here: by the large message that answers it,
 * or else by a frame for all of a turn; and before the session's end in any case.
 */
#include "core/wire/private_data.h"
#include "datapath/rndv/internal.h"
#include "support/announced.h"

#define BYTES 100000u

static const struct way {
    uint32_t net;
    sluice_rendezvous rendezvous;
    uint32_t bytes;
} ways[] = {
    {SLUICE_SOFT_NET_OFF, SLUICE_RENDEZVOUS_AUTO, RNDV_AT_ONCE},
    {SLUICE_SOFT_NET_OFF, SLUICE_RENDEZVOUS_AUTO, BYTES},
    {SLUICE_SOFT_NET_OFF, SLUICE_RENDEZVOUS_READ, BYTES},
    {SLUICE_SOFT_NET_REQUIRE, SLUICE_RENDEZVOUS_AUTO, BYTES},
};
#define WAYS (sizeof ways / sizeof *ways)

static void open_way(struct pair *p, const struct way *way) {
    memset(p, 0, sizeof *p);
    pair_open(p, PAIR_NODE(.soft_net = way->net, .rendezvous = way->rendezvous), PAIR_LINK());
    pair_connect(p, PAIR_LINK());
    announced_always(p);
    pair_grant_all(p, pair_session(&p->a), pair_session(&p->b));
    pair_grant_all(p, pair_session(&p->b), pair_session(&p->a));
}

/* The next message of one side, whose loop makes no turn behind it; the other one's may have made some. */
static void expect_large(struct pair *p, struct side *side, uint32_t bytes) {
    sluice_event event = pair_expect(p, side, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, bytes, 0));
}

static const struct rndv *rndv_of(struct side *side) {
    return pair_session(side)->rndv;
}

/* A message, answered by one. */
static void exchange(struct pair *p, uint32_t bytes) {
    assert_int_equal(pair_send(&p->b, bytes, 0, NULL), 0);
    expect_large(p, &p->a, bytes);
    assert_int_equal(pair_send(&p->a, bytes, 0, NULL), 0);
    expect_large(p, &p->b, bytes);
}

static uint64_t frames(struct pair *p) {
    return p->a.loop->totals.frames_sent + p->b.loop->totals.frames_sent;
}

TEST(a_large_message_that_is_answered_by_one_needs_no_other_frame) {
    enum { ROUNDS = 100, FIRST = 20 };
    for (unsigned i = 0; i < WAYS; i++) {
        struct pair p;
        open_way(&p, &ways[i]);
        for (unsigned k = 0; k < FIRST; k++)
            exchange(&p, ways[i].bytes);
        uint64_t before = frames(&p);
        for (unsigned k = 0; k < ROUNDS; k++) {
            exchange(&p, ways[i].bytes);
            assert_uint_in_range(rndv_of(&p.a)->out_count, 0, 1);
            assert_uint_in_range(rndv_of(&p.b)->out_count, 0,
                                 2); /* of which one is being taken back */
        }
        assert_int_equal(frames(&p) - before, 2 * ROUNDS);
        pair_close(&p);
    }
}

/* Turns of b alone, until what it announced is its own again. */
static void await_told(struct pair *p) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (rndv_of(&p->b)->out_count > 0) {
        assert_int_equal(sluice_poll(p->b.loop, NULL, 0, 0), 0);
        assert_true(env_now(&env_default) < limit);
        sched_yield();
    }
}

TEST(without_an_answer_it_is_told_in_the_next_turn_and_then_at_once) {
    for (unsigned i = 0; i < WAYS; i++) {
        struct pair p;
        open_way(&p, &ways[i]);
        for (unsigned k = 0; k < 3; k++)
            exchange(&p, ways[i].bytes);
        assert_true(rndv_of(&p.a)->in_kind);
        pair_await(&p, rndv_of(&p.a)->out_count == 0); /* turns of b, which tells */
        assert_int_equal(pair_send(&p.b, ways[i].bytes, 0, NULL), 0);
        expect_large(&p, &p.a, ways[i].bytes);
        assert_int_not_equal(rndv_of(&p.a)->taken, 0);
        assert_int_equal(sluice_poll(p.a.loop, NULL, 0, 0), 0);
        await_told(&p);
        assert_int_equal(pair_send(&p.b, ways[i].bytes, 0, NULL), 0);
        expect_large(&p, &p.a, ways[i].bytes);
        await_told(&p); /* though a makes no turn any more */
        pair_close(&p);
    }
}

/* How many frames tell of messages that were taken in one turn. */
static uint64_t answers_to(struct pair *p, unsigned count) {
    sluice_event events[8];
    uint64_t announced_before = announced(p);
    for (unsigned k = 0; k < count; k++)
        assert_int_equal(pair_send(&p->b, RNDV_AT_ONCE, k, NULL), 0);
    while (announced(p) < announced_before + count)
        assert_int_equal(sluice_poll(p->b.loop, NULL, 0, 0), 0);
    uint64_t before = p->a.loop->totals.frames_sent;
    for (unsigned got = 0; got < count;) {
        int n = sluice_poll(p->a.loop, events, 8, 0);
        assert_true(n >= 0);
        for (int i = 0; i < n; i++)
            assert_true(pair_check(events[i].msg, RNDV_AT_ONCE, got++));
    }
    await_told(p);
    return p->a.loop->totals.frames_sent - before;
}

TEST(messages_of_one_turn_are_told_of_by_one_frame) {
    struct pair p;
    open_way(&p, &ways[0]);
    assert_int_equal(answers_to(&p, 8), 1);
    assert_int_equal(answers_to(&p, 1), 1);
    pair_close(&p);
}

TEST(a_peer_that_knows_no_other_way_is_told_of_each) {
    struct pair p;
    open_way(&p, &ways[0]);
    assert_true(pair_session(&p.a)->connection->cm.rep.features & PRIVATE_DATA_FEATURE_ANSWERS);
    pair_session(&p.a)->connection->cm.rep.features &= ~PRIVATE_DATA_FEATURE_ANSWERS;
    pair_session(&p.b)->connection->cm.rep.features &= ~PRIVATE_DATA_FEATURE_ANSWERS;
    assert_int_equal(answers_to(&p, 8), 8);
    exchange(&p, RNDV_AT_ONCE);
    exchange(&p, RNDV_AT_ONCE);
    assert_int_equal(rndv_of(&p.a)->taken, 0);
    pair_close(&p);
}

/* As if it had come in a frame: what was delivered before the receiver closed was delivered. */
TEST(what_was_taken_is_told_before_the_session_ends) {
    for (unsigned i = 0; i < WAYS; i++) {
        struct pair p;
        sluice_event event = {0};
        open_way(&p, &ways[i]);
        for (unsigned k = 0; k < 3; k++)
            exchange(&p, ways[i].bytes);
        pair_await(&p, rndv_of(&p.a)->out_count == 0);
        assert_int_equal(pair_send(&p.b, ways[i].bytes, 0, SLUICE_SEND(.tag = 7)), 0);
        expect_large(&p, &p.a, ways[i].bytes);
        assert_int_not_equal(rndv_of(&p.a)->taken, 0);
        uint32_t credits = pair_session(&p.a)->connection->tx.credits;
        pair_session(&p.a)->connection->tx.credits = 0; /* it cannot be told at once */
        sluice_hangup(p.a.session, PAIR_LIMIT_NS);
        pair_turns(&p, 20);
        pair_session(&p.a)->connection->tx.credits += credits;
        assert_true(pair_next(&p, &p.b, &event));
        assert_int_equal(event.type, SLUICE_SENT);
        assert_int_equal(event.status, SLUICE_OK);
        pair_expect(&p, &p.b, SLUICE_CLOSED);
        pair_close(&p);
    }
}
