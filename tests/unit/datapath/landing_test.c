/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* landing_test.c - SLUICE_RECEIVE_INTO: the application says where large messages go. */
#include "support/memory.h"

#define BIG (1 << 20)
#define SIZE ((uint64_t)300000)

static const sluice_rendezvous ways[] = {SLUICE_RENDEZVOUS_READ, SLUICE_RENDEZVOUS_WRITE};

static void worker_select_open(struct memory *m, unsigned way) {
    memset(m, 0, sizeof *m);
    pair_open(
        &m->pair,
        PAIR_NODE(.log = log_nothing, .rendezvous = ways[way], .rendezvous_bytes = PAIR_LARGE),
        PAIR_LINK(.flags = SLUICE_RECEIVE_INTO));
    pair_connect(&m->pair, PAIR_LINK());
    memory_regions(m, BIG, 0);
}

static sluice_event expect_large(struct memory *m, uint64_t bytes) {
    sluice_event event = pair_expect(&m->pair, &m->pair.a, SLUICE_LARGE);
    assert_true(event.value == bytes);
    assert_true(event.token != 0);
    return event;
}

TEST(a_message_goes_where_the_application_says) {
    for (unsigned w = 0; w < PAIR_WAYS; w++) {
        struct memory m;
        worker_select_open(&m, w);
        for (unsigned i = 0; i < 20; i++) { /* more than there are numbers */
            assert_int_equal(pair_send(&m.pair.b, SIZE, i, SLUICE_SEND(.tag = 1)), 0);
            assert_int_equal(pair_send(&m.pair.b, 10, i, NULL), 0);
            sluice_event large = expect_large(&m, SIZE);
            pair_expect_nothing(&m.pair, &m.pair.a); /* what is behind it waits */
            assert_int_equal(sluice_receive_into(m.pair.a.session, large.token, m.there, 1000 + i),
                             0);
            assert_int_equal(sluice_receive_into(m.pair.a.session, large.token, m.there, 0),
                             SLUICE_EINVAL);
            assert_int_equal(sluice_region_close(m.there), SLUICE_EINVAL);
            sluice_event event = pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE);
            assert_null(event.msg);
            assert_true(event.token == large.token && event.value == SIZE);
            assert_int_equal(event.bytes, SIZE);
            assert_true(memory_holds(memory_there(&m) + 1000 + i, SIZE, i));
            assert_true(memory_untouched(memory_there(&m), 1000));
            assert_true(
                memory_untouched(memory_there(&m) + 1000 + i + SIZE, BIG - SIZE - 1000 - i));
            assert_true(pair_check(pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE).msg, 10, i));
            assert_int_equal(pair_expect(&m.pair, &m.pair.b, SLUICE_SENT).status, 0);
            memset(memory_there(&m), UNTOUCHED, BIG);
        }
        assert_int_equal(sluice_region_close(m.there), 0);
        memory_close(&m);
    }
}

TEST(without_a_region_it_goes_to_memory_of_the_node) {
    for (unsigned w = 0; w < PAIR_WAYS; w++) {
        struct memory m;
        worker_select_open(&m, w);
        assert_int_equal(pair_send(&m.pair.b, SIZE, 1, NULL), 0);
        sluice_event large = expect_large(&m, SIZE);
        assert_int_equal(sluice_receive_into(m.pair.a.session, large.token, NULL, 0), 0);
        assert_true(pair_check(pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE).msg, SIZE, 1));
        memory_close(&m);
    }
}

TEST(wrong_places_are_refused_and_asked_for_again) {
    for (unsigned w = 0; w < PAIR_WAYS; w++) {
        struct memory m;
        worker_select_open(&m, w);
        assert_int_equal(pair_send(&m.pair.b, SIZE, 1, NULL), 0);
        sluice_event large = expect_large(&m, SIZE);
        sluice_session s = m.pair.a.session;
        assert_int_equal(sluice_receive_into(s, large.token + 1, m.there, 0), SLUICE_EINVAL);
        assert_int_equal(sluice_receive_into(s, 0, m.there, 0), SLUICE_EINVAL);
        assert_int_equal(sluice_receive_into(s, large.token, m.there, BIG - SIZE + 1),
                         SLUICE_EINVAL);
        assert_int_equal(sluice_receive_into(s, large.token, m.there, UINT64_MAX), SLUICE_EINVAL);
        assert_int_equal(sluice_receive_into(s, large.token, m.here, 0),
                         SLUICE_EINVAL); /* another node's */
        assert_int_equal(sluice_receive_into((sluice_session){0}, large.token, m.there, 0),
                         SLUICE_ECLOSED);
        assert_int_equal(sluice_receive_into(s, large.token, m.there, BIG - SIZE), 0);
        assert_null(pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE).msg);
        assert_true(memory_holds(memory_there(&m) + BIG - SIZE, SIZE, 1));
        memory_close(&m);
    }
}

/* Before the answer, and after it at any point of the transfer: the region is free at the end. */
TEST(a_session_may_end_before_the_message_is_there) {
    for (unsigned w = 0; w < PAIR_WAYS; w++)
        for (unsigned turns = 0; turns < 16; turns++)
            for (unsigned k = 0; k < 2; k++) {
                struct memory m;
                sluice_event event;
                unsigned outcomes = 0;
                worker_select_open(&m, w);
                assert_int_equal(pair_send(&m.pair.b, BIG, 1, SLUICE_SEND(.tag = 1)), 0);
                event = expect_large(&m, BIG);
                if (turns > 0)
                    assert_int_equal(sluice_receive_into(m.pair.a.session, event.token, m.there, 0),
                                     0);
                for (unsigned i = 1; i < turns; i++)
                    pair_turn(&m.pair);
                sluice_hangup(k ? m.pair.a.session : m.pair.b.session, 0);
                do {
                    assert_true(pair_next(&m.pair, &m.pair.b, &event));
                    outcomes += event.type == SLUICE_SENT;
                } while (event.type != SLUICE_CLOSED);
                must_data_equal(outcomes, 1);
                do {
                    assert_true(pair_next(&m.pair, &m.pair.a, &event));
                    if (event.type == SLUICE_MESSAGE)
                        assert_true(memory_holds(memory_there(&m), BIG, 1));
                } while (event.type != SLUICE_CLOSED);
                assert_int_equal(sluice_receive_into(m.pair.a.session, event.token, m.there, 0),
                                 SLUICE_ECLOSED);
                assert_int_equal(sluice_region_close(m.there), 0);
                memory_close(&m);
            }
}
