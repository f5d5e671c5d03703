/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rendezvous_alone_test.c - over TCP a large message goes in frames while nothing else of its side is on its way: an
 * announcement costs two round trips, which then nothing hides. What is behind another is announced, so that a stream is
 * as fast as before.
 */
#include "datapath/rndv/internal.h"
#include "datapath/tx/post.h"
#include "support/announced.h"
#include "support/rows.h"

#define BYTES 100000u
#define CREDITS 64u

static struct pair pair;

static void open_with(const sluice_node_options *o) {
    memset(&pair, 0, sizeof pair);
    pair_open(&pair, o, PAIR_LINK(.credits = CREDITS));
    pair_connect(&pair, PAIR_LINK(.credits = CREDITS));
    pair_grant_all(&pair, pair_session(&pair.b), pair_session(&pair.a));
    pair_grant_all(&pair, pair_session(&pair.a), pair_session(&pair.b));
}

static void take(struct side *side, uint32_t bytes, uint64_t seed) {
    sluice_msg *msg = pair_expect(&pair, side, SLUICE_MESSAGE).msg;
    assert_true(pair_check(msg, bytes, seed));
    sluice_free(msg);
}

/* ---- which ------------------------------------------------------------------------------------------------------- */

static void nothing(struct session *b) {
    (void)b;
}

static void has_few_credits(struct session *b) {
    b->connection->tx.credits = BYTES / b->tx.frame_payload + 1 + b->connection->tx.reserve;
}

static void has_just_enough(struct session *b) {
    b->connection->tx.credits = BYTES / b->tx.frame_payload + 2 + b->connection->tx.reserve;
}

static void has_one_on_its_way(struct session *b) {
    (void)b;
    assert_int_equal(pair_send(&pair.b, 100, 1, NULL), 0);
}

static void has_one_announced(struct session *b) {
    uint64_t max = b->tx.alone_max;
    b->tx.alone_max = 0;
    announced_send(&pair, BYTES);
    b->tx.alone_max = max;
    b->connection->tx.acked = b->connection->tx.sequence; /* a frame of its peer may say so */
}

struct state {
    sluice_node_options node;
    void (*before)(struct session *b);
    uint32_t bytes; /* 0: BYTES */
    bool announced;
};

static void a_large_message(void **state) {
    const struct state *is = *state;
    uint32_t bytes = is->bytes ? is->bytes : BYTES;
    sluice_node_options o = is->node;
    open_with(&o);
    is->before(pair_session(&pair.b));
    uint64_t before = announced(&pair);
    assert_int_equal(pair_send(&pair.b, bytes, 7, NULL), 0);
    for (unsigned turns = 0; turns < 3; turns++) /* the peer's loop stands still */
        assert_int_equal(sluice_poll(pair.b.loop, NULL, 0, 0), 0);
    assert_int_equal(announced(&pair) - before, is->announced);
    if (is->before == has_one_on_its_way)
        take(&pair.a, 100, 1);
    if (is->before == has_one_announced)
        take(&pair.a, BYTES, 0);
    take(&pair.a, bytes, 7);
    pair_close(&pair);
}

/* ---- again and again --------------------------------------------------------------------------------------------- */

/* Each answers the other: what was sent before has arrived, as the answer says. */
TEST(large_messages_that_answer_each_other_go_in_frames) {
    open_with(PAIR_NODE(.soft_net = SLUICE_SOFT_NET_REQUIRE));
    for (unsigned k = 0; k < 50; k++) {
        assert_int_equal(pair_send(&pair.b, BYTES, k, NULL), 0);
        take(&pair.a, BYTES, k);
        assert_int_equal(pair_send(&pair.a, BYTES, k, NULL), 0);
        take(&pair.b, BYTES, k);
    }
    assert_null(pair_session(&pair.a)->rndv);
    assert_null(pair_session(&pair.b)->rndv);
    pair_close(&pair);
}

/* One that waits for nothing is announced, but for the first. */
TEST(large_messages_of_a_stream_are_announced) {
    enum { MESSAGES = 20 };
    open_with(PAIR_NODE(.soft_net = SLUICE_SOFT_NET_REQUIRE));
    for (unsigned k = 0; k < MESSAGES; k++)
        assert_int_equal(pair_send(&pair.b, BYTES, k, NULL), 0);
    while (announced(&pair) < MESSAGES - 1)
        assert_int_equal(sluice_poll(pair.b.loop, NULL, 0, 0), 0);
    for (unsigned k = 0; k < MESSAGES; k++)
        take(&pair.a, BYTES, k);
    assert_int_equal(announced(&pair), MESSAGES - 1);
    pair_close(&pair);
}

TEST(large_messages_that_wait_together_are_announced) {
    open_with(PAIR_NODE(.soft_net = SLUICE_SOFT_NET_REQUIRE));
    for (unsigned k = 0; k < 3; k++)
        assert_int_equal(pair_send(&pair.b, BYTES, k, SLUICE_SEND(.flags = SLUICE_MORE)), 0);
    for (unsigned k = 0; k < 3; k++)
        take(&pair.a, BYTES, k);
    assert_int_equal(announced(&pair), 3);
    pair_close(&pair);
}

#define TCP .soft_net = SLUICE_SOFT_NET_REQUIRE
#define MOST (256u << 10)

TEST(the_credits_of_every_session_carry_the_largest) {
    memset(&pair, 0, sizeof pair);
    pair_open(&pair, PAIR_NODE(TCP), PAIR_LINK());
    pair_connect(&pair, PAIR_LINK());
    pair_grant_all(&pair, pair_session(&pair.b), pair_session(&pair.a));
    uint64_t before = announced(&pair);
    assert_int_equal(pair_send(&pair.b, MOST, 7, NULL), 0);
    take(&pair.a, MOST, 7);
    assert_int_equal(announced(&pair), before);
    pair_close(&pair);
}

TEST_CASES(ROW(a_large_message_goes_in_frames, a_large_message, state, {TCP}, nothing, 0, false),
           ROW(the_largest_does, a_large_message, state, {TCP}, nothing, MOST, false),
           ROW(a_larger_one_is_announced, a_large_message, state, {TCP}, nothing, MOST + 1, true),
           ROW(its_credits_just_suffice, a_large_message, state, {TCP}, has_just_enough, 0, false),
           ROW(its_credits_do_not_suffice, a_large_message, state, {TCP}, has_few_credits, 0, true),
           ROW(another_is_on_its_way, a_large_message, state, {TCP}, has_one_on_its_way, 0, true),
           ROW(another_is_announced, a_large_message, state, {TCP}, has_one_announced, 0, true),
           ROW(the_size_was_chosen, a_large_message, state, {TCP, .rendezvous_bytes = 50000},
               nothing, 0, true),
           ROW(the_way_was_chosen, a_large_message, state,
               {TCP, .rendezvous = SLUICE_RENDEZVOUS_WRITE}, nothing, 0, true),
           ROW(the_peer_shares_memory, a_large_message, state, {.soft_net = SLUICE_SOFT_NET_OFF},
               nothing, 0, true));
