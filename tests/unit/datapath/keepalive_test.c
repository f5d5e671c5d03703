/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Keepalive: sessions that live stay, peers that do not are noticed within two intervals, and it
 * costs traffic nothing. The clock goes in steps of a sixteenth of an interval; each step turns both
 * nodes until what is on its way has arrived.
 */
#include "support/pair.h"
#include "support/log.h"
#include "support/pool_stats.h"
#include "datapath/session/keepalive.h"
#include "datapath/session/open.h"
#include "datapath/tx/post.h"

#define SECOND 1000000000ull
#define INTERVAL (100 * SECOND) /* so long that the real time a test takes does not count */
#define TICK (INTERVAL / 16)
#define TICKS(intervals) ((unsigned)(16 * (intervals)))

/* ---- driving --------------------------------------------------------------------------------- */

static uint32_t posted(struct side *side) {
    return pair_session(side)->connection->sq.tail - pair_session(side)->connection->sq.frameless;
}

static uint32_t arrived(struct side *side) {
    struct session *s = pair_session(side);
    return s->connection->rx.sequence + s->connection->recv.controls;
}

/* Only one side's loop runs; its events are counted, nothing else comes. */
static bool turn_one(struct side *side) {
    sluice_event event;
    int n = sluice_poll(side->loop, &event, 1, 0);
    assert_true(n >= 0);
    if (n == 1)
        pair_note(side, &event);
    return n == 1;
}

/* Until every frame that was posted has arrived at the other side. */
static void quiesce(struct pair *p) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    for (;;) {
        bool busy = turn_one(&p->a);
        busy |= turn_one(&p->b);
        if (p->a.closed || p->b.closed ||
            (!busy && arrived(&p->b) == posted(&p->a) && arrived(&p->a) == posted(&p->b)))
            return;
        if (env_now(&env_default) > limit)
            fail_msg("%u frames of %u arrived, %u of %u", arrived(&p->b), posted(&p->a),
                     arrived(&p->a), posted(&p->b));
        cm_progress(p->a.node->cm, 0);
        cm_progress(p->b.node->cm, 0);
    }
}

static void tick(struct pair *p) {
    pair_clock += TICK;
    turn_one(&p->a);
    turn_one(&p->b);
    quiesce(p);
}

static void assert_up(struct pair *p) {
    assert_int_equal(p->a.closed + p->b.closed, 0);
    assert_int_equal(pair_session(&p->a)->state, SESSION_UP);
    assert_int_equal(pair_session(&p->b)->state, SESSION_UP);
}

static void open_with(struct pair *p, uint64_t at_a, uint64_t at_b) {
    pair_open(p, PAIR_NODE(), PAIR_LINK(.keepalive_ns = at_a));
    pair_connect(p, PAIR_LINK(.keepalive_ns = at_b));
    quiesce(p);
}

static uint64_t agreed(struct side *side) {
    sluice_session_info info = pair_info(side->session);
    return info.keepalive_ns;
}

/* Credits are with the sender, or owed, or about to be: none got lost. */
static void assert_credits_complete(struct side *sender, struct side *receiver) {
    struct session *s = pair_session(sender), *r = pair_session(receiver);
    assert_int_equal(s->connection->tx.credits + r->connection->rx.unreported +
                         r->connection->rx.repost_count,
                     r->connection->credits.granted);
    assert_int_equal(r->connection->rx.granted, s->connection->tx.credits);
}

static int both_keep_alive(void **state) {
    static struct pair of_test;
    *state = &of_test;
    open_with(*state, INTERVAL, INTERVAL);
    return 0;
}

/* ---- staying --------------------------------------------------------------------------------- */

