/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * framed_test.c - the short way of a plain message: what it must keep of what every other way keeps.
 */
#include "support/request.h"
#include "support/pool_stats.h"

static const sluice_send_options more = {.size = sizeof more, .flags = SLUICE_MORE};

PAIR_WITH(pair_connected, a_received_message_is_sent_on_without_another_buffer) {
    struct pair *p = *state;
    uint64_t used = 0;
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(pair_send(&p->b, 64, i, NULL), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        assert_int_equal(sluice_send(p->a.session, event.msg, NULL), 0);
        /* It is the caller's no more, whatever becomes of its buffer. */
        assert_int_equal(sluice_send(p->a.session, event.msg, NULL), SLUICE_EINVAL);
        sluice_keep(event.msg);
        assert_int_equal(sluice_send(p->a.session, event.msg, NULL), SLUICE_EINVAL);
        if (i == 100) /* credits have grown as far as they will */
            used = pool_in_use(p->a.loop->rx_pool);
        assert_true(i <= 100 || pool_in_use(p->a.loop->rx_pool) == used);
        event = pair_expect(p, &p->b, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 64, i));
        pair_turns(p, 4);
    }
}

static uint64_t buffers_taken(const struct side *side) {
    struct pool_stats figures;
    uint64_t gets = 0;
    pool_get_stats(side->node->pool, &figures);
    for (unsigned i = 0; i <= POOL_CLASSES; i++)
        gets += figures.count[i].gets;
    return gets;
}

/* And its bytes are the caller's again when the call returns. Those that wait for more share the buffer of a frame. */
PAIR_WITH(pair_connected, a_small_copy_takes_no_buffer_of_its_own) {
    struct pair *p = *state;
    static const size_t sizes[] = {1, 8, 64, 200, FABRIC_FRAMED};
    enum { SIZES = sizeof sizes / sizeof *sizes, TOGETHER = 4 };
    uint64_t before = buffers_taken(&p->b);
    for (unsigned i = 0; i < 100 * SIZES; i++) {
        uint8_t bytes[FABRIC_FRAMED];
        unsigned count = i & 1 ? TOGETHER : 1;
        for (unsigned k = 0; k < count; k++) {
            pair_fill_bytes(bytes, sizes[i % SIZES], i + k);
            assert_int_equal(sluice_send_copy(p->b.session, bytes, sizes[i % SIZES],
                                              k + 1 < count ? &more : NULL),
                             0);
            memset(bytes, 0xee, sizeof bytes);
        }
        for (unsigned k = 0; k < count; k++)
            assert_true(
                pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, sizes[i % SIZES], i + k));
        pair_turns(p, 4);
        assert_true(buffers_taken(&p->b) - before <= i / 2 + 1);
    }
    assert_int_equal(sluice_send_copy(p->b.session, NULL, 0, NULL), 0);
    assert_int_equal(pair_expect(p, &p->a, SLUICE_MESSAGE).bytes, 0);
}

static uint64_t on_their_way(struct side *side) {
    return atomic_load(&pair_session(side)->window.own_messages);
}

/* Tokens are counted for many messages at once; the window is counted for each. */
PAIR_WITH(pair_opened, the_window_is_as_narrow_as_it_was_agreed) {
    struct pair *p = *state;
    enum { WINDOW = 5 };
    pair_connect(p, PAIR_LINK(.window_messages = WINDOW));
    for (unsigned round = 0, sent = 0, received = 0; round < 50; round++) {
        int status;
        while ((status = pair_send(&p->b, 8, sent, round & 1 ? &more : NULL)) == 0) {
            sent++;
            assert_true(on_their_way(&p->b) <= WINDOW);
        }
        assert_int_equal(status, SLUICE_EAGAIN);
        assert_int_equal(on_their_way(&p->b), WINDOW);
        for (bool writable = false; !writable || received < sent;) {
            sluice_event event;
            pair_turn(p);
            while (sluice_poll(p->b.loop, &event, 1, 0) == 1)
                writable |= event.type == SLUICE_WRITABLE;
            while (sluice_poll(p->a.loop, &event, 1, 0) == 1)
                assert_true(pair_check(event.msg, 8, received++));
        }
    }
}

