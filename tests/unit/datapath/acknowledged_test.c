/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * acknowledged_test.c - sessions whose sides keep what they have sent until the other's library has said that it has it: what SENT
 * means there, when a side says so, and that nothing is let go before.
 */
#include "support/memory.h"

#include "datapath/session/acknowledged.h"
#include "datapath/tx/unacked.h"

#define RESUME_NS 1000000000ull
#define MS 1000000ull

enum { TURNS = 200, WINDOW = 8, MANY = 500 };

static struct connection *connection_of(struct side *side) {
    return pair_session(side)->connection;
}

static void open_kept(struct pair *p, const sluice_link_options *link) {
    pair_open(p, PAIR_NODE(), link);
    pair_connect(p, link);
    assert_true(connection_keeps(connection_of(&p->a)));
    assert_true(connection_keeps(connection_of(&p->b)));
}

/* Only this side's loop turns; the device works by itself. What comes is counted. */
static unsigned events_of(struct side *side, unsigned turns) {
    sluice_event event;
    unsigned count = 0;
    for (unsigned i = 0; i < turns; i++) {
        count += sluice_poll(side->loop, &event, 1, 0) == 1;
        sched_yield();
    }
    return count;
}

/* Until the device is done with everything that side has posted. */
static void await_device(struct side *side) {
    struct connection *c = connection_of(side);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (unacked_done(c) != c->sq.tail) {
        assert_int_equal(events_of(side, 1), 0);
        assert_true(env_now(&env_default) < limit);
    }
}

/* A message in one frame, in fragments, and one that is announced. */
static const size_t sizes[] = {1, 4000, 60000, 1 << 20};

TEST(sent_says_that_the_peers_library_has_it) {
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct pair p;
        open_kept(&p, PAIR_LINK(.resume_ns = RESUME_NS));
        assert_int_equal(pair_send(&p.b, sizes[i], i, SLUICE_SEND(.tag = 7)), 0);
        if (sizes[i] < 8000) { /* the others wait for credits of the peer in any case */
            await_device(&p.b);
            assert_int_equal(events_of(&p.b, TURNS), 0);
        }
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, sizes[i], i));
        sluice_event event = pair_expect(&p, &p.b, SLUICE_SENT);
        assert_int_equal(event.status, 0);
        assert_int_equal(event.tag, 7);
        pair_close(&p);
    }
}

TEST(only_where_both_sides_want_it) {
    for (unsigned who = 0; who < 2; who++) {
        struct pair p;
        pair_open(&p, PAIR_NODE(), PAIR_LINK(.resume_ns = who ? RESUME_NS : 0));
        pair_connect(&p, PAIR_LINK(.resume_ns = who ? 0 : RESUME_NS));
        assert_false(connection_keeps(connection_of(&p.a)));
        assert_false(connection_keeps(connection_of(&p.b)));
        assert_int_equal(pair_send(&p.b, 64, 1, SLUICE_SEND(.tag = 7)), 0);
        if (!pair_is_like(
                "iwarp")) { /* whose outcomes need the peer's device, as it needs its turns */
            uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
            while (events_of(&p.b, 1) == 0)
                assert_true(env_now(&env_default) < limit);
        }
        pair_close(&p);
    }
}

/* ---- saying it --------------------------------------------------------------------------------- */

/* Both ways nothing is on its way and nothing is owed. */
static void settle(struct pair *p) {
    struct connection *a = connection_of(&p->a), *b = connection_of(&p->b);
    pair_clock += 2 * MS;
    pair_await(p, a->tx.sequence == b->rx.sequence && b->tx.sequence == a->rx.sequence &&
                      a->tx.acked == a->tx.sequence && b->tx.acked == b->tx.sequence);
}

/* Many plain messages from b to a, one at a time; returns how many frames without a message came back for them. */
static uint32_t stream(struct pair *p, unsigned count, uint64_t step) {
    struct connection *b = connection_of(&p->b);
    uint32_t before = b->recv.controls;
    for (unsigned i = 0; i < count; i++) {
        while (pair_send(&p->b, 64, i, NULL) == SLUICE_EAGAIN)
            pair_turn(p);
        assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 64, i));
        pair_clock += step;
    }
    return b->recv.controls - before;
}

