/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rendezvous_numbers_test.c - which messages are announced, and how many at a time. Through memory that both sides share all
 * are that do not fit a frame, and nearly all where they have to be READ, and few at a time keep the receiver busy. Over TCP an
 * announcement costs two round trips, and behind it others are on their way; a peer of before knows of few numbers.
 */
#include "core/wire/private_data.h"
#include "datapath/rndv/internal.h"
#include "datapath/rndv/rndv.h"
#include "support/announced.h"

#define BYTES 100000u
#define MESSAGES 40u

static const struct way {
    uint32_t net;
    bool older; /* the peer: it knows of few numbers, and reads */
    unsigned numbers;
    uint32_t whole; /* bytes of the largest message that is not announced */
} ways[] = {
    {SLUICE_SOFT_NET_OFF, false, 16, (8u << 10) - FRAME_BYTES},
    {SLUICE_SOFT_NET_OFF, true, 16, 8u << 10},
    {SLUICE_SOFT_NET_REQUIRE, true, 16, 32u << 10},
    {SLUICE_SOFT_NET_REQUIRE, false, 32, 32u << 10},
};
#define WAYS (sizeof ways / sizeof *ways)

static void open_way(struct pair *p, const struct way *way) {
    memset(p, 0, sizeof *p);
    pair_open(p, PAIR_NODE(.soft_net = way->net), PAIR_LINK(.credits = 2 * MESSAGES));
    pair_connect(p, PAIR_LINK(.credits = 2 * MESSAGES));
    struct session *a = pair_session(&p->a), *b = pair_session(&p->b);
    assert_true(a->connection->cm.rep.features & PRIVATE_DATA_FEATURE_NUMBERS);
    if (way->older) {
        a->connection->cm.rep.features &= ~PRIVATE_DATA_FEATURE_NUMBERS;
        b->connection->cm.rep.features &= ~PRIVATE_DATA_FEATURE_NUMBERS;
        b->connection->shares = false;
        b->tx.rndv_above = rndv_threshold(b);
    }
    announced_always(p);
    pair_grant_all(p, b, a);
}

TEST(as_many_are_announced_as_keep_the_way_busy) {
    for (unsigned i = 0; i < WAYS; i++) {
        struct pair p;
        open_way(&p, &ways[i]);
        for (unsigned k = 0; k < MESSAGES; k++)
            assert_int_equal(pair_send(&p.b, BYTES, k, NULL), 0);
        const struct session *b = pair_session(&p.b);
        for (unsigned empty = 0; empty < 100; empty++) /* the peer's loop stands still */
            assert_int_equal(sluice_poll(p.b.loop, NULL, 0, 0), 0);
        assert_int_equal(b->rndv->out_count, ways[i].numbers);
        for (unsigned k = 0; k < MESSAGES; k++) {
            sluice_msg *msg = pair_expect(&p, &p.a, SLUICE_MESSAGE).msg;
            assert_true(pair_check(msg, BYTES, k));
            sluice_free(msg);
        }
        pair_close(&p);
    }
}

TEST(a_message_is_announced_where_that_is_faster) {
    for (unsigned i = 0; i < WAYS; i++) {
        struct pair p;
        open_way(&p, &ways[i]);
        assert_int_equal(pair_send(&p.b, ways[i].whole, 0, NULL), 0);
        sluice_msg *msg = pair_expect(&p, &p.a, SLUICE_MESSAGE).msg;
        assert_true(pair_check(msg, ways[i].whole, 0));
        sluice_free(msg);
        assert_null(pair_session(&p.b)->rndv);
        announced_send(&p, ways[i].whole + 1);
        msg = pair_expect(&p, &p.a, SLUICE_MESSAGE).msg;
        assert_true(pair_check(msg, ways[i].whole + 1, 0));
        sluice_free(msg);
        pair_close(&p);
    }
}

/* How many of the numbers that b gave out a has still to answer, or to read. */
static unsigned unanswered(const struct session *a) {
    unsigned count = 0;
    for (unsigned i = 0; a->rndv && i < RNDV_NUMBERS; i++)
        count += a->rndv->by_number[i] != NULL;
    return count;
}

/* Large messages to a, which answers all it can before b looks: what a poll finds is no matter of chance. */
static void send_all_unlooked(struct pair *p) {
    const struct session *a = pair_session(&p->a);
    const struct session *b = pair_session(&p->b);
    unsigned here = 0;
    sluice_event event;
    for (unsigned k = 0; k < MESSAGES; k++)
        assert_int_equal(pair_send(&p->b, BYTES, k, NULL), 0);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (here < b->rndv->out_count ||
           (unanswered(a) > 0 && a->connection->tx.credits > a->connection->tx.reserve)) {
        assert_true(env_now(&env_default) < limit);
        if (sluice_poll(p->a.loop, &event, 1, 0) == 0 || event.type != SLUICE_MESSAGE)
            continue;
        sluice_free(event.msg);
        here++;
    }
    for (; here < MESSAGES; here++)
        sluice_free(pair_expect(p, &p->a, SLUICE_MESSAGE).msg);
    pair_await(p, b->rndv->out_count == 0);
}

/* A peer of before answers each large message by a frame of its own, which takes a credit, and many are on their way. */
TEST(who_answers_each_over_tcp_gets_credits_for_it) {
    struct pair p;
    memset(&p, 0, sizeof p);
    pair_open(&p, PAIR_NODE(.soft_net = SLUICE_SOFT_NET_REQUIRE), PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    struct session *a = pair_session(&p.a), *b = pair_session(&p.b);
    a->connection->cm.rep.features &= ~PRIVATE_DATA_FEATURE_ANSWERS;
    b->connection->cm.rep.features &= ~PRIVATE_DATA_FEATURE_ANSWERS;
    pair_grant_all(&p, b, a);
    const struct credits *credits = &b->connection->credits;
    assert_true(credits->max >= RNDV_NUMBERS); /* more answers are never on their way */
    pair_frozen =
        env_now(&env_default); /* no second passes, after which what was used is forgotten */
    while (credits->granted < RNDV_NUMBERS) {
        uint32_t before = credits->granted;
        send_all_unlooked(&p);
        assert_true(credits->granted > before);
    }
    pair_frozen = 0;
    pair_close(&p);
}

/* So that the key is taken back at once when the peer has read the message. */
TEST(an_announcement_over_tcp_is_acknowledged) {
    struct pair p;
    open_way(&p, &ways[WAYS - 1]);
    announced_send(&p, BYTES);
    assert_int_equal(pair_session(&p.b)->connection->sq.unsignalled, 0);
    sluice_free(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg);
    pair_close(&p);
}
