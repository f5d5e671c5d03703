/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* One-sided operations that are right: what they do, in which order, and that each is told of once. */
#include "support/memory.h"

static const uint64_t sizes[] = {0,    1,     7,     8,      63,     64,     233,     1000,
                                 4096, 16384, 16385, 262143, 262144, 262145, 3145733, 8 << 20};
#define SIZES (sizeof sizes / sizeof *sizes)
#define MARGIN 256

/* ---- moving ------------------------------------------------------------------------------------ */

TEST(bytes_put_are_in_the_peers_memory) {
    struct memory m;
    memory_open(&m, (8 << 20) + 2 * MARGIN, PAIR_LINK());
    for (unsigned i = 0; i < SIZES; i++) {
        uint64_t n = sizes[i];
        memset(memory_there(&m), UNTOUCHED, m.bytes);
        memory_fill(memory_here(&m) + 3, n, i);
        assert_int_equal(
            sluice_put(m.pair.b.session, m.here, 3, n, &m.token, MARGIN, SLUICE_SEND(.tag = i + 1)),
            0);
        sluice_event event = memory_done(&m, i + 1, 0);
        assert_int_equal(event.bytes, n);
        assert_int_equal(event.value, 0);
        assert_true(memory_untouched(memory_there(&m), MARGIN));
        assert_true(memory_holds(memory_there(&m) + MARGIN, n, i));
        assert_true(memory_untouched(memory_there(&m) + MARGIN + n, m.bytes - MARGIN - n));
    }
    pair_expect_nothing(&m.pair, &m.pair.b);
    pair_expect_nothing(&m.pair, &m.pair.a); /* nobody there hears of it */
    memory_close(&m);
}

TEST(bytes_got_are_the_peers) {
    struct memory m;
    memory_open(&m, (8 << 20) + 2 * MARGIN, PAIR_LINK());
    for (unsigned i = 0; i < SIZES; i++) {
        uint64_t n = sizes[i];
        memset(memory_here(&m), UNTOUCHED, m.bytes);
        memory_fill(memory_there(&m) + 5, n, i);
        assert_int_equal(
            sluice_get(m.pair.b.session, m.here, MARGIN, n, &m.token, 5, SLUICE_SEND(.tag = i + 1)),
            0);
        memory_done(&m, i + 1, 0);
        assert_true(memory_untouched(memory_here(&m), MARGIN));
        assert_true(memory_holds(memory_here(&m) + MARGIN, n, i));
        assert_true(memory_untouched(memory_here(&m) + MARGIN + n, m.bytes - MARGIN - n));
    }
    pair_expect_nothing(&m.pair, &m.pair.b);
    memory_close(&m);
}

/* Not the library's memory, at odd addresses: on the software device another way of copying. */
TEST(memory_of_the_application_is_as_good) {
    struct memory m;
    sluice_error e = {0};
    sluice_region *mine, *its;
    sluice_token token;
    const size_t bytes = 300001;
    uint8_t *a = malloc(bytes + 1), *b = malloc(bytes + 1);
    assert_true(a && b);
    memset(a, UNTOUCHED, bytes + 1);
    memory_open(&m, 4096, PAIR_LINK());
    assert_int_equal(sluice_region_open(m.pair.a.node, a + 1, bytes, memory_rights(&m), &its, &e),
                     0);
    assert_int_equal(sluice_region_open(m.pair.b.node, b + 1, bytes, 0, &mine, &e), 0);
    assert_ptr_equal(sluice_region_data(its), a + 1);
    assert_int_equal(sluice_region_size(its), bytes);
    assert_int_equal(sluice_region_token(its, 1, bytes - 1, memory_rights(&m), &token), 0);
    memory_fill(b + 1, bytes, 9);
    assert_int_equal(
        sluice_put(m.pair.b.session, mine, 0, bytes - 1, &token, 0, SLUICE_SEND(.tag = 1)), 0);
    memory_done(&m, 1, 0);
    assert_int_equal(a[1], UNTOUCHED);
    assert_true(memory_holds(a + 2, bytes - 1, 9));
    memory_fill(a + 2, bytes - 1, 10);
    assert_int_equal(
        sluice_get(m.pair.b.session, mine, 1, bytes - 1, &token, 0, SLUICE_SEND(.tag = 2)), 0);
    memory_done(&m, 2, 0);
    assert_true(memory_holds(b + 2, bytes - 1, 10));
    assert_int_equal(sluice_region_close(its), 0);
    assert_int_equal(sluice_region_close(mine), 0);
    memory_close(&m);
    free(a);
    free(b);
}