TEST(a_side_that_sends_nothing_says_so_after_32_frames_or_a_millisecond) {
    struct pair p;
    /* With a window of which a quarter is more than 32, and credits that say nothing earlier. */
    const sluice_link_options *link = PAIR_LINK(.resume_ns = RESUME_NS, .window_messages = 4096,
                                                .credits = 1024, .keepalive_ns = SLUICE_OFF);
    open_kept(&p, link);
    stream(&p, MANY, 0);
    settle(&p);
    pair_frozen = pair_now(NULL);
    struct connection *b = connection_of(&p.b);
    for (unsigned round = 0; round < 20; round++) {
        uint32_t acked = b->tx.acked;
        stream(&p, 1, 0);
        pair_turns(&p, TURNS);
        if (b->tx.acked == acked) { /* no credit was returned just now */
            assert_int_equal(b->tx.acked, acked);
            pair_clock += MS - 1;
            pair_turns(&p, TURNS);
            assert_int_equal(b->tx.acked, acked);
            pair_clock += 1;
        }
        pair_await(&p, b->tx.acked == acked + 1);
    }
    b->unacked.asked = b->tx.sequence + 2 * MANY; /* it does not ask for more */
    for (unsigned i = 0; i < MANY; i++) {
        stream(&p, 1, 0);
        pair_await(&p, b->tx.sequence - b->tx.acked < 32);
    }
    pair_frozen = 0;
    pair_close(&p);
}

TEST(what_is_wanted_is_asked_for) {
    struct pair p;
    open_kept(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    settle(&p);
    pair_frozen = pair_now(NULL); /* no millisecond passes */
    for (unsigned i = 1; i <= MANY; i++) {
        assert_int_equal(pair_send(&p.b, 64, i, SLUICE_SEND(.tag = i)), 0);
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, i));
        assert_int_equal(pair_expect(&p, &p.b, SLUICE_SENT).tag, i);
    }
    pair_frozen = 0;
    pair_close(&p);
}

TEST(a_small_window_opens_without_a_wait) {
    for (uint32_t window = 1; window <= 2 * WINDOW; window++) {
        struct pair p;
        open_kept(&p, PAIR_LINK(.resume_ns = RESUME_NS, .window_messages = window));
        settle(&p);
        pair_frozen = pair_now(NULL);
        for (unsigned i = 0; i < MANY; i++) {
            pair_await(&p, pair_send(&p.b, 64, i, NULL) == 0); /* or it stands still */
            assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, i));
        }
        pair_frozen = 0;
        pair_close(&p);
    }
}

/* ---- keeping it -------------------------------------------------------------------------------- */

TEST(the_window_is_used_until_it_is_acknowledged) {
    struct pair p;
    open_kept(&p, PAIR_LINK(.resume_ns = RESUME_NS, .window_messages = WINDOW));
    for (unsigned i = 0; i < WINDOW; i++)
        assert_int_equal(pair_send(&p.b, 64, i, NULL), 0);
    assert_int_equal(pair_send(&p.b, 64, 0, NULL), SLUICE_EAGAIN);
    assert_int_equal(events_of(&p.b, TURNS), 0);
    assert_int_equal(pair_info(p.b.session).window_messages_used, WINDOW);
    for (unsigned i = 0; i < WINDOW; i++)
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, i));
    pair_expect(&p, &p.b, SLUICE_WRITABLE);
    pair_await(&p, pair_info(p.b.session).window_messages_used == 0);
    pair_close(&p);
}

static sluice_msg *await_message(struct pair *p, struct side *side) {
    sluice_event event = {.type = SLUICE_WRITABLE};
    while (event.type == SLUICE_WRITABLE)
        assert_true(pair_next(p, side, &event));
    assert_int_equal(event.type, SLUICE_MESSAGE);
    return event.msg;
}

