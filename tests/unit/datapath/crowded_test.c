/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Messages that fill the array at every poll keep no other event from being delivered, and other
 * events no message. The listener polls with an array of one; completions wait all the time.
 */
#include "support/pair.h"

enum { BACKLOG = 12, FAIR = 3 /* polls: found crowded out, and the next one it is first */ };

struct crowd {
    struct pair p;
    sluice_session talker, other; /* the dialer's ends */
    unsigned messages;
};

static void open_crowd(struct crowd *c) {
    memset(c, 0, sizeof *c);
    pair_open(&c->p, PAIR_NODE(), PAIR_LINK());
    pair_connect(&c->p, PAIR_LINK());
    c->talker = c->p.b.session;
    pair_grant_all(&c->p, pair_session(&c->p.b), pair_session(&c->p.a));
    pair_connect(&c->p, PAIR_LINK());
    c->other = c->p.b.session;
}

/* One poll of the listener's loop. */
static sluice_event poll_one(struct crowd *c) {
    sluice_event event = {0};
    if (sluice_poll(c->p.a.loop, &event, 1, 0) == 1)
        c->messages += event.type == SLUICE_MESSAGE;
    return event;
}

static uint32_t backlog(struct crowd *c) {
    return c->p.a.loop->wc_count - c->p.a.loop->wc_next;
}

/* The one side goes on talking until the other has so much polled and not looked at. */
static void fill(struct crowd *c) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    struct session *s = session_table_find(c->talker.id);
    while (backlog(c) < BACKLOG) {
        c->p.b.session = c->talker;
        /* All it may say, before a look is taken at any of it. */
        while (backlog(c) == 0 && s->connection->tx.credits > CREDIT_RESERVE) {
            (void)pair_send(&c->p.b, 20, 0, NULL);
            cm_progress(c->p.b.node->cm, 0);
            assert_true(sluice_poll(c->p.b.loop, NULL, 0, 0) >= 0);
            assert_true(env_now(&env_default) < limit);
        }
        sluice_event event = poll_one(c);
        assert_true(event.type == 0 || event.type == SLUICE_MESSAGE);
        assert_true(env_now(&env_default) < limit);
    }
}

TEST(closed_is_not_crowded_out) {
    struct crowd c;
    open_crowd(&c);
    struct session *s = pair_session(&c.p.a); /* the listener's end of the other */
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    sluice_hangup(c.other, 0);
    while (s->state != SESSION_DRAINED) {
        cm_progress(c.p.a.node->cm, 0);
        cm_progress(c.p.b.node->cm, 0);
        assert_true(sluice_poll(c.p.b.loop, NULL, 0, 0) >= 0);
        assert_int_equal(poll_one(&c).type, 0);
        assert_true(env_now(&env_default) < limit);
    }
    fill(&c);
    cm_progress(c.p.a.node->cm, 0); /* the id is destroyed: all that is left is to say so */
    unsigned polls = 1;
    while (poll_one(&c).type != SLUICE_CLOSED && polls < BACKLOG)
        polls++;
    assert_uint_in_range(polls, 1, FAIR);
    pair_close(&c.p);
}

TEST(a_wake_is_not_crowded_out) {
    struct crowd c;
    open_crowd(&c);
    fill(&c);
    sluice_wake(c.p.a.loop);
    unsigned polls = 1;
    while (poll_one(&c).type != SLUICE_WAKE && polls < BACKLOG)
        polls++;
    assert_uint_in_range(polls, 1, FAIR);
    pair_close(&c.p);
}

/* Somebody wakes the loop before every poll: every other event is a message all the same. */
TEST(messages_are_not_crowded_out) {
    struct crowd c;
    open_crowd(&c);
    fill(&c);
    c.messages = 0;
    for (unsigned i = 0; i < BACKLOG; i++) {
        sluice_wake(c.p.a.loop);
        assert_true(poll_one(&c).type != 0);
    }
    assert_uint_in_range(c.messages, BACKLOG / 2 - 1, BACKLOG / 2 + 1);
    pair_close(&c.p);
}
