/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * large_request_test.c - requests and replies above a frame: whole both ways, their deadlines, what ends
 * them, and each with one outcome.
 */
#include "common/sanitize.h"
#include "datapath/tx/post.h"
#include "datapath/rndv/rndv.h"
#include "support/pool_stats.h"
#include "support/request.h"
#include "support/log.h"

#define KIB ((size_t)1024)

static const sluice_rendezvous ways[] = {SLUICE_RENDEZVOUS_READ, SLUICE_RENDEZVOUS_WRITE};

static void open_sides(struct pair *p, sluice_rendezvous way, uint64_t a_bytes, uint64_t b_bytes) {
    memset(p, 0, sizeof *p);
    pair_clock = pair_frozen = pair_step = 0;
    pair_open_side(&p->a, PAIR_NODE(.rendezvous = way, .rendezvous_bytes = PAIR_LARGE,
                                    .memory_bytes_max = a_bytes, .log = log_nothing));
    pair_open_side(&p->b, PAIR_NODE(.rendezvous = way, .rendezvous_bytes = PAIR_LARGE,
                                    .memory_bytes_max = b_bytes, .log = log_nothing));
    pair_listen(p, PAIR_LINK());
    pair_connect(p, PAIR_LINK());
}

static void expect_outcome(struct pair *p, struct side *side, uint64_t tag, sluice_status status) {
    sluice_event event = pair_expect(p, side, SLUICE_REPLY);
    must_data_equal(event.tag, tag);
    assert_int_equal(event.status, status);
    assert_null(event.msg);
}

static void assert_idle(struct pair *p) {
    struct side *sides[2] = {&p->a, &p->b};
    pair_expect_nothing(p, &p->a);
    pair_expect_nothing(p, &p->b);
    for (unsigned i = 0; i < 2; i++) {
        struct session *s = pair_session(sides[i]);
        assert_int_equal(pair_in_flight(sides[i]), 0);
        if (sq_used(s->connection) ==
            0) { /* a small reply counts until something behind it completes */
            assert_int_equal(s->window.own_messages, 0);
            assert_int_equal(s->window.own_bytes, 0);
        }
        assert_int_equal(s->connection->recv.reserved, 0);
        assert_false(rndv_pending(s));
    }
}

TEST(large_requests_and_replies_arrive_whole_both_ways) {
    static const size_t sizes[] = {10, 8169, 64 * KIB, 300 * KIB + 1, 3000 * KIB};
    for (unsigned w = 0; w < PAIR_WAYS; w++)
        for (unsigned swap = 0; swap < 2; swap++) {
            struct pair p;
            open_sides(&p, ways[w], 0, 0);
            struct side *asks = swap ? &p.a : &p.b, *answers = swap ? &p.b : &p.a;
            for (unsigned i = 0; i < 25; i++) {
                size_t there = sizes[i % 5], back = sizes[i / 5];
                assert_int_equal(pair_request(asks, there, i, SLUICE_SEND(.tag = i + 1)), 0);
                sluice_event event = pair_expect(&p, answers, SLUICE_REQUEST);
                assert_true(pair_check(event.msg, there, i));
                assert_int_equal(pair_reply(answers, event.token, back, i + 100), 0);
                event = pair_expect(&p, asks, SLUICE_REPLY);
                must_data_equal(event.tag, i + 1);
                assert_int_equal(event.status, 0);
                assert_true(pair_check(event.msg, back, i + 100));
            }
            assert_idle(&p);
            pair_close(&p);
        }
}

