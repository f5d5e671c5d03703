/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Close may be called at any time, in any state; each session ends with exactly one CLOSED. */
#include "support/pair.h"
#include "support/pool_stats.h"
#include "support/usage.h"
#include "cm/cm_table.h"

/* Names what does not end. */
static void fail_stuck(struct pair *p) {
    struct side *sides[] = {&p->a, &p->b};
    for (int i = 0; i < 2; i++)
        for (struct session *s = sides[i]->loop->sessions; s; s = s->next)
            print_error("%s: session state %u, CM waits for %s, receives %u, sends %u, reason %u, "
                        "ref %llx\n",
                        i ? "b" : "a", s->state, cm_state_name(s->connection->cm.owner.state),
                        s->connection->recv.own.posted,
                        s->connection->sq.tail - s->connection->sq.head, s->close.reason,
                        (unsigned long long)s->ref);
    fail_msg("%u and %u sessions do not end", session_table_used_count(p->a.node->index),
             session_table_used_count(p->b.node->index));
}

/* Turns until neither node has a session; events are counted. */
static void settle(struct pair *p) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (session_table_used_count(p->a.node->index) + session_table_used_count(p->b.node->index) >
           0) {
        sluice_event event;
        struct side *sides[] = {&p->a, &p->b};
        if (env_now(&env_default) >= limit)
            fail_stuck(p);
        cm_progress(p->a.node->cm, 0);
        cm_progress(p->b.node->cm, 0);
        for (int i = 0; i < 2; i++)
            if (sluice_poll(sides[i]->loop, &event, 1, 0) == 1)
                pair_note(sides[i], &event);
    }
}

/* ---- orderly --------------------------------------------------------------------------------- */

PAIR_WITH(pair_opened, both_sides_learn_who_closed) {
    struct pair *p = *state;
    for (int i = 0; i < 4; i++) {
        struct side *closer = i & 1 ? &p->a : &p->b, *other = i & 1 ? &p->b : &p->a;
        pair_connect(p, PAIR_LINK());
        sluice_hangup(closer->session, i < 2 ? 0 : 1000000000);
        sluice_event event = pair_expect(p, other, SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_PEER_CLOSE);
        assert_int_equal(event.status, 0);
        event = pair_expect(p, closer, SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_LOCAL_CLOSE);
        assert_int_equal(event.status, 0);
        pair_expect_nothing(p, &p->a);
        pair_expect_nothing(p, &p->b);
        assert_int_equal(session_table_used_count(p->a.node->index) +
                             session_table_used_count(p->b.node->index),
                         0);
    }
}

TEST(a_grace_delivers_everything_accepted) {
    enum { COUNT = 100 };
    struct pair p;
    unsigned outcomes = 0;
    bool seen[COUNT + 1] = {false}; /* others may overtake a transfer */
    sluice_event event;
    pair_open(&p, PAIR_NODE(.eager_bytes = 1024), PAIR_LINK(.credits = 8));
    pair_connect(&p, PAIR_LINK());
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(pair_send(&p.b, 100 * i, i, SLUICE_SEND(.tag = i + 1)), 0);
    sluice_hangup(p.b.session, SLUICE_OFF);
    for (unsigned i = 0; i < COUNT; i++) {
        event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 100 * i, i));
    }
    event = pair_expect(&p, &p.a, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_CLOSE);
    assert_int_equal(pair_send(&p.b, 1, 1, NULL), SLUICE_ECLOSED);
    while (outcomes < COUNT) {
        event = pair_expect(&p, &p.b, SLUICE_SENT);
        must_data(event.tag >= 1 && event.tag <= COUNT);
        must_data(!seen[event.tag]);
        seen[event.tag] = true;
        outcomes++;
        assert_int_equal(event.status, 0);
    }
    pair_expect(&p, &p.b, SLUICE_CLOSED);
    pair_close(&p);
}

TEST(without_grace_what_is_left_ends_with_an_outcome) {
    enum { COUNT = 100 };
    struct pair p;
    unsigned outcomes = 0, sent = 0, closed = 0;
    sluice_event event;
    pair_open(&p, PAIR_NODE(.eager_bytes = 1024), PAIR_LINK(.credits = 8));
    pair_connect(&p, PAIR_LINK());
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(pair_send(&p.b, 1500, i, SLUICE_SEND(.tag = i + 1)), 0);
    sluice_hangup(p.b.session, 0);
    do {
        assert_true(pair_next(&p, &p.b, &event));
        if (event.type != SLUICE_SENT)
            break;
        outcomes++;
        must_data(event.tag >= 1 && event.tag <= COUNT);
        sent += event.status == 0;
        closed += event.status == SLUICE_ECLOSED;
    } while (1);
    assert_int_equal(event.type, SLUICE_CLOSED);
    must_data_equal(outcomes, COUNT);
    assert_true(closed >= COUNT - 4); /* of 8 credits 6 carry data: 3 messages */
    for (unsigned i = 0; i < sent; i++) {
        event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 1500, i));
    }
    settle(&p);
    pair_close(&p);
}