/* As many messages as there are bytes for, and one more where nothing is on its way. */
PAIR_WITH(pair_opened, bytes_count_as_messages_do) {
    struct pair *p = *state;
    pair_connect(p, PAIR_LINK(.window_bytes = 1000));
    for (unsigned round = 0; round < 2; round++) {
        unsigned sent = 0;
        while (sent < 100 && pair_send(&p->b, 64, sent, round ? &more : NULL) == 0)
            sent++;
        assert_int_equal(sent, 1000 / 64);
        for (unsigned i = 0; i < sent; i++)
            assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 64, i));
        (void)pair_expect(p, &p->b, SLUICE_WRITABLE);
    }
}

PAIR_WITH(pair_connected, an_open_frame_with_one_message_goes_as_one) {
    struct pair *p = *state;
    static const size_t sizes[] = {0, 1, 7, 8, 64, 65, 88, 89, 300, 512};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(pair_send(&p->b, sizes[i], i, &more), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, sizes[i], i));
        assert_true(event.msg->flags &
                    MSG_RX); /* in a receive of its own, not in a frame of many */
    }
}

/* What was received, so that its buffer stays among the loans, and what is longer than is copied without a call. */
PAIR_WITH(pair_connected, what_is_sent_on_joins_an_open_frame) {
    struct pair *p = *state;
    static const size_t sizes[] = {0, 1, 3, 4, 7, 8, 31, 64, 128, 129, 300};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (unsigned i = 0; i < SIZES; i++) {
        assert_int_equal(pair_send(&p->b, sizes[i], i, NULL), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        assert_int_equal(pair_send(&p->a, 64, 100 + i, &more), 0);
        assert_int_equal(sluice_send(p->a.session, event.msg, &more), 0);
        assert_int_equal(sluice_send(p->a.session, event.msg, &more), SLUICE_EINVAL);
        assert_int_equal(pair_send(&p->a, sizes[i], 200 + i, &more), 0);
        assert_true(pair_check(pair_expect(p, &p->b, SLUICE_MESSAGE).msg, 64, 100 + i));
        assert_true(pair_check(pair_expect(p, &p->b, SLUICE_MESSAGE).msg, sizes[i], i));
        assert_true(pair_check(pair_expect(p, &p->b, SLUICE_MESSAGE).msg, sizes[i], 200 + i));
        pair_turns(p, 4);
    }
}

/* The buffer of a message that was copied goes to a thread that waits for one, and does not stay with the loop. */
PAIR_WITH(pair_connected, a_copied_message_is_memory_for_who_waits) {
    struct pair *p = *state;
    struct pool *pool = p->b.node->pool;
    struct pool_stats before, after;
    for (unsigned i = 0; i < 10; i++) {
        sluice_msg *msg;
        assert_int_equal(pair_send(&p->b, 64, 2 * i, &more), 0);
        assert_int_equal(sluice_alloc(p->b.node, 64, &msg), 0);
        pair_fill_bytes(sluice_data(msg), 64, 2 * i + 1);
        pool_wait(pool, 64);
        pool_get_stats(pool, &before);
        assert_int_equal(sluice_send(p->b.session, msg, &more), 0);
        assert_false(pool_cache_has(p->b.loop->cache));
        pool_get_stats(pool, &after);
        assert_int_equal(after.alloc_wakeups, before.alloc_wakeups + 1);
        for (unsigned k = 0; k < 2; k++)
            assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 64, 2 * i + k));
        pair_turns(p, 4);
    }
}

/* Tagged, large and other threads' messages close an open frame, and none of them overtakes it. */
TEST(an_open_frame_keeps_its_place) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 64));
    pair_connect(&p, PAIR_LINK(.credits = 64));
    for (unsigned round = 0; round < 20; round++) {
        const sluice_send_options tagged = {
            .size = sizeof tagged, .flags = SLUICE_MORE, .tag = round + 1};
        const size_t sizes[] = {64, 64, round % 3 ? 64 : 20000, 10, 64};
        const sluice_send_options *options[] = {&more, &more, &tagged, &more,
                                                round & 1 ? &more : NULL};
        for (unsigned i = 0; i < 5; i++)
            assert_int_equal(pair_send(&p.b, sizes[i], 5 * round + i, options[i]), 0);
        for (unsigned i = 0; i < 5; i++)
            assert_true(
                pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, sizes[i], 5 * round + i));
        sluice_event event = pair_expect(&p, &p.b, SLUICE_SENT);
        must_data_equal(event.tag, round + 1);
        assert_int_equal(event.status, SLUICE_OK);
    }
    pair_close(&p);
}