TEST(many_at_once_are_answered_once_each) {
    enum { COUNT = 60 };
    for (unsigned w = 0; w < PAIR_WAYS; w++) {
        struct pair p;
        unsigned asked = 0;
        static uint8_t answered[COUNT + 1];
        open_sides(&p, ways[w], 0, 0);
        memset(answered, 0, sizeof answered);
        for (unsigned i = 0; i < COUNT; i++)
            assert_int_equal(
                pair_request(&p.b, i % 3 ? 40 * KIB + i : 20, i, SLUICE_SEND(.tag = i + 1)), 0);
        for (unsigned i = 0; i < COUNT; i++) {
            sluice_event event = pair_expect(&p, &p.a, SLUICE_REQUEST);
            assert_true(pair_check(event.msg, i % 3 ? 40 * KIB + i : 20, i));
            assert_int_equal(pair_reply(&p.a, event.token, i % 2 ? 50 * KIB : 30, i), 0);
            asked++;
        }
        for (unsigned i = 0; i < COUNT; i++) {
            sluice_event event = pair_expect(&p, &p.b, SLUICE_REPLY);
            unsigned n = (unsigned)event.tag - 1;
            assert_int_equal(answered[n]++, 0);
            assert_true(pair_check(event.msg, n % 2 ? 50 * KIB : 30, n));
        }
        assert_int_equal(asked, COUNT);
        assert_idle(&p);
        pair_close(&p);
    }
}

/* The time it took to arrive, and to be looked at, counts. */
TEST(a_large_request_whose_time_is_over_is_not_delivered) {
    for (unsigned w = 0; w < PAIR_WAYS; w++) {
        struct pair p;
        open_sides(&p, ways[w], 0, 0);
        uint64_t due = pair_now(NULL) + 3000000000;
        assert_int_equal(
            pair_request(&p.b, 100 * KIB, 1, SLUICE_SEND(.tag = 1, .deadline_ns = due)), 0);
        pair_turns(&p, 200); /* it arrives, and nobody takes events */
        pair_clock += 4000000000;
        expect_outcome(&p, &p.b, 1, SLUICE_ETIMEDOUT);
        pair_expect_nothing(&p, &p.a);
        assert_idle(&p);
        due = pair_now(NULL) + 3000000000;
        assert_int_equal(
            pair_request(&p.b, 100 * KIB, 2, SLUICE_SEND(.tag = 2, .deadline_ns = due)), 0);
        sluice_event event = pair_expect(&p, &p.a, SLUICE_REQUEST);
        assert_true(event.value <= due + 1000000 && event.value + 3000000000 > due);
        assert_int_equal(pair_reply(&p.a, event.token, 100 * KIB, 3), 0);
        assert_true(pair_check(pair_expect(&p, &p.b, SLUICE_REPLY).msg, 100 * KIB, 3));
        assert_idle(&p);
        pair_close(&p);
    }
}

TEST(a_large_request_may_be_cancelled_at_any_point) {
    for (unsigned w = 0; w < PAIR_WAYS; w++)
        for (unsigned turns = 0; turns < 24; turns++) {
            struct pair p;
            unsigned outcomes = 0;
            open_sides(&p, ways[w], 0, 0);
            uint64_t before = pool_in_use(p.b.node->pool);
            assert_int_equal(pair_request(&p.b, 1500 * KIB, 1, SLUICE_SEND(.tag = 1)), 0);
            pair_turns(&p, turns);
            sluice_cancel(p.b.session, 1);
            for (unsigned i = 0; i < 300 || pair_in_flight(&p.b) > 0; i++) {
                sluice_event event;
                pair_turn(&p);
                if (sluice_poll(p.a.loop, &event, 1, 0) == 1)
                    assert_int_equal(pair_reply(&p.a, event.token, 100 * KIB, 1), 0);
                if (sluice_poll(p.b.loop, &event, 1, 0) == 1) {
                    assert_int_equal(event.type, SLUICE_REPLY);
                    assert_int_equal(event.status, SLUICE_ECANCELLED);
                    outcomes++;
                }
            }
            must_data_equal(outcomes, 1);
            assert_idle(&p);
            assert_true(pool_in_use(p.b.node->pool) <= before + 1); /* headers */
            pair_close(&p);
        }
}