TEST(a_grace_ends_when_the_peer_does_not_listen) {
    struct pair p;
    unsigned outcomes = 0;
    sluice_event event;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 8));
    pair_connect(&p, PAIR_LINK());
    for (unsigned i = 0; i < 50; i++)
        assert_int_equal(pair_send(&p.b, 64, i, SLUICE_SEND(.tag = i + 1)), 0);
    sluice_hangup(p.b.session, 5000000000ull);
    for (int i = 0; i < 100; i++) /* the receiver is not polled */
        outcomes += sluice_poll(p.b.loop, &event, 1, 0) == 1;
    assert_true(outcomes <= 6);
    pair_clock += 6000000000ull;
    for (int i = 0; i < 100; i++)
        outcomes += sluice_poll(p.b.loop, &event, 1, 0) == 1;
    pair_clock += 1000000000ull;
    while (pair_next(&p, &p.b, &event) && event.type == SLUICE_SENT)
        outcomes++;
    assert_int_equal(event.type, SLUICE_CLOSED);
    must_data_equal(outcomes, 50);
    settle(&p);
    pair_close(&p);
}

/* ---- in every state -------------------------------------------------------------------------- */

/* One step of one of the four engines, in an order that depends on the seed. */
static void step(struct pair *p, unsigned *seed) {
    sluice_event event;
    *seed = *seed * 1103515245u + 12345u;
    switch (*seed >> 16 & 3) {
    case 0:
        cm_progress(p->a.node->cm, 0);
        break;
    case 1:
        cm_progress(p->b.node->cm, 0);
        break;
    default: {
        struct side *side = *seed >> 16 & 1 ? &p->a : &p->b;
        if (sluice_poll(side->loop, &event, 1, 0) == 1) {
            pair_note(side, &event);
            if (event.type == SLUICE_CONNECT && *seed >> 20 & 1)
                assert_int_equal(sluice_accept(event.session, NULL), 0);
            if (event.type == SLUICE_UP || event.type == SLUICE_MESSAGE)
                pair_send(side, *seed >> 20 & 2047, 1, SLUICE_SEND(.tag = 1));
        }
    }
    }
}

/* The CM thread is behind with the news that the device is done; nothing of it is the device's fault. */
PAIR_WITH(pair_connected, closing_in_a_hurry_gives_no_queue_pair_up) {
    struct pair *p = *state;
    struct session *s = pair_session(&p->b);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    atomic_store(&p->b.node->close_deadline_ns, 1); /* long ago */
    sluice_hangup(p->b.session, 0);
    while (s->state != SESSION_DRAINING) {
        assert_true(env_now(&env_default) < limit);
        sluice_event event;
        cm_progress(p->a.node->cm, 0);
        if (s->state < SESSION_RELEASED)
            sluice_poll(p->b.loop, &event, 1, 0);
        cm_progress(p->b.node->cm, 0);
        if (s->state < SESSION_DRAINING)
            sluice_poll(p->b.loop, &event, 1, 0);
    }
    for (unsigned turn = 0; turn < 1000; turn++) {
        sluice_event event;
        assert_int_equal(sluice_poll(p->b.loop, &event, 1, 0), 0);
        assert_int_equal(s->state, SESSION_DRAINING);
    }
    atomic_store(&p->b.node->close_deadline_ns, UINT64_MAX);
    pair_expect(p, &p->b, SLUICE_CLOSED);
}

TEST(hangup_in_every_state) {
    struct pair p;
    pair_open(&p, PAIR_NODE(.eager_bytes = 512), PAIR_LINK());
    uint32_t entries = p.a.loop->cq_used + p.b.loop->cq_used; /* of the shared receives */
    for (unsigned i = 0; i < 400; i++) {
        unsigned seed = i;
        p.a.closed = p.b.closed = 0;
        pair_dial(&p, PAIR_LINK());
        for (unsigned k = 0; k < i / 4; k++)
            step(&p, &seed);
        sluice_hangup(p.b.session, i & 1 ? 0 : 1000000000);
        if (i & 2)
            sluice_hangup(p.a.session, 0); /* of this or of an earlier round */
        settle(&p);
        assert_int_equal(p.b.closed, 1);
        assert_true(p.a.closed <= 1);
        assert_int_equal(p.a.loop->cq_used + p.b.loop->cq_used, entries);
    }
    pair_close(&p);
}