PAIR_WITH(both_keep_alive, idle_sessions_stay_and_say_so) {
    struct pair *p = *state;
    assert_int_equal(agreed(&p->a), INTERVAL);
    assert_int_equal(agreed(&p->b), INTERVAL);
    uint32_t a = posted(&p->a), b = posted(&p->b);
    for (unsigned i = 0; i < TICKS(100); i++)
        tick(p);
    assert_up(p);
    /* One frame in 3/4 to 7/8 of an interval; a credit now and then is one, too. */
    assert_uint_in_range(posted(&p->a) - a, 100, 100 * 4 / 3 + 1);
    assert_uint_in_range(posted(&p->b) - b, 100, 100 * 4 / 3 + 1);
    assert_credits_complete(&p->a, &p->b);
    assert_credits_complete(&p->b, &p->a);
    assert_int_equal(pair_send(&p->a, 100, 1, NULL), 0);
    sluice_event event = pair_expect(p, &p->b, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 100, 1));
}

TEST(few_credits_are_enough) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.keepalive_ns = INTERVAL, .credits = 4));
    pair_connect(&p, PAIR_LINK(.keepalive_ns = INTERVAL, .credits = 5));
    quiesce(&p);
    for (unsigned i = 0; i < TICKS(50); i++)
        tick(&p);
    assert_up(&p);
    assert_credits_complete(&p.a, &p.b);
    assert_credits_complete(&p.b, &p.a);
    pair_close(&p);
}

TEST(the_longer_interval_counts) {
    struct pair p;
    open_with(&p, INTERVAL, INTERVAL / 4);
    assert_int_equal(agreed(&p.a), INTERVAL);
    assert_int_equal(agreed(&p.b), INTERVAL);
    uint32_t a = posted(&p.a), b = posted(&p.b);
    for (unsigned i = 0; i < TICKS(10); i++)
        tick(&p);
    assert_uint_in_range(posted(&p.a) - a, 10, 14);
    assert_uint_in_range(posted(&p.b) - b, 10, 14);
    pair_close(&p);
}

TEST(off_on_one_side_is_off) {
    for (int i = 0; i < 3; i++) {
        struct pair p;
        open_with(&p, i != 0 ? SLUICE_OFF : INTERVAL, i != 1 ? SLUICE_OFF : INTERVAL);
        assert_int_equal(agreed(&p.a), 0);
        assert_int_equal(agreed(&p.b), 0);
        uint32_t a = posted(&p.a), b = posted(&p.b);
        for (unsigned k = 0; k < TICKS(10); k++)
            tick(&p);
        assert_up(&p);
        assert_int_equal(posted(&p.a) - a + posted(&p.b) - b, 0);
        assert_int_equal(p.a.loop->keepalive_checks + p.b.loop->keepalive_checks, 0);
        pair_close(&p);
    }
}

TEST(the_default_is_ten_seconds) {
    struct pair p;
    open_with(&p, 0, 0);
    assert_int_equal(agreed(&p.a), 10 * SECOND);
    assert_int_equal(agreed(&p.b), 10 * SECOND);
    pair_close(&p);
}

/* ---- traffic --------------------------------------------------------------------------------- */

PAIR_WITH(both_keep_alive, traffic_is_not_added_to) {
    struct pair *p = *state;
    uint32_t a = posted(&p->a), b = posted(&p->b);
    for (unsigned i = 0; i < TICKS(20); i++) {
        if (i % 8 == 0) { /* one message each way in half an interval */
            assert_int_equal(pair_send(&p->a, 10, i, NULL), 0);
            assert_int_equal(pair_send(&p->b, 10, i, NULL), 0);
        }
        tick(p);
    }
    assert_int_equal(posted(&p->a) - a, TICKS(20) / 8);
    assert_int_equal(posted(&p->b) - b, TICKS(20) / 8);
    assert_int_equal(pair_session(&p->a)->connection->recv.controls +
                         pair_session(&p->b)->connection->recv.controls,
                     0);
}