/* ---- order ------------------------------------------------------------------------------------- */

TEST(a_message_behind_puts_finds_their_bytes) {
    struct memory m;
    enum { ROUNDS = 100, PUTS = 5, SIZE = 5000 };
    memory_open(&m, PUTS * SIZE, PAIR_LINK());
    for (unsigned round = 1; round <= ROUNDS; round++) {
        memory_fill(memory_here(&m), PUTS * SIZE, round);
        for (unsigned i = 0; i < PUTS; i++)
            assert_int_equal(sluice_put(m.pair.b.session, m.here, i * SIZE, SIZE, &m.token,
                                        i * SIZE, SLUICE_SEND(.flags = SLUICE_MORE)),
                             0);
        assert_int_equal(pair_send(&m.pair.b, 8, round, SLUICE_SEND(.tag = round)), 0);
        sluice_event event = pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 8, round));
        assert_true(memory_holds(memory_there(&m), PUTS * SIZE, round));
        pair_expect(&m.pair, &m.pair.b, SLUICE_SENT);
    }
    memory_close(&m);
}

TEST(a_notification_is_in_order_and_behind_its_bytes) {
    struct memory m;
    memory_open(&m, 1 << 20, PAIR_LINK());
    const uint64_t some[] = {0, 8, 4096, 1 << 20};
    for (unsigned i = 0; i < 4; i++) {
        uint32_t value = 0xfffffff0u + i;
        memory_fill(memory_here(&m), some[i], i);
        assert_int_equal(pair_send(&m.pair.b, 10, 1, SLUICE_SEND(.flags = SLUICE_MORE)), 0);
        assert_int_equal(sluice_put_notify(m.pair.b.session, some[i] ? m.here : NULL, 0, some[i],
                                           &m.token, 0, value, SLUICE_SEND(.tag = 7)),
                         0);
        assert_int_equal(pair_send(&m.pair.b, 20, 2, NULL), 0);
        sluice_event event = pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE);
        assert_int_equal(event.bytes, 10);
        event = pair_expect(&m.pair, &m.pair.a, SLUICE_NOTIFIED);
        assert_int_equal(event.value, value);
        assert_true(memory_holds(memory_there(&m), some[i], i));
        event = pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE);
        assert_int_equal(event.bytes, 20);
        memory_done(&m, 7, 0);
    }
    memory_close(&m);
}

/* More than there are credits: each takes one, and gives it back. */
TEST(notifications_take_credits_and_puts_do_not) {
    struct memory m;
    enum { COUNT = 500 };
    unsigned given = 0, heard = 0, done = 0;
    memset(&m, 0, sizeof m);
    pair_open(&m.pair, PAIR_NODE(), PAIR_LINK(.credits = 4));
    pair_connect(&m.pair, PAIR_LINK());
    memory_regions(&m, 4096, ALL_RIGHTS);
    for (unsigned i = 0; i < COUNT; i++) /* nobody takes anything there */
        if (sluice_put(m.pair.b.session, m.here, 0, 64, &m.token, 0, SLUICE_SEND(.tag = 1)) == 0)
            memory_done(&m, 1, 0);
        else
            fail_msg("a put that needs no credit waits");
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while ((heard < COUNT || done < COUNT) && env_now(&env_default) < limit) {
        sluice_event events[8];
        while (given < COUNT && sluice_put_notify(m.pair.b.session, m.here, 0, 8, &m.token, 0,
                                                  given, SLUICE_SEND(.tag = given + 1)) == 0)
            given++;
        int n = sluice_poll(m.pair.b.loop, events, 8, 0);
        for (int i = 0; i < n; i++)
            if (events[i].type == SLUICE_DONE)
                must_data_equal(events[i].tag, ++done);
        n = sluice_poll(m.pair.a.loop, events, 8, 0);
        for (int i = 0; i < n; i++)
            assert_int_equal(events[i].value, heard++);
    }
    assert_int_equal(heard, COUNT);
    assert_int_equal(done, COUNT);
    memory_close(&m);
}