TEST(hangup_while_the_application_decides) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK));
    for (unsigned i = 0; i < 100; i++) {
        unsigned seed = i;
        p.a.closed = p.b.closed = 0;
        pair_dial(&p, PAIR_LINK());
        sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
        if (i & 1)
            assert_int_equal(sluice_accept(event.session, NULL), 0);
        for (unsigned k = 0; k < i / 4; k++)
            step(&p, &seed);
        sluice_hangup(i & 2 ? p.a.session : p.b.session, 0);
        if (!(i & 2)) /* the listener does not hear of a dialer that gives up; it answers */
            (void)(sluice_refuse(event.session, 1, "late") == 0);
        settle(&p);
        assert_int_equal(p.a.closed, 1);
        assert_int_equal(p.b.closed, 1);
    }
    pair_close(&p);
}

TEST(closing_the_node_in_every_state) {
    for (unsigned i = 0; i < 120; i++) {
        struct pair p;
        unsigned seed = i * 77;
        pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = i & 1 ? SLUICE_ASK : 0));
        pair_dial(&p, PAIR_LINK());
        for (unsigned k = 0; k < i; k++)
            step(&p, &seed);
        uint64_t start = env_now(&env_default);
        sluice_close(i & 2 ? p.a.node : p.b.node, 0);
        assert_true(env_now(&env_default) - start < 20000000000ull);
        assert_int_equal(session_table_used_count((i & 2 ? &p.a : &p.b)->node->index), 0);
        sluice_close(i & 2 ? p.b.node : p.a.node, 0);
        assert_int_equal(sluice_poll(p.a.loop, NULL, 0, 0), SLUICE_ECLOSED);
    }
}

PAIR_WITH(pair_opened, cycles_leave_nothing_behind) {
    struct pair *p = *state;
    unsigned fds = 0;
    uint64_t buffers = 0, bytes = 0;
    uint32_t entries = p->a.loop->cq_used + p->b.loop->cq_used; /* of the shared receives */
    for (unsigned i = 0; i < 300; i++) {
        pair_connect(p, PAIR_LINK());
        assert_int_equal(pair_send(&p->b, 100000, i, NULL), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 100000, i));
        sluice_hangup(i & 1 ? p->a.session : p->b.session, 1000000000);
        settle(p);
        if (i == 20) {
            fds = usage_entries("/proc/self/fd");
            buffers = pool_in_use(p->a.node->pool) + pool_in_use(p->b.node->pool);
            bytes = pool_bytes(p->a.node->pool) + pool_bytes(p->b.node->pool) +
                    pool_bytes(p->a.node->rx_pool) + pool_bytes(p->b.node->rx_pool);
        }
    }
    assert_int_equal(usage_entries("/proc/self/fd"), fds);
    assert_int_equal(buffers, 0);
    assert_int_equal(pool_in_use(p->a.node->pool) + pool_in_use(p->b.node->pool), 0);
    assert_int_equal(pool_bytes(p->a.node->pool) + pool_bytes(p->b.node->pool) +
                         pool_bytes(p->a.node->rx_pool) + pool_bytes(p->b.node->rx_pool),
                     bytes);
    /* What is left is spare, for the next session. */
    assert_int_equal(pool_in_use(p->a.node->rx_pool), p->a.loop->srq.queue.spare);
    assert_int_equal(pool_in_use(p->b.node->rx_pool), p->b.loop->srq.queue.spare);
    assert_uint_in_range(p->a.loop->srq.queue.spare, CREDITS_INITIAL, 32);
    assert_int_equal(p->a.loop->cq_used + p->b.loop->cq_used, entries);
    assert_int_equal(sluice_loop_close(p->b.loop), 0);
}

/* ---- broken peers ---------------------------------------------------------------------------- */

static void count_warnings(int level, const char *text, void *arg) {
    (void)text;
    *(unsigned *)arg += level <= SLUICE_LOG_WARNING;
}