/* Also what is only a copy of the caller's, and with nothing but the messages themselves to acknowledge each other. */
static void send_back_and_forth(uint32_t window) {
    struct pair p;
    uint8_t bytes[64];
    open_kept(&p, PAIR_LINK(.resume_ns = RESUME_NS, .window_messages = window));
    assert_int_equal(pair_send(&p.b, sizeof bytes, 0, SLUICE_SEND(.tag = 1)), 0);
    pair_expect(&p, &p.a, SLUICE_MESSAGE);
    pair_expect(&p, &p.b, SLUICE_SENT); /* the only one, though its buffer is used again */
    settle(&p);
    pair_frozen = pair_now(NULL);
    for (unsigned i = 0; i < 4 * MANY; i++) {
        memset(bytes, (int)i, sizeof bytes);
        assert_int_equal(sluice_send_copy(p.b.session, bytes, sizeof bytes, NULL), 0);
        sluice_msg *came = await_message(&p, &p.a);
        if (window >
            1) { /* else there may be no room yet, and it cannot be waited for with the message */
            assert_int_equal(sluice_send(p.a.session, came, NULL), 0);
            assert_int_equal(sluice_send(p.a.session, came, NULL), SLUICE_EINVAL);
        } else {
            pair_await(&p, sluice_send_copy(p.a.session, bytes, sizeof bytes, NULL) == 0);
        }
        came = await_message(&p, &p.b);
        assert_int_equal(sluice_size(came), sizeof bytes);
        assert_memory_equal(sluice_data(came), bytes, sizeof bytes);
        pair_turns(&p, TURNS);
    }
    pair_frozen = 0;
    /* Nobody asked for a completion of the last ones: what is acknowledged has ended all the same. */
    pair_await(&p, pair_info(p.a.session).window_messages_used == 0 &&
                       pair_info(p.b.session).window_messages_used == 0);
    pair_close(&p);
}

TEST(a_message_that_was_received_is_sent_on_and_is_not_the_callers_any_more) {
    for (uint32_t window = 1; window <= 128; window *= 2)
        send_back_and_forth(window);
}

/* A peer that says it before it can know would have other memory sent to it, that of another peer perhaps. */
TEST(memory_that_the_device_reads_is_kept_whatever_a_peer_says) {
    struct pair p;
    open_kept(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    settle(&p);
    struct connection *b = connection_of(&p.b);
    uint32_t head = b->sq.head;
    assert_int_equal(pair_send(&p.b, 4000, 1, SLUICE_SEND(.tag = 7)), 0);
    b->tx.acked = b->tx.sequence; /* as the peer says; no completion was looked at */
    acknowledged_flush(p.b.loop, pair_session(&p.b));
    assert_int_equal(b->sq.head, head);
    pair_expect(&p, &p.a, SLUICE_MESSAGE);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_SENT).status, 0);
    pair_close(&p);
}

TEST(an_operation_does_not_wait_for_the_acknowledgement_of_messages) {
    struct memory m;
    struct pair *p = &m.pair;
    open_kept(p, PAIR_LINK(.resume_ns = RESUME_NS));
    memory_regions(&m, 4096, memory_rights(&m));
    settle(p);
    pair_frozen = pair_now(NULL);
    memory_fill(memory_there(&m), 4096, 3);
    assert_int_equal(pair_send(&p->b, 64, 1, NULL), 0);
    assert_int_equal(sluice_get(p->b.session, m.here, 0, 4096, &m.token, 0, SLUICE_SEND(.tag = 5)),
                     0);
    memory_done(&m, 5, 0);
    assert_true(memory_holds(memory_here(&m), 4096, 3));
    pair_frozen = 0;
    assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 64, 1));
    memory_close(&m);
}

/* ---- the end ----------------------------------------------------------------------------------- */

TEST(a_hangup_waits_for_the_acknowledgement) {
    struct pair p;
    open_kept(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    assert_int_equal(pair_send(&p.b, 64, 1, SLUICE_SEND(.tag = 7)), 0);
    sluice_hangup(p.b.session, 60000 * MS);
    await_device(&p.b);
    assert_int_equal(events_of(&p.b, TURNS), 0);
    assert_int_equal(pair_session(&p.b)->state, SESSION_FLUSHING);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, 1));
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_SENT).status, 0);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    assert_int_equal(pair_expect(&p, &p.a, SLUICE_CLOSED).reason, SLUICE_REASON_PEER_CLOSE);
    pair_close(&p);
}

