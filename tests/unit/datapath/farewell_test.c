/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * farewell_test.c - who hangs up tells the peer, and has the patience for it that a slow host needs: as long as what is
 * ahead of the farewell moves on, and half a second where nothing moves. A device that repeats what was lost has the time to
 * do so twice, too. What nobody takes is given up. The clock stands still but for what a test adds; the device delays on its own.
 */
#include "support/fault.h"
#include "support/reason.h"

#define REPEATS 2

/* How many looks that find nothing new are borne. */
static unsigned looks(struct pair *p) {
    const struct session *s = pair_session(&p->b);
    struct ibv_qp_attr attr = {0};
    struct ibv_qp_init_attr init;
    assert_int_equal(soft_query_qp(s->connection->qp, &attr, IBV_QP_TIMEOUT, &init), 0);
    assert_true(attr.timeout > 0 || !s->node->traits.repeats);
    uint64_t repeats_ns = s->node->traits.repeats ? REPEATS * (UINT64_C(4096) << attr.timeout) : 0;
    return (unsigned)((UINT64_C(500000000) + repeats_ns) / LINGER_NS) - 1;
}

static void opened(struct pair *p, const char *plan) {
    pair_open(p, PAIR_NODE(), PAIR_LINK());
    pair_connect(p, PAIR_LINK());
    pair_turns(p, 100);
    fault_plan(plan);
    pair_frozen = env_now(&env_default);
}

static void closed(struct pair *p) {
    fault_plan(NULL);
    pair_frozen = 0;
    pair_close(p);
}

static void hang_up(struct pair *p) {
    sluice_hangup(p->b.session, 0);
    pair_turns(p, 10);
}

static void look(struct pair *p, uint64_t ns) {
    pair_clock += ns;
    pair_turns(p, 10);
}

TEST(a_farewell_that_is_taken_late_is_told) {
    struct pair p;
    opened(&p, "qp=* send=1 delay=200ms");
    struct session *s = pair_session(&p.b);
    unsigned borne = looks(&p);
    hang_up(&p);
    for (unsigned i = 0; i < borne; i++) {
        look(&p, LINGER_NS);
        assert_true(s->state <= SESSION_LEAVING || s->connection->sq.head > s->close.bye_index);
    }
    assert_int_equal(pair_expect(&p, &p.a, SLUICE_CLOSED).reason, SLUICE_REASON_PEER_CLOSE);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    closed(&p);
}

/* How often the messages in front of a farewell moved on while it was borne that they did not. */
static unsigned moves_behind(unsigned delay_ms) {
    enum { MESSAGES = 40 };
    struct pair p;
    char plan[64];
    unsigned moves = 0;
    snprintf(plan, sizeof plan, "qp=* send=* delay=%ums", delay_ms);
    opened(&p, plan);
    struct session *s = pair_session(&p.b);
    unsigned borne = looks(&p);
    for (unsigned i = 0; i < MESSAGES; i++)
        assert_int_equal(pair_send(&p.b, 2000, i, NULL), 0);
    hang_up(&p);
    while (s->state == SESSION_LEAVING) {
        uint32_t head = s->connection->sq.head;
        for (unsigned i = 0; i < borne && s->connection->sq.head == head; i++)
            look(&p, LINGER_NS);
        pair_await(&p, s->connection->sq.head != head);
        moves++;
        look(&p, LINGER_NS);
    }
    sluice_event event = {0}; /* the messages that the peer had credits for come before */
    while (pair_next(&p, &p.a, &event) && event.type == SLUICE_MESSAGE)
        sluice_free(event.msg);
    assert_int_equal(event.type, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_CLOSE);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    closed(&p);
    return moves;
}

/*
 * Much longer than silence is borne, as long as there is none. A completion tells of many sends, and of all that a busy
 * machine was too late for: the delay has to be longer than that machine's pauses.
 */
TEST(a_farewell_behind_what_moves_on_is_told) {
    unsigned delay_ms = 5;
    while (moves_behind(delay_ms) <= 2) {
        delay_ms *= 2;
        assert_uint_in_range(delay_ms, 1, 640);
    }
}

TEST(a_farewell_that_nobody_takes_is_given_up) {
    struct pair p;
    opened(&p, "qp=* send=1 delay=60s");
    struct session *s = pair_session(&p.b);
    unsigned borne = looks(&p);
    hang_up(&p);
    for (unsigned i = 0; i < borne; i++) {
        look(&p, LINGER_NS);
        assert_int_equal(s->state, SESSION_LEAVING);
    }
    look(&p, LINGER_NS);
    assert_true(s->state >= SESSION_RELEASED);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    assert_int_equal(pair_expect(&p, &p.a, SLUICE_CLOSED).reason, SLUICE_REASON_PEER_LOST);
    closed(&p);
}

/* A peer that takes one thing at a time cannot keep who hangs up. */
TEST(a_farewell_has_an_end_whatever_moves) {
    struct pair p;
    opened(&p, "qp=* send=1 delay=20ms; qp=* send=2 delay=60s");
    struct session *s = pair_session(&p.b);
    unsigned borne = looks(&p);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pair_send(&p.b, 2000, i, NULL), 0);
    hang_up(&p);
    pair_await(&p, s->connection->sq.head == s->close.leave_head + 1);
    look(&p, borne * LINGER_NS);
    assert_int_equal(s->state, SESSION_LEAVING);
    look(&p, node_leave_ns(p.b.node));
    assert_true(s->state >= SESSION_RELEASED);
    sluice_free(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg);
    assert_int_equal(pair_expect(&p, &p.a, SLUICE_CLOSED).reason, SLUICE_REASON_PEER_LOST);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    closed(&p);
}