TEST(what_is_behind_a_fence_begins_when_all_before_is_done) {
    struct memory m;
    enum { BYTES = 2 << 20 };
    memory_open(&m, 3 * BYTES, PAIR_LINK());
    sluice_session s = m.pair.b.session;
    memory_fill(memory_here(&m), BYTES, 1);
    memory_fill(memory_there(&m) + BYTES, BYTES, 2);
    /* Written there, read back; and what was read is not what the put behind the get wrote. */
    assert_int_equal(sluice_put(s, m.here, 0, BYTES, &m.token, 0, SLUICE_SEND(.tag = 1)), 0);
    assert_int_equal(sluice_fence(s, SLUICE_SEND(.tag = 2)), 0);
    assert_int_equal(sluice_get(s, m.here, BYTES, BYTES, &m.token, 0, SLUICE_SEND(.tag = 3)), 0);
    assert_int_equal(
        sluice_get(s, m.here, 2 * BYTES, BYTES, &m.token, BYTES, SLUICE_SEND(.tag = 4)), 0);
    assert_int_equal(sluice_fence(s, NULL), 0);
    assert_int_equal(sluice_fence(s, SLUICE_SEND(.tag = 5)), 0);
    assert_int_equal(pair_session(&m.pair.b)->tx.queue.head != NULL, true); /* they wait */
    assert_int_equal(sluice_put(s, m.here, 0, BYTES, &m.token, BYTES, SLUICE_SEND(.tag = 6)), 0);
    for (uint64_t tag = 1; tag <= 6; tag++)
        memory_done(&m, tag, 0);
    assert_true(memory_holds(memory_there(&m), BYTES, 1));
    assert_true(memory_holds(memory_here(&m) + BYTES, BYTES, 1));
    assert_true(memory_holds(memory_here(&m) + 2 * BYTES, BYTES, 2));
    assert_true(memory_holds(memory_there(&m) + BYTES, BYTES, 1));
    memory_close(&m);
}

TEST(a_fence_with_nothing_before_it_is_done_at_once) {
    struct memory m;
    memory_open(&m, 4096, PAIR_LINK(.window_messages = 2));
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(sluice_fence(m.pair.b.session, SLUICE_SEND(.tag = i + 1)), 0);
        memory_done(&m, i + 1, 0);
    }
    memory_close(&m);
}

/* ---- atomics ----------------------------------------------------------------------------------- */

TEST(an_atomic_says_what_was_there) {
    struct memory m;
    uint64_t value = 41;
    memory_open(&m, 4096, PAIR_LINK());
    if (memory_rights(&m) != ALL_RIGHTS) {
        memory_close(&m);
        skip(); /* the device has no atomics */
    }
    sluice_session s = m.pair.b.session;
    memcpy(memory_there(&m) + 16, &value, 8);
    assert_int_equal(sluice_fetch_add(s, &m.token, 16, 1, SLUICE_SEND(.tag = 1)), 0);
    assert_int_equal(memory_done(&m, 1, 0).value, 41);
    assert_int_equal(sluice_compare_swap(s, &m.token, 16, 42, UINT64_MAX, SLUICE_SEND(.tag = 2)),
                     0);
    assert_int_equal(memory_done(&m, 2, 0).value, 42);
    assert_int_equal(sluice_compare_swap(s, &m.token, 16, 42, 5, SLUICE_SEND(.tag = 3)), 0);
    assert_true(memory_done(&m, 3, 0).value == UINT64_MAX);
    assert_int_equal(sluice_fetch_add(s, &m.token, 16, 3, NULL), 0); /* wraps, and is not told */
    assert_int_equal(sluice_fence(s, SLUICE_SEND(.tag = 4)), 0);
    memory_done(&m, 4, 0);
    memcpy(&value, memory_there(&m) + 16, 8);
    assert_int_equal(value, 2);
    assert_true(memory_untouched(memory_there(&m), 16));
    assert_true(memory_untouched(memory_there(&m) + 24, m.bytes - 24));
    memory_close(&m);
}

/* Many at a time, of two sessions: far more than the agreed depth. */
TEST(atomics_of_two_sessions_sum_up) {
    struct memory m;
    enum { COUNT = 2000 };
    unsigned given[2] = {0}, done[2] = {0}, most = 0;
    memory_open(&m, 4096, PAIR_LINK());
    if (memory_rights(&m) != ALL_RIGHTS) {
        memory_close(&m);
        skip(); /* the device has no atomics */
    }
    sluice_session s[2] = {m.pair.b.session};
    pair_connect(&m.pair, PAIR_LINK());
    s[1] = m.pair.b.session;
    memset(memory_there(&m), 0, 8);
    uint8_t *seen = calloc(2 * COUNT, 1);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while ((done[0] < COUNT || done[1] < COUNT) && env_now(&env_default) < limit) {
        for (unsigned k = 0; k < 2; k++) {
            while (given[k] < COUNT &&
                   sluice_fetch_add(s[k], &m.token, 0, 1, SLUICE_SEND(.tag = k + 1)) == 0)
                given[k]++;
            uint32_t out = session_table_find(s[k].id)->connection->rma.reads;
            most = out > most ? out : most;
        }
        sluice_event events[8];
        int n = sluice_poll(m.pair.b.loop, events, 8, 0);
        for (int i = 0; i < n; i++)
            if (events[i].type == SLUICE_DONE) {
                assert_int_equal(events[i].status, 0);
                assert_true(events[i].value < 2 * COUNT);
                must_data_equal(seen[events[i].value]++, 0); /* no number comes twice */
                done[events[i].tag - 1]++;
            }
        sluice_poll(m.pair.a.loop, NULL, 0, 0);
    }
    uint64_t value;
    memcpy(&value, memory_there(&m), 8);
    assert_int_equal(value, 2 * COUNT);
    assert_uint_in_range(most, 1, 16);
    free(seen);
    memory_close(&m);
}