TEST(what_left_and_was_not_acknowledged_is_unknown) {
    struct pair p;
    open_kept(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    assert_int_equal(pair_send(&p.b, 64, 1, SLUICE_SEND(.tag = 7)), 0);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, 1));
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_SENT).status, 0);
    assert_int_equal(pair_send(&p.b, 64, 2, SLUICE_SEND(.tag = 8)), 0);
    await_device(&p.b);
    sluice_hangup(p.b.session, 0); /* which waits for nothing */
    for (;;) {
        sluice_event event;
        int n = sluice_poll(p.b.loop, &event, 1, 0);
        cm_progress(p.b.node->cm, 0);
        pair_clock += 10 * MS;
        if (n == 1) {
            assert_int_equal(event.type, SLUICE_SENT);
            assert_int_equal(event.tag, 8);
            assert_int_equal(event.status, SLUICE_EUNKNOWN);
            break;
        }
    }
    pair_close(&p);
}

/* Some of its fragments were sent, and the device is done with them, when it ends. */
TEST(a_message_that_is_cut_off_has_one_outcome) {
    enum { LARGE = 200000 };
    for (unsigned polled = 0; polled < 2; polled++) {
        struct pair p;
        sluice_event event;
        pair_open(&p, PAIR_NODE(.rendezvous_bytes = 1 << 20), PAIR_LINK(.resume_ns = RESUME_NS));
        pair_connect(&p, PAIR_LINK(.resume_ns = RESUME_NS));
        assert_int_equal(pair_send(&p.b, LARGE, 1, SLUICE_SEND(.tag = 7)), 0);
        assert_non_null(pair_session(&p.b)->tx.queue.head); /* it waits for credits */
        pair_session(&p.b)->window.wants_signal = true;
        loop_dirty(p.b.loop, pair_session(&p.b));
        await_device(&p.b);
        for (unsigned i = 0; polled && i < TURNS;
             i++) { /* the acknowledgement is on its way by then */
            pair_clock += MS;
            assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
        }
        sluice_hangup(p.b.session, 0);
        event.type = SLUICE_UP;
        while (event.type != SLUICE_SENT) {
            cm_progress(p.a.node->cm, 0);
            cm_progress(p.b.node->cm, 0);
            pair_clock += 10 * MS;
            event.type = SLUICE_UP;
            assert_true(sluice_poll(p.b.loop, &event, 1, 0) >= 0);
        }
        assert_int_equal(event.tag, 7);
        assert_int_equal(event.status, SLUICE_ECLOSED);
        pair_close(&p);
    }
}

/* ---- what is no such frame --------------------------------------------------------------------- */

TEST(a_frame_that_asks_where_that_was_not_agreed_is_refused) {
    static const struct frame frames[] = {
        {.type = FRAME_DATA, .flags = FRAME_ASKS, .length = 8},
        {.type = FRAME_DATA, .flags = FRAME_ASKS | FRAME_LAST, .length = 8},
        {.type = FRAME_COALESCED, .flags = FRAME_ASKS, .length = 24},
        {.type = FRAME_ALIVE, .flags = FRAME_ASKS},
    };
    for (unsigned i = 0; i < sizeof frames / sizeof *frames; i++) {
        for (unsigned kept = 0; kept < 2; kept++) {
            struct pair p;
            uint8_t payload[24] = {FRAME_DATA, 0, 0, 0, 8};
            pair_open(&p, PAIR_NODE(), PAIR_LINK(.resume_ns = kept ? RESUME_NS : 0));
            pair_connect(&p, PAIR_LINK(.resume_ns = kept ? RESUME_NS : 0));
            struct connection *b = connection_of(&p.b);
            b->tx.sequence += FRAME_NUMBERED >> frames[i].type & 1;
            (void)pair_forge(&p.b, &frames[i], payload, sizeof payload);
            if (kept && frames[i].flags == FRAME_ASKS && frames[i].type != FRAME_ALIVE) {
                pair_expect(&p, &p.a, SLUICE_MESSAGE);
                pair_await(&p, b->tx.acked == b->tx.sequence);
            } else {
                assert_int_equal(pair_expect(&p, &p.a, SLUICE_CLOSED).reason,
                                 SLUICE_REASON_PROTOCOL);
            }
            pair_close(&p);
        }
    }
}