TEST(broken_frames_close_with_a_reason) {
    static const struct {
        struct frame f;
        size_t payload, cut;
        sluice_reason reason;
    } cases[] = {
        {{.type = FRAME_DATA, .sequence = 1, .length = 8}, 8, 12, SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_DATA, .sequence = 1, .length = 9}, 8, 0, SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_DATA, .sequence = 1, .length = UINT32_MAX}, 8, 0, SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_DATA, .sequence = 2, .length = 8}, 8, 0, SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_DATA, .sequence = 1, .length = 8, .flags = 1},
         8,
         0,
         SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_DATA, .sequence = 1, .length = 8, .total = 1},
         8,
         0,
         SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_DATA,
          .sequence = 1,
          .length = 8,
          .credits = CREDITS_DEFAULT - CREDITS_INITIAL + 1},
         8,
         0,
         SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_DATA, .sequence = 1, .length = 8, .ack = 1}, 8, 0, SLUICE_REASON_PROTOCOL},
        {{.type = 0, .sequence = 0, .length = 8}, 8, 0, SLUICE_REASON_PROTOCOL},
        {{.type = 5, .sequence = 0, .length = 0}, 0, 0, SLUICE_REASON_PROTOCOL},
        {{.type = 255, .sequence = 0, .length = 0}, 0, 0, SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_CREDIT, .sequence = 0, .length = 8}, 8, 0, SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_BYE, .sequence = 1}, 0, 0, SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_FRAG, .sequence = 1, .length = 8}, 8, 0, SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_FRAG, .sequence = 1, .length = 8, .flags = FRAME_FIRST, .total = 8},
         8,
         0,
         SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_FRAG,
          .sequence = 1,
          .length = 8,
          .flags = FRAME_FIRST,
          .total = UINT64_MAX},
         8,
         0,
         SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_FRAG,
          .sequence = 1,
          .length = 8,
          .flags = FRAME_FIRST,
          .total = (64 << 20) + 1},
         8,
         0,
         SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_FRAG,
          .sequence = 1,
          .length = 8,
          .flags = FRAME_FIRST | FRAME_LAST,
          .total = 100},
         8,
         0,
         SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_FRAG, .sequence = 1, .length = 8, .flags = 4},
         8,
         0,
         SLUICE_REASON_PROTOCOL},
        {{.type = FRAME_BYE}, 0, 0, SLUICE_REASON_PEER_CLOSE},
    };
    struct pair p;
    unsigned warnings = 0;
    pair_open(&p, PAIR_NODE(.log = count_warnings, .log_arg = &warnings, .eager_bytes = 4096),
              PAIR_LINK());
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        pair_connect(&p, PAIR_LINK());
        pair_raw_frame(&p.b, &cases[i].f, FRAME_BYTES + cases[i].payload - cases[i].cut);
        sluice_event event = pair_expect(&p, &p.a, SLUICE_CLOSED);
        if (event.reason != cases[i].reason)
            fail_msg("case %u: %s", i, sluice_reason_text(event.reason));
        settle(&p);
    }
    assert_int_equal(warnings, sizeof cases / sizeof *cases - 1); /* each is told once */
    pair_close(&p);
}

TEST(a_peer_that_overruns_its_credits_is_closed) {
    struct pair p;
    struct frame f = {.type = FRAME_DATA, .sequence = 1, .length = 8};
    unsigned warnings = 0;
    pair_open(&p, PAIR_NODE(.log = count_warnings, .log_arg = &warnings), PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    pair_session(&p.a)->connection->rx.granted = 0; /* as if it had been told of none */
    pair_raw_frame(&p.b, &f, FRAME_BYTES + 8);
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_CREDITS);
    settle(&p);
    pair_close(&p);
}

TEST(random_headers_never_harm) {
    struct pair p;
    unsigned seed = 1, warnings = 0;
    pair_open(&p, PAIR_NODE(.log = count_warnings, .log_arg = &warnings, .eager_bytes = 4096),
              PAIR_LINK());
    for (unsigned i = 0; i < 300; i++) {
        struct frame f;
        uint8_t *bytes = (uint8_t *)&f;
        pair_connect(&p, PAIR_LINK());
        for (unsigned k = 0; k < sizeof f; k++) {
            seed = seed * 1103515245u + 12345u;
            bytes[k] = (uint8_t)(seed >> 16);
        }
        if (i & 1)
            f.type = (uint8_t)(1 + i / 2 % 4);
        if (i & 2)
            f.sequence = f.type <= FRAME_FRAG, f.ack = 0, f.credits = 0;
        if (i & 4)
            f.length = 16;
        pair_raw_frame(&p.b, &f, FRAME_BYTES + 16);
        for (int k = 0; k < 20; k++)
            step(&p, &seed);
        sluice_hangup(p.a.session, 0);
        sluice_hangup(p.b.session, 0);
        settle(&p);
    }
    pair_close(&p);
}

/* No array, no room: but there is nothing to tell either. */
PAIR_WITH(pair_opened, a_session_nobody_heard_of_ends_without_room_for_events) {
    struct pair *p = *state;
    pair_dial(p, PAIR_LINK());
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    /* The listener's side is asked, and the dialer gone before it answers. */
    while (session_table_used_count(p->a.node->index) == 0) {
        pair_turn(p);
        assert_true(env_now(&env_default) < limit);
    }
    sluice_hangup(p->b.session, 0);
    while (session_table_used_count(p->a.node->index) > 0) {
        pair_turn(p);
        assert_true(env_now(&env_default) < limit);
    }
}
