/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial_line_test.c - so many dials to one address ask at a time, and the others wait in line: in which order they get
 * their turn, that a turn comes back however a dial ends, and whom a line does not hold up.
 */
#include "support/pair.h"

#include <arpa/inet.h>

#include "cm/internal.h"

#define DIALS 6
#define ASKING 2

static struct {
    sluice_session dials[DIALS], asked[DIALS]; /* asked: at the listener, in order */
    unsigned asked_count, up, closed;
    sluice_reason reasons[DIALS];
    char text[160]; /* of the last that was closed */
} seen;

static enum cm_state state_of(unsigned i) {
    const struct connection *c = session_table_find(seen.dials[i].id)->connection;
    return c ? (enum cm_state)c->cm.owner.state : CM_IDLE; /* it is over */
}

static unsigned count_in(enum cm_state state) {
    unsigned count = 0;
    for (unsigned i = 0; i < DIALS; i++)
        count += state_of(i) == state;
    return count;
}

/* One turn of all, with the events of both sides. Never do more dials ask than may. */
static void turn(struct pair *p) {
    sluice_event event;
    pair_turn(p);
    assert_true(count_in(CM_CONNECTING) + count_in(CM_MODIFYING_QP) <= ASKING);
    while (sluice_poll(p->a.loop, &event, 1, 0) == 1)
        if (event.type == SLUICE_CONNECT)
            seen.asked[seen.asked_count++] = event.session;
    while (sluice_poll(p->b.loop, &event, 1, 0) == 1) {
        unsigned i = 0;
        while (i < DIALS && seen.dials[i].id != event.session.id)
            i++;
        seen.up += event.type == SLUICE_UP;
        if (event.type == SLUICE_CLOSED && i < DIALS) {
            seen.reasons[i] = event.reason;
            snprintf(seen.text, sizeof seen.text, "%s", pair_info(event.session).close_text);
        }
        seen.closed += event.type == SLUICE_CLOSED;
    }
}

#define turns_until(p, condition)                                                                  \
    do {                                                                                           \
        uint64_t limit_ = env_now(&env_default) + PAIR_LIMIT_NS;                                   \
        while (!(condition)) {                                                                     \
            turn(p);                                                                               \
            sched_yield();                                                                         \
            if (env_now(&env_default) > limit_)                                                    \
                fail_msg("never came: %s", #condition);                                            \
        }                                                                                          \
    } while (0)

/* DIALS dials to a listener whose application takes its time: two ask, and the others are in line. */
static int opened(void **state) {
    static struct pair p;
    memset(&seen, 0, sizeof seen);
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK));
    p.b.node->cm->dials.most = ASKING;
    for (unsigned i = 0; i < DIALS; i++) {
        pair_dial(&p, PAIR_LINK());
        seen.dials[i] = p.b.session;
    }
    turns_until(&p, seen.asked_count == ASKING && count_in(CM_IN_LINE) == DIALS - ASKING);
    *state = &p;
    return 0;
}

PAIR_WITH(opened, a_dial_that_waits_asks_when_one_before_it_is_up) {
    struct pair *p = *state;
    for (unsigned i = 0; i < DIALS; i++) {
        turns_until(p, seen.asked_count > i);
        assert_true(seen.asked_count <= i + ASKING);
        assert_int_equal(sluice_accept(seen.asked[i], NULL), 0);
        turns_until(p, seen.up == i + 1);
        /* Those that came first have been served first. */
        for (unsigned before = 0; before + 1 < DIALS; before++)
            assert_true(state_of(before) != CM_IN_LINE || state_of(before + 1) == CM_IN_LINE);
    }
}