PAIR_WITH(both_keep_alive, who_only_receives_says_that_it_lives) {
    struct pair *p = *state;
    uint32_t a = posted(&p->a), b = posted(&p->b);
    for (unsigned i = 0; i < TICKS(20); i++) {
        if (i % 8 == 0)
            assert_int_equal(pair_send(&p->b, 10, i, NULL), 0);
        tick(p);
    }
    assert_up(p);
    assert_int_equal(posted(&p->b) - b, TICKS(20) / 8); /* nothing but its messages */
    assert_uint_in_range(posted(&p->a) - a, 20, 27);
}

/* ---- dying ----------------------------------------------------------------------------------- */

/* The other side's loop is not turned any more: returns the sixteenths until CLOSED. */
static unsigned ticks_until_closed(struct side *side, sluice_event *end, unsigned *outcomes,
                                   unsigned *unknown) {
    for (unsigned ticks = 0; ticks < TICKS(5); ticks++) {
        /* Ending takes both threads of the node; nothing of it takes the clock. */
        for (unsigned i = 0; i < 2000; i++) {
            sluice_event event;
            cm_progress(side->node->cm, 0);
            if (sluice_poll(side->loop, &event, 1, 0) != 1)
                continue;
            pair_note(side, &event);
            if (event.type == SLUICE_CLOSED) {
                *end = event;
                return ticks;
            }
            assert_int_equal(event.type, SLUICE_SENT);
            ++*outcomes;
            *unknown += event.status == SLUICE_EUNKNOWN;
        }
        pair_clock += TICK;
    }
    fail_msg("it is not noticed");
    return 0;
}

TEST(a_silent_peer_is_closed) {
    for (int i = 0; i < 4; i++) {
        struct pair p;
        sluice_event end;
        unsigned outcomes = 0, unknown = 0;
        open_with(&p, INTERVAL, INTERVAL);
        struct side *side = i & 1 ? &p.a : &p.b;
        for (unsigned k = 0; k < TICKS(3) + (unsigned)i * 3; k++)
            tick(&p);
        /* Some that its device takes, and more that it has no credits for. */
        for (unsigned k = 0; i >= 2 && k < 40; k++)
            assert_int_equal(pair_send(side, k == 5 ? 100000 : 100, k, SLUICE_SEND(.tag = k + 1)),
                             0);
        unsigned ticks = ticks_until_closed(side, &end, &outcomes, &unknown);
        assert_uint_in_range(ticks, TICKS(1) - TICKS(1) * 7 / 8 + TICKS(1) / 2, TICKS(2));
        assert_int_equal(end.reason, SLUICE_REASON_KEEPALIVE);
        assert_int_equal(end.status, SLUICE_EUNKNOWN);
        assert_int_equal(end.vendor, 0);
        /* The stack has nothing to say: nothing is what happened. */
        sluice_session_info info = pair_info(end.session);
        assert_int_equal(info.cm_event, -1);
        assert_int_equal(info.wc_status, -1);
        char text[sizeof info.close_text];
        snprintf(text, sizeof text, "nothing was heard of the peer for two intervals of %llu ms",
                 (unsigned long long)(INTERVAL / 1000000));
        assert_string_equal(info.close_text, text);
        must_data_equal(outcomes, i >= 2 ? 40 : 0);
        pair_turn(&p);
        for (unsigned k = 0; k < 100; k++) {
            sluice_event event;
            cm_progress(side->node->cm, 0);
            assert_int_equal(sluice_poll(side->loop, &event, 1, 0), 0);
        }
        assert_int_equal(side->closed, 1);
        assert_int_equal(session_table_used_count(side->node->index), 0);
        pair_close(&p);
    }
}

struct watch { /* of the handler of a side that does not collect events */
    struct side *side;
    sluice_session up, closed;
    sluice_reason reason;
    uint64_t messages;
};

static void watch_events(const sluice_event *event, void *arg) {
    struct watch *watch = arg;
    watch->messages += event->type == SLUICE_MESSAGE;
    if (event->type == SLUICE_UP)
        watch->up = event->session;
    if (event->type == SLUICE_CLOSED) {
        watch->closed = event->session;
        watch->reason = event->reason;
    }
}