/* What lies in an open frame was accepted: a grace delivers it, and without one it gives its window back. */
TEST(an_open_frame_ends_as_what_is_queued_does) {
    for (unsigned graceful = 0; graceful < 2; graceful++) {
        struct pair p;
        pair_open(&p, PAIR_NODE(), PAIR_LINK());
        pair_connect(&p, PAIR_LINK());
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(pair_send(&p.b, 64, i, &more), 0);
        sluice_hangup(p.b.session, graceful ? 1000000000 : 0);
        assert_int_equal(pair_send(&p.b, 64, 9, &more), SLUICE_ECLOSED);
        assert_int_equal(pair_send(&p.b, 64, 9, NULL), SLUICE_ECLOSED);
        for (unsigned i = 0; graceful && i < 3; i++)
            assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, i));
        (void)pair_expect(&p, &p.b, SLUICE_CLOSED); /* debug builds assert an empty window */
        sluice_event event;
        do /* without a grace some may still have gone */
            assert_true(pair_next(&p, &p.a, &event));
        while (event.type == SLUICE_MESSAGE && !graceful);
        assert_int_equal(event.type, SLUICE_CLOSED);
        pair_close(&p);
    }
}

/* Of some hundred messages more are in a frame than are read and lent at once; their sizes change, and some are kept. */
TEST(a_frame_of_hundreds_is_taken_apart_in_order) {
    enum { COUNT = 400, SOME = 100, KEPT = 8 };
    static const int rooms[] = {256, 7, 1, 64};
    for (unsigned k = 0; k < sizeof rooms / sizeof *rooms; k++) {
        struct pair p;
        sluice_event events[256];
        sluice_msg *kept[KEPT];
        unsigned received = 0, keeps = 0;
        pair_open(&p, PAIR_NODE(), PAIR_LINK());
        pair_connect(&p, PAIR_LINK(.window_messages = COUNT));
        pair_turns(&p, 20);
        for (unsigned i = 0; i < COUNT; i++)
            assert_int_equal(pair_send(&p.b, i / SOME % 2 ? i % 3 : 1, i, &more), 0);
        while (received < COUNT) {
            int n = sluice_poll(p.a.loop, events, rooms[k], 0);
            for (int i = 0; i < n; i++, received++) {
                size_t bytes = received / SOME % 2 ? received % 3 : 1;
                assert_int_equal(events[i].type, SLUICE_MESSAGE);
                assert_int_equal(events[i].bytes, bytes);
                assert_true(pair_check(events[i].msg, bytes, received));
                if (received % 50 == 7) {
                    sluice_keep(events[i].msg);
                    kept[keeps++] = events[i].msg;
                }
            }
            pair_turn(&p);
        }
        assert_int_equal(loop_totals(p.a.loop)->messages_received, COUNT);
        assert_true(loop_totals(p.b.loop)->posts < 20); /* they did share frames */
        assert_int_equal(keeps, KEPT);
        for (unsigned i = 0; i < KEPT; i++) {
            unsigned at = 7 + 50 * i;
            assert_true(pair_check(kept[i], at / SOME % 2 ? at % 3 : 1, at));
            sluice_free(kept[i]);
        }
        pair_settle(&p);
        pair_close(&p);
    }
}

/* The last handle a thread used is remembered, and stands for its own session only. */
PAIR_WITH(pair_opened, a_handle_that_was_used_last_does_not_outlive_its_session) {
    struct pair *p = *state;
    for (unsigned round = 0; round < 3; round++) {
        pair_connect(p, PAIR_LINK(.flags = SLUICE_ONCE));
        sluice_session old = p->b.session;
        assert_int_equal(pair_send(&p->b, 64, round, NULL), 0);
        assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 64, round));
        sluice_hangup(old, 0);
        (void)pair_expect(p, &p->b, SLUICE_CLOSED);
        (void)pair_expect(p, &p->a, SLUICE_CLOSED);
        pair_turns(p, 64);
        p->b.session = old;
        assert_int_equal(pair_send(&p->b, 64, 0, NULL), SLUICE_ECLOSED);
    }
}