PAIR_WITH(opened, a_turn_comes_back_however_a_dial_ends) {
    struct pair *p = *state;
    assert_int_equal(sluice_refuse(seen.asked[0], 1, "no"), 0); /* by the peer, */
    turns_until(p, seen.closed == 1 && seen.asked_count == 3);
    unsigned asks = 0, waits = 0;
    while (state_of(asks) != CM_CONNECTING)
        asks++;
    sluice_hangup(seen.dials[asks], 0); /* by its own application, */
    turns_until(p, seen.closed == 2 && seen.asked_count == 4);
    while (state_of(waits) != CM_IN_LINE)
        waits++;
    sluice_hangup(seen.dials[waits], 0); /* also while it waits, which gives nothing back */
    turns_until(p, seen.closed == 3);
    pair_turns(p, 100);
    assert_int_equal(count_in(CM_CONNECTING), ASKING);
    assert_int_equal(count_in(CM_IN_LINE), 1);
}

static bool no_random(void *arg, void *out, size_t bytes) {
    (void)arg, (void)out, (void)bytes;
    return false;
}

/* It fails in the moment in which it has its turn: the turn goes to the next one. */
PAIR_WITH(opened, a_dial_that_fails_at_its_turn_gives_it_back) {
    struct pair *p = *state;
    p->b.node->env.random_bytes = no_random;
    assert_int_equal(sluice_accept(seen.asked[0], NULL), 0);
    turns_until(p, seen.closed == DIALS - ASKING); /* each that stood in line */
    assert_int_equal(count_in(CM_IN_LINE), 0);
    p->b.node->env.random_bytes = pair_random;
    assert_int_equal(sluice_accept(seen.asked[1], NULL), 0);
    turns_until(p, seen.up == ASKING);
    pair_dial(p, PAIR_LINK()); /* and nothing is left of the line that were in its way */
    turns_until(p, seen.asked_count == ASKING + 1);
    assert_int_equal(sluice_accept(seen.asked[ASKING], NULL), 0);
    turns_until(p, seen.up == ASKING + 1);
}

/* Of several addresses a dial waits at one for its share of the time only. */
PAIR_WITH(opened, a_dial_in_line_tries_its_other_addresses) {
    struct pair *p = *state;
    struct pair other = *p;
    pair_listen(&other, PAIR_LINK());
    pair_dial(p, PAIR_LINK());
    struct cm_conn *conn = &pair_session(&p->b)->connection->cm;
    conn->candidates[1] = conn->candidates[0]; /* before the CM thread hears of it */
    conn->candidates[1].v4.sin_port = htons((uint16_t)sluice_listener_port(other.listener));
    conn->candidate_count = 2;
    turns_until(p, conn->owner.state == CM_IN_LINE && conn->step_ns != 0);
    assert_true(conn->step_ns < conn->deadline_ns);
    pair_clock += conn->step_ns - p->b.node->cm->now_ns;
    turns_until(p, seen.up == 1);
    assert_int_equal(conn->owner.state, CM_UP);
    assert_int_equal(count_in(CM_IN_LINE), DIALS - ASKING);
}

PAIR_WITH(opened, a_dial_in_line_ends_with_its_own_time) {
    struct pair *p = *state;
    struct session *s = session_table_find(seen.dials[DIALS - 1].id);
    s->connection->cm.deadline_ns = 1;
    p->b.node->cm->next_deadline_ns = 1;
    turns_until(p, seen.closed == 1);
    assert_int_equal(seen.reasons[DIALS - 1], SLUICE_REASON_TIMEOUT);
    assert_non_null(strstr(seen.text, "its turn among the dials to that address"));
    assert_int_equal(count_in(CM_IN_LINE), DIALS - ASKING - 1);
}

PAIR_WITH(opened, a_dial_to_another_address_does_not_wait) {
    struct pair *p = *state;
    struct pair other = *p;
    pair_listen(&other, PAIR_LINK());
    assert_string_not_equal(other.address, p->address);
    unsigned up = seen.up;
    pair_dial(&other, PAIR_LINK());
    turns_until(p, seen.up == up + 1);
    assert_int_equal(count_in(CM_IN_LINE), DIALS - ASKING);
}