/*
 * The talker sends until a whole batch of it lies in the listener's CQ: a send whose completion is back
 * was delivered, so it does if so many more are back than the listener has taken.
 */
static void talk(struct side *talker, struct session *heard) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    sluice_event event;
    do {
        while (pair_send(talker, 10, 0, NULL) == 0)
            ;
        (void)sluice_poll(talker->loop, &event, 1, 0);
        assert_true(env_now(&env_default) < limit);
    } while (pair_session(talker)->connection->sq.head - heard->connection->rx.sequence -
                 heard->connection->recv.controls - LOOP_WC_BATCH >=
             UINT32_MAX / 2);
}

/* Another session of the loop keeps it busy. Returns the turns that found nothing all the same. */
static uint64_t silence_beside_traffic(void) {
    struct pair p;
    struct side c; /* a third node, never turned again */
    struct watch watch = {0};
    pair_open(&p, PAIR_NODE(),
              PAIR_LINK(.keepalive_ns = INTERVAL, .credits = 256, .handler = watch_events,
                        .handler_arg = &watch, .flags = SLUICE_ISOLATED));
    pair_open_side(&c, PAIR_NODE());
    struct side b = p.b;
    p.b = c;
    for (int i = 0; i < 2; i++) {
        watch.up.id = 0;
        pair_dial(&p, PAIR_LINK(.keepalive_ns = INTERVAL, .window_messages = 256));
        pair_expect(&p, &p.b, SLUICE_UP);
        while (watch.up.id == 0)
            pair_turn(&p);
        if (i == 0) {
            c = p.b;
            p.b = b;
        }
        p.a.session = i == 0 ? watch.up : p.a.session; /* the silent one */
    }
    pair_grant_all(&p, pair_session(&p.b), session_table_find(watch.up.id));
    while (pair_send(&p.b, 10, 0, NULL) == 0)
        ;
    while (watch.messages == 0)
        pair_turn(&p);
    struct session *heard = session_table_find(watch.up.id);
    uint64_t empty = p.a.loop->totals.empty_progress_calls, waiting = 0;
    unsigned ticks = 0;
    for (; ticks < TICKS(3) && watch.closed.id == 0; ticks++) {
        pair_clock += TICK;
        for (unsigned i = 0; i < 24 && watch.closed.id == 0; i++) {
            talk(&p.b, heard);
            cm_progress(p.a.node->cm, 0);
            assert_int_equal(sluice_poll(p.a.loop, NULL, 0, 0), 0);
            waiting += p.a.loop->wc_count == 0;
        }
    }
    assert_int_equal(watch.closed.id, p.a.session.id);
    assert_int_equal(watch.reason, SLUICE_REASON_KEEPALIVE);
    assert_uint_in_range(ticks, TICKS(1), TICKS(2));
    assert_true(watch.messages > 1000);
    empty = p.a.loop->totals.empty_progress_calls - empty;
    pair_close(&p);
    sluice_close(c.node, 0);
    return empty + waiting;
}

/*
 * No turn finds nothing, and none hides the silence. The device's polls return nothing if another thread is inside of the
 * CQ, even where something waits: then the loop was not kept busy, and it is tried again.
 */
TEST(a_silent_peer_is_closed_beside_traffic) {
    for (unsigned tries = 0; silence_beside_traffic() != 0; tries++)
        assert_true(tries < 10);
}

/* ---- not blaming others ---------------------------------------------------------------------- */

TEST(a_loop_that_was_away_blames_nobody) {
    for (int i = 0; i < 8; i++) {
        struct pair p;
        open_with(&p, INTERVAL, INTERVAL);
        for (int k = 0; k < 16 + i; k++)
            tick(&p);
        pair_clock += 5 * INTERVAL;
        struct side *first = i & 1 ? &p.a : &p.b;
        for (int k = 0; k < 10; k++) /* one of them wakes before the other */
            assert_false(turn_one(first));
        for (unsigned k = 0; k < TICKS(4); k++)
            tick(&p);
        assert_up(&p);
        pair_close(&p);
    }
}