/* ---- window ------------------------------------------------------------------------------------ */

TEST(operations_share_the_window_with_messages) {
    struct memory m;
    unsigned accepted = 0, done = 0, writable = 0;
    memory_open(&m, 1 << 20, PAIR_LINK(.window_messages = 16));
    sluice_session s = m.pair.b.session;
    sluice_send_options *o = SLUICE_SEND(.tag = 1, .flags = SLUICE_MORE);
    while (accepted < 100 && sluice_put(s, m.here, 0, 100, &m.token, 0, o) == 0)
        accepted++;
    assert_int_equal(accepted, 16);
    assert_int_equal(pair_send(&m.pair.b, 8, 1, NULL), SLUICE_EAGAIN);
    assert_int_equal(sluice_fence(s, o), SLUICE_EAGAIN);
    assert_int_equal(sluice_fetch_add(s, &m.token, 0, 1, o),
                     memory_rights(&m) == ALL_RIGHTS ? SLUICE_EAGAIN : SLUICE_EACCESS);
    sluice_event event;
    while (done < 16 || writable < 1) {
        assert_true(pair_next(&m.pair, &m.pair.b, &event));
        done += event.type == SLUICE_DONE;
        writable += event.type == SLUICE_WRITABLE;
    }
    pair_expect_nothing(&m.pair, &m.pair.b);
    assert_int_equal(writable, 1);
    assert_int_equal(sluice_region_close(m.here), 0); /* nothing uses it any more */
    memory_close(&m);
}

TEST(a_window_full_of_fences_opens_again) {
    struct memory m;
    unsigned done = 0, writable = 0;
    memory_open(&m, 1 << 20, PAIR_LINK(.window_messages = 8));
    sluice_session s = m.pair.b.session;
    assert_int_equal(sluice_get(s, m.here, 0, 1 << 20, &m.token, 0, SLUICE_SEND(.tag = 1)), 0);
    for (unsigned i = 0; i < 7; i++)
        assert_int_equal(sluice_fence(s, SLUICE_SEND(.tag = i + 2)), 0);
    assert_int_equal(sluice_fence(s, NULL), SLUICE_EAGAIN);
    sluice_event event;
    while (done < 8 || writable < 1) {
        assert_true(pair_next(&m.pair, &m.pair.b, &event));
        if (event.type == SLUICE_DONE)
            must_data_equal(event.tag, ++done);
        writable += event.type == SLUICE_WRITABLE;
    }
    assert_int_equal(writable, 1);
    memory_close(&m);
}

TEST(bytes_of_operations_count) {
    struct memory m;
    /* More than three quarters of it: the window does not open before the first is done. */
    memory_open(&m, 1 << 20, PAIR_LINK(.window_bytes = 70000));
    sluice_session s = m.pair.b.session;
    sluice_send_options *o = SLUICE_SEND(.tag = 1, .flags = SLUICE_MORE);
    assert_int_equal(sluice_put(s, m.here, 0, 60000, &m.token, 0, o), 0);
    assert_int_equal(sluice_put(s, m.here, 0, 60000, &m.token, 0, o), SLUICE_EAGAIN);
    memory_done(&m, 1, 0);
    pair_expect(&m.pair, &m.pair.b, SLUICE_WRITABLE);
    /* One always fits, however large. */
    assert_int_equal(sluice_put(s, m.here, 0, 1 << 20, &m.token, 0, o), 0);
    memory_done(&m, 1, 0);
    memory_close(&m);
}

/* ---- end --------------------------------------------------------------------------------------- */