TEST(a_request_there_can_be_no_memory_for_ends_once) {
    for (unsigned w = 0; w < PAIR_WAYS; w++)
        for (unsigned cancel = 0; cancel < 2; cancel++) {
            struct pair p;
            open_sides(&p, ways[w], 4u << 20, 0);
            for (unsigned i = 1; i <= 20; i++) { /* more than there are numbers */
                assert_int_equal(pair_request(&p.b, 8u << 20, 1, SLUICE_SEND(.tag = i)), 0);
                if (cancel)
                    sluice_cancel(p.b.session, i);
                expect_outcome(&p, &p.b, i, cancel ? SLUICE_ECANCELLED : SLUICE_EMSGSIZE);
                assert_idle(&p);
            }
            assert_int_equal(pair_request(&p.b, 100 * KIB, 2, SLUICE_SEND(.tag = 2)), 0);
            sluice_event event = pair_expect(&p, &p.a, SLUICE_REQUEST);
            assert_int_equal(pair_reply(&p.a, event.token, 1, 1), 0);
            assert_true(pair_check(pair_expect(&p, &p.b, SLUICE_REPLY).msg, 1, 1));
            assert_idle(&p);
            pair_close(&p);
        }
}

TEST(a_reply_there_can_be_no_memory_for_ends_its_request) {
    for (unsigned w = 0; w < PAIR_WAYS; w++) {
        struct pair p;
        open_sides(&p, ways[w], 0, 4u << 20);
        for (unsigned i = 1; i <= 20; i++) {
            assert_int_equal(pair_request(&p.b, 10, 1, SLUICE_SEND(.tag = i)), 0);
            sluice_event event = pair_expect(&p, &p.a, SLUICE_REQUEST);
            assert_int_equal(pair_reply(&p.a, event.token, 8u << 20, 1), 0);
            expect_outcome(&p, &p.b, i, SLUICE_ENOMEM);
            assert_idle(&p);
        }
        pair_close(&p);
    }
}

#ifdef SANITIZE_THREAD
enum { BYTES = 520 * 1024, STEP = 3 }; /* three chunks, two of them whole */
#else
enum { BYTES = 520 * 1024, STEP = 1 };
#endif

/* Either side ends the session after some number of turns. */
static void end_at_turn(sluice_rendezvous way, unsigned turns, bool asking) {
    struct pair p;
    unsigned told = 0, closed = 0;
    open_sides(&p, way, 0, 0);
    if (turns & 1)
        pair_grant_all(&p, pair_session(&p.b), pair_session(&p.a));
    for (unsigned i = 1; i <= 6; i++)
        assert_int_equal(pair_request(&p.b, BYTES, i, SLUICE_SEND(.tag = i)), 0);
    for (unsigned i = 0; closed < 2; i++) {
        struct side *side = i & 1 ? &p.a : &p.b;
        sluice_event event;
        if (i == turns)
            sluice_hangup(asking ? p.b.session : p.a.session, 0);
        if (i >= turns) {
            side = p.b.closed ? &p.a : &p.b;
            if (!pair_next(&p, side, &event))
                fail_msg("no end after %u turns", turns);
        } else if (sluice_poll(side->loop, &event, 1, 0) != 1) {
            continue;
        }
        if (event.type == SLUICE_REQUEST) {
            sluice_msg *msg;
            assert_int_equal(sluice_alloc(p.a.node, BYTES, &msg), 0);
            if (sluice_reply(p.a.session, event.token, msg) != 0)
                sluice_free(msg);
        } else if (event.type == SLUICE_REPLY) {
            must_data_equal(told >> event.tag & 1, 0);
            told |= 1u << event.tag;
            assert_true(event.status == 0 || event.status == SLUICE_EUNKNOWN ||
                        event.status == SLUICE_ECLOSED);
        } else {
            assert_int_equal(event.type, SLUICE_CLOSED);
            closed++;
        }
    }
    assert_int_equal(told, 0x7e);
    pair_turns(&p, 100);
    assert_int_equal(pool_in_use(p.a.node->pool), 0);
    assert_int_equal(pool_in_use(p.b.node->pool), 0);
    pair_close(&p);
}

TEST(a_session_may_end_at_any_point_of_large_requests) {
    for (unsigned w = 0; w < PAIR_WAYS; w++)
        for (unsigned turns = 0; turns < 60; turns += turns < 20 ? STEP : 3 * STEP - STEP / 2)
            for (unsigned asking = 0; asking < 2; asking++)
                end_at_turn(ways[w], turns, asking != 0);
}

int main(int argc, char **argv) {
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return tests_run(NULL, NULL);
}