PAIR_WITH(both_keep_alive, a_loop_polled_once_in_an_interval_stays_and_notices) {
    struct pair *p = *state;
    sluice_event event;
    for (unsigned i = 0; i < TICKS(20); i++) { /* a rarely, b always */
        pair_clock += TICK;
        for (unsigned k = 0; k < 50; k++)
            assert_false(turn_one(&p->b));
        if (i % 16 == 0)
            assert_false(turn_one(&p->a));
    }
    unsigned polls = 0; /* now b dies */
    for (; polls < 6 && p->a.closed == 0; polls++) {
        pair_clock += INTERVAL;
        int n = sluice_poll(p->a.loop, &event, 1, 0);
        for (unsigned k = 0; k < 2000 && n == 0 && pair_session(&p->a)->state > SESSION_UP; k++) {
            cm_progress(p->a.node->cm, 0);
            n = sluice_poll(p->a.loop, &event, 1, 0);
        }
        if (n == 1)
            pair_note(&p->a, &event);
    }
    assert_int_equal(p->a.closed, 1);
    assert_true(polls <= 4);
}

/* A full array with frames behind it: what has arrived counts though nobody has looked at it. */
TEST(a_backlog_is_no_silence) {
    struct pair p;
    sluice_event event;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.keepalive_ns = INTERVAL, .credits = 512));
    pair_connect(&p, PAIR_LINK(.keepalive_ns = INTERVAL, .window_messages = 512));
    quiesce(&p);
    struct session *s = pair_session(&p.a);
    pair_grant_all(&p, pair_session(&p.b), s);
    for (unsigned i = 0; i < 300; i++)
        assert_int_equal(pair_send(&p.b, 10, i, NULL), 0);
    for (unsigned i = 0; i < 2000; i++)
        assert_true(sluice_poll(p.b.loop, &event, 1, 0) >= 0);
    while (sluice_poll(p.a.loop, &event, 1, 0) != 1)
        assert_int_equal(s->state, SESSION_UP);
    p.a.loop->slow_progress = true;           /* as they are from now on */
    for (unsigned i = 0; i < TICKS(3); i++) { /* one message in 1/16: its session is heard, */
        pair_clock += TICK;
        assert_int_equal(sluice_poll(p.a.loop, &event, 1, 0), 1);
        assert_int_equal(event.type, SLUICE_MESSAGE);
        s->connection->keepalive.rx_seen = s->connection->rx.sequence +
                                           s->connection->recv.controls +
                                           1; /* another's would not be */
    }
    assert_true(s->connection->keepalive.rx_ns + 2 * INTERVAL < pair_now(NULL));
    assert_int_equal(s->state, SESSION_UP);
    pair_close(&p);
}

/* A peer that has no credits cannot speak: whoever keeps them back does not blame it. */
PAIR_WITH(both_keep_alive, a_peer_without_credits_is_not_blamed) {
    struct pair *p = *state;
    unsigned sent = 0;
    pair_grant_all(p, pair_session(&p->b), pair_session(&p->a));
    while (pair_send(&p->b, 10, sent, NULL) == 0)
        sent++;
    for (unsigned i = 0; i < TICKS(60); i++) { /* a takes no events: it holds what came */
        pair_clock += TICK;
        pair_turns(p, 100);
    }
    assert_up(p);
    assert_true(pair_session(&p->b)->connection->tx.credits < 2);  /* it could not speak */
    assert_true(pair_session(&p->a)->connection->tx.credits >= 1); /* the last is for CREDIT */
    for (unsigned i = 0; i < sent; i++) {
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 10, i));
    }
    quiesce(p);
    for (unsigned i = 0; i < TICKS(4); i++)
        tick(p);
    assert_up(p);
    assert_credits_complete(&p->b, &p->a);
}