/* Whatever was accepted has its one outcome before CLOSED; regions are free afterwards. */
TEST(a_session_that_ends_tells_of_every_operation) {
    enum { COUNT = 60, DONE = 10 };
    for (unsigned way = 0; way < 3; way++) {
        struct memory m;
        unsigned outcomes[COUNT + 1] = {0}, good = 0;
        memory_open(&m, 8 << 20, PAIR_LINK());
        sluice_session s = m.pair.b.session;
        for (unsigned i = 1; i <= COUNT; i++) {
            const sluice_send_options *o = SLUICE_SEND(.tag = i);
            uint64_t n = i % 5 == 0 ? 2 << 20 : 3000;
            bool adds = i % 7 == 0 && memory_rights(&m) == ALL_RIGHTS;
            int status = adds         ? sluice_fetch_add(s, &m.token, 0, 1, o)
                         : i % 7 == 1 ? sluice_fence(s, o)
                         : i % 7 == 2 ? sluice_get(s, m.here, 0, n, &m.token, 0, o)
                         : i % 7 == 3 ? sluice_put_notify(s, m.here, 0, n, &m.token, 0, i, o)
                                      : sluice_put(s, m.here, 0, n, &m.token, 0, o);
            if (status == SLUICE_EAGAIN) {
                outcomes[i] = 1;
                continue;
            }
            assert_int_equal(status, 0);
        }
        if (way == 0)
            sluice_hangup(s, 0);
        else if (way == 1)
            sluice_hangup(m.pair.a.session, 0);
        else
            sluice_hangup(s, 10000000000ull);
        sluice_event event;
        do {
            /* Nobody takes what would give credits back: some wait until the grace is over. */
            if (way == 2 && good == DONE)
                pair_step = 100000;
            assert_true(pair_next(&m.pair, &m.pair.b, &event));
            if (event.type != SLUICE_DONE)
                continue;
            must_data_equal(outcomes[event.tag]++, 0);
            assert_true(event.status == 0 || event.status == SLUICE_ECLOSED ||
                        event.status == SLUICE_EUNKNOWN);
            good += event.status == 0;
        } while (event.type != SLUICE_CLOSED);
        for (unsigned i = 1; i <= COUNT; i++)
            must_data_equal(outcomes[i], 1);
        if (way == 2)
            assert_uint_in_range(good, DONE, COUNT - 1);
        assert_int_equal(sluice_put(s, m.here, 0, 8, &m.token, 0, NULL), SLUICE_ECLOSED);
        assert_int_equal(sluice_region_close(m.here), 0);
        memory_close(&m);
    }
}

TEST(an_operation_whose_time_is_over_does_nothing) {
    struct memory m;
    memory_open(&m, 4 << 20, PAIR_LINK());
    sluice_session s = m.pair.b.session;
    memory_fill(memory_here(&m), 8, 1);
    assert_int_equal(sluice_get(s, m.here, 4096, 2 << 20, &m.token, 4096, SLUICE_SEND(.tag = 1)),
                     0);
    assert_int_equal(sluice_fence(s, NULL), 0);
    assert_int_equal(
        sluice_put(s, m.here, 0, 8, &m.token, 0, SLUICE_SEND(.tag = 2, .deadline_ns = 1)), 0);
    unsigned seen = 0;
    while (seen != 3) {
        sluice_event event = pair_expect(&m.pair, &m.pair.b, SLUICE_DONE);
        assert_int_equal(event.status, event.tag == 1 ? 0 : SLUICE_ETIMEDOUT);
        seen |= 1u << (event.tag - 1);
    }
    assert_true(memory_untouched(memory_there(&m), 8));
    memory_close(&m);
}

/* Only frames tell the peer that we live. */
TEST(a_side_that_only_puts_still_says_that_it_lives) {
    struct memory m;
    memset(&m, 0, sizeof m);
    pair_open(&m.pair, PAIR_NODE(.log = log_nothing), PAIR_LINK(.keepalive_ns = 200000000));
    pair_connect(&m.pair, PAIR_LINK(.keepalive_ns = 200000000));
    memory_regions(&m, 4096, ALL_RIGHTS);
    uint64_t end = pair_now(NULL) + 3000000000ull;
    while (pair_now(NULL) < end) {
        assert_int_equal(
            sluice_put(m.pair.b.session, m.here, 0, 64, &m.token, 0, SLUICE_SEND(.tag = 1)), 0);
        memory_done(&m, 1, 0);
        for (int i = 0; i < 70; i++)
            pair_turn(&m.pair);
        pair_clock += 10000000;
    }
    assert_int_equal(m.pair.a.closed, 0);
    assert_int_equal(pair_session(&m.pair.a)->state, SESSION_UP);
    memory_close(&m);
}