/* ---- hostile --------------------------------------------------------------------------------- */

TEST(broken_alives_are_refused) {
    static const struct {
        struct frame f;
        size_t payload;
    } cases[] = {
        {{.type = FRAME_ALIVE, .length = 8}, 8},
        {{.type = FRAME_ALIVE, .sequence = 1}, 0},
        {{.type = FRAME_ALIVE, .flags = 1}, 0},
        {{.type = FRAME_ALIVE, .total = 1}, 0},
        {{.type = FRAME_ALIVE, .credits = CREDITS_DEFAULT - CREDITS_INITIAL + 1}, 0},
        {{.type = FRAME_ALIVE, .ack = 1}, 0},
    };
    struct pair p;
    pair_open(&p, PAIR_NODE(.log = log_nothing), PAIR_LINK());
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        pair_connect(&p, PAIR_LINK());
        pair_raw_frame(&p.b, &cases[i].f, FRAME_BYTES + cases[i].payload);
        sluice_event event = pair_expect(&p, &p.a, SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_PROTOCOL);
        pair_expect(&p, &p.b, SLUICE_CLOSED);
    }
    pair_close(&p);
}

TEST(a_flood_of_alives_ends_with_its_credits) {
    static const struct frame f = {.type = FRAME_ALIVE};
    struct pair p;
    pair_open(&p, PAIR_NODE(.log = log_nothing), PAIR_LINK(.keepalive_ns = INTERVAL));
    pair_connect(&p, PAIR_LINK(.keepalive_ns = INTERVAL));
    /* As many as it likes while it keeps to its credits; nobody is told, no memory is taken. */
    uint64_t buffers = pool_in_use(p.a.node->rx_pool);
    for (unsigned i = 0; i < 1000; i++) {
        assert_true(send_control(p.b.loop, pair_session(&p.b), FRAME_ALIVE));
        quiesce(&p);
    }
    assert_up(&p);
    assert_int_equal(pool_in_use(p.a.node->rx_pool), buffers);
    assert_credits_complete(&p.b, &p.a);
    pair_session(&p.a)->connection->rx.granted = 0; /* as if it had been told of none */
    pair_raw_frame(&p.b, &f, FRAME_BYTES);
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_CREDITS);
    pair_close(&p);
}

/* ---- cost ------------------------------------------------------------------------------------ */

/* The sessions are made by hand, without a device: only what looking itself costs is counted. */
PAIR_WITH(pair_opened, a_thousand_idle_sessions_cost_nothing_to_speak_of) {
    struct pair *p = *state;
    enum { N = 1000, SECONDS = 1000 };
    static struct session many[N];
    static struct connection connections[N];
    struct sluice_loop *l = p->a.loop;
    for (unsigned i = 0; i < N; i++) {
        struct session *s = &many[i];
        memset(s, 0, sizeof *s);
        s->connection = &connections[i];
        s->connection->cm.rep.keepalive = 1000;
        s->state = SESSION_UP;
        s->connection->rx.granted = 32;
        keepalive_start(l, s);
        session_attach(l, s);
    }
    for (unsigned i = 0; i < SECONDS * 100; i++) { /* a turn in 10 ms of the test's clock */
        pair_clock += 10000000;
        for (unsigned k = 0; i % 500 == 0 && k < N; k++) {
            many[k].connection->sq.tail++; /* as if both sides sent something */
            many[k].connection->recv.controls++;
        }
        assert_int_equal(sluice_poll(l, NULL, 0, 0), 0);
    }
    assert_uint_in_range(l->keepalive_checks, SECONDS * 8 / 10 - 10, SECONDS * 8 / 10 + 10);
    assert_int_equal(l->keepalive_visits, l->keepalive_checks * N);
    /* 800 visits in a second: at far more than a microsecond for each still below 1 % of a CPU. */
    assert_true(l->keepalive_visits / SECONDS <= 1000);
    l->sessions = NULL;
}
