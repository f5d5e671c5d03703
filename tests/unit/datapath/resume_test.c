/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resume_test.c - sessions that outlive their connection: what a loss looks like, what goes on while they are down, how they end then.
 */
#include "support/log.h"
#include "support/pair.h"
#include "support/request.h"
#include "support/resume.h"

enum { LARGE = 50000 };

TEST(a_session_lives_on_when_its_connection_is_cut) {
    for (unsigned who = 0; who < 2; who++) {
        struct pair p;
        resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS));
        uint16_t framed = resume_connection(&p.b)->unacked.framed_end;
        for (unsigned times = 1; times < 6; times++) {
            resume_cut(who ? &p.b : &p.a);
            resume_down_and_up(&p, times);
            assert_int_equal(resume_connection(&p.b)->unacked.framed_end, framed);
            assert_int_equal(pair_send(&p.b, 64, times, SLUICE_SEND(.tag = times)), 0);
            assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, times));
            assert_int_equal(pair_expect(&p, &p.b, SLUICE_SENT).status, 0);
            assert_int_equal(pair_send(&p.a, LARGE, times, NULL), 0);
            assert_true(pair_check(pair_expect(&p, &p.b, SLUICE_MESSAGE).msg, LARGE, times));
        }
        pair_close(&p);
    }
}

/* The dial names two places of the same peer, of which one listens at a time. */
TEST(it_fails_over_to_the_other_address_of_its_dial) {
    struct pair p;
    char at[2][64];
    sluice_error e;
    const sluice_link_options *link = PAIR_LINK(.resume_ns = RESUME_NS);
    sluice_link_options own = *link;
    pair_open(&p, PAIR_NODE(.log = log_nothing), link);
    own.size = sizeof own;
    own.loop = p.a.loop;
    sluice_listener other;
    memcpy(at[0], p.address, sizeof at[0]);
    snprintf(at[1], sizeof at[1], "%.*s:0", (int)(strrchr(at[0], ':') - at[0]), at[0]);
    assert_int_equal(sluice_listen(p.a.node, at[1], &own, &other, &e), 0);
    snprintf(strrchr(at[1], ':'), 16, ":%d", sluice_listener_port(other));
    snprintf(p.address, sizeof p.address, "%.30s,%.30s", at[0], at[1]);
    pair_connect(&p, link);
    for (unsigned times = 0; times < 6; times++) {
        if (times > 0)
            resume_down_and_up(&p, times);
        assert_string_equal(pair_info(p.b.session).peer, at[times % 2]);
        assert_int_equal(pair_send(&p.b, LARGE, times, NULL), 0);
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, LARGE, times));
        sluice_unlisten(times % 2 ? other : p.listener);
        if (times > 0)
            assert_int_equal(sluice_listen(p.a.node, at[!(times % 2)], &own,
                                           times % 2 ? &p.listener : &other, &e),
                             0);
        resume_cut(times % 3 ? &p.a : &p.b);
    }
    pair_close(&p);
}

/* At least two that wait to be delivered. */
static bool two_wait(struct side *side) {
    const struct sluice_msg *first = pair_session(side)->rx.held.head;
    return first && first->next;
}

/* Some of what came wait to be delivered at any time, at last over the other connection. */
TEST(a_connection_that_was_lost_is_freed_though_messages_wait) {
    struct pair p;
    sluice_event event;
    bool cut = false;
    unsigned sent = 0, seen = 0;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    while (pair_info(p.b.session).resumed == 0 || resume_connection(&p.b)->next != NULL) {
        assert_true(env_now(&env_default) < limit);
        while (sent - seen < 100 && pair_send(&p.a, 50, sent, NULL) == 0)
            sent++;
        (void)resume_goes_on(&p, &p.a, &event);
        if (!two_wait(&p.b)) {
            assert_int_equal(sluice_poll(p.b.loop, NULL, 0, 0), 0);
        } else if (!cut) {
            resume_cut(&p.b);
            cut = true;
        } else if (resume_goes_on(&p, &p.b, &event) && event.type == SLUICE_MESSAGE) {
            assert_true(pair_check(event.msg, 50, seen));
            seen++;
        }
    }
    assert_non_null(pair_session(&p.b)->rx.held.head);
    pair_close(&p);
}

/* ---- while it is down -------------------------------------------------------------------------- */

TEST(calls_go_on_while_it_is_down_up_to_the_window) {
    enum { WINDOW = 4 };
    struct pair p;
    resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS, .window_messages = WINDOW));
    resume_break_alone(&p.b);
    resume_alone(&p, &p.b, SLUICE_DOWN);
    assert_int_equal(pair_info(p.b.session).up, 0);
    for (unsigned i = 0; i < WINDOW; i++) {
        uint64_t deadline = i == 1 ? pair_now(NULL) + SECOND : 0;
        const sluice_send_options *o = SLUICE_SEND(.tag = i + 1, .deadline_ns = deadline);
        assert_int_equal(i == 2 ? pair_request(&p.b, 10, 1, o) : pair_send(&p.b, 64, i, o), 0);
    }
    assert_int_equal(pair_send(&p.b, 64, 0, NULL), SLUICE_EAGAIN);
    sluice_cancel(p.b.session, 3);
    sluice_event event = resume_alone(&p, &p.b, SLUICE_REPLY);
    assert_int_equal(event.tag, 3);
    assert_int_equal(event.status, SLUICE_ECANCELLED);
    pair_clock += 2 * SECOND;
    for (bool room = false, late = false; !room || !late;) {
        event = resume_alone_next(&p, &p.b);
        assert_true(event.type == SLUICE_WRITABLE || event.type == SLUICE_SENT);
        room |= event.type == SLUICE_WRITABLE;
        if (event.type == SLUICE_WRITABLE)
            continue;
        assert_int_equal(event.tag, 2);
        assert_int_equal(event.status, SLUICE_ETIMEDOUT);
        late = true;
    }
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pair_send(&p.b, 64, 10 + i, NULL), 0);
    assert_int_equal(pair_send(&p.b, 64, 0, NULL), SLUICE_EAGAIN);
    resume_expect_down(&p, &p.a);
    bool up = false, writable = false, sent[WINDOW + 1] = {false};
    while (!up || !writable || !sent[1] || !sent[4]) {
        assert_true(pair_next(&p, &p.b, &event));
        up |= event.type == SLUICE_UP;
        writable |= event.type == SLUICE_WRITABLE;
        if (event.type == SLUICE_SENT) {
            assert_int_equal(event.status, 0);
            sent[event.tag] = true;
        }
    }
    resume_expect_up(&p, &p.a, 1);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, 0));
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, 3));
    for (unsigned i = 0; i < 2; i++)
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 64, 10 + i));
    pair_expect_nothing(&p, &p.a);
    pair_close(&p);
}

/* What left and was not acknowledged is unknown, what never left has not gone. */
static void expect_outcomes(struct pair *p, sluice_reason reason, bool arrived) {
    uint64_t tags = 0;
    for (unsigned i = 0; i < 2; i++) {
        sluice_event event = pair_expect(p, &p->b, SLUICE_SENT);
        if (event.tag == 1 && event.status == 0)
            assert_true(arrived); /* and its acknowledgement was faster */
        else
            assert_int_equal(event.status, event.tag == 1 ? SLUICE_EUNKNOWN : SLUICE_ECLOSED);
        tags += event.tag;
    }
    assert_int_equal(tags, 1 + 2);
    assert_int_equal(pair_expect(p, &p->b, SLUICE_CLOSED).reason, reason);
}

static void send_and_cut(struct pair *p) {
    assert_int_equal(pair_send(&p->b, 64, 1, SLUICE_SEND(.tag = 1)), 0);
    resume_break_alone(&p->b);
    resume_alone(p, &p->b, SLUICE_DOWN);
    assert_int_equal(pair_send(&p->b, 64, 2, SLUICE_SEND(.tag = 2)), 0);
}

TEST(it_ends_when_its_time_is_over) {
    struct pair p;
    resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    sluice_unlisten(p.listener);
    send_and_cut(&p);
    sluice_event event;
    for (unsigned i = 0; i < 50; i++) { /* it dials in vain, again and again */
        pair_clock += SECOND;
        assert_false(resume_goes_on(&p, &p.b, &event));
        cm_progress(p.a.node->cm, 0);
    }
    pair_clock += RESUME_NS - 50 * SECOND;
    expect_outcomes(&p, SLUICE_REASON_RESUME_TIMEOUT, false);
    do {
        pair_clock += SECOND / 10;
        event.type = SLUICE_UP;
        (void)resume_goes_on(&p, &p.a, &event);
    } while (event.type != SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_RESUME_TIMEOUT);
    pair_close(&p);
}

TEST(a_peer_that_gave_it_up_does_not_know_it) {
    struct pair p;
    resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    send_and_cut(&p);
    sluice_event event = resume_alone(&p, &p.a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 64, 1));
    resume_alone(&p, &p.a, SLUICE_DOWN);
    sluice_hangup(p.a.session, 0);
    assert_int_equal(resume_alone(&p, &p.a, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    expect_outcomes(&p, SLUICE_REASON_SESSION_UNKNOWN, true);
    pair_close(&p);
}

TEST(a_hangup_while_it_is_down_has_its_grace) {
    for (unsigned graceful = 0; graceful < 2; graceful++) {
        struct pair p;
        resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS));
        send_and_cut(&p);
        sluice_hangup(p.b.session, graceful ? 20 * SECOND : 0);
        assert_int_equal(pair_send(&p.b, 64, 3, NULL), SLUICE_ECLOSED);
        if (!graceful) {
            expect_outcomes(&p, SLUICE_REASON_LOCAL_CLOSE, false);
            pair_close(&p);
            continue;
        }
        bool told = false;
        for (unsigned got = 0; got < 2;) {
            sluice_event event;
            assert_true(pair_next(&p, &p.a, &event));
            if (event.type == SLUICE_MESSAGE)
                assert_true(pair_check(event.msg, 64, ++got));
            told |= event.type == SLUICE_UP;
        }
        assert_true(told);
        assert_int_equal(pair_expect(&p, &p.a, SLUICE_CLOSED).reason, SLUICE_REASON_PEER_CLOSE);
        sluice_event event;
        for (unsigned sent = 0, up = 0; sent < 2 || up < 1;) {
            assert_true(pair_next(&p, &p.b, &event));
            assert_int_equal(event.status, 0);
            sent += event.type == SLUICE_SENT;
            up += event.type == SLUICE_UP;
        }
        assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
        pair_close(&p);
    }
}

TEST(a_hangup_is_not_forgotten_when_the_connection_is_lost) {
    struct pair p;
    resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS));
    assert_int_equal(pair_send(&p.b, 64, 1, SLUICE_SEND(.tag = 1)), 0);
    sluice_hangup(p.b.session, 20 * SECOND);
    sluice_event event;
    while (pair_session(&p.b)->state != SESSION_FLUSHING)
        assert_false(resume_goes_on(&p, &p.b, &event));
    resume_break_alone(&p.b);
    resume_alone(&p, &p.b, SLUICE_DOWN);
    assert_int_equal(pair_send(&p.b, 64, 2, NULL), SLUICE_ECLOSED);
    do
        assert_true(pair_next(&p, &p.a, &event));
    while (event.type != SLUICE_MESSAGE);
    do
        assert_true(pair_next(&p, &p.b, &event));
    while (event.type != SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_LOCAL_CLOSE);
    do
        assert_true(pair_next(&p, &p.a, &event));
    while (event.type != SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_CLOSE);
    pair_close(&p);
}

/* Messages in one frame and in several, and requests, of which some are on their way. Each has one outcome. */
TEST(a_session_may_end_at_any_moment_of_a_loss) {
    for (unsigned steps = 0; steps < 60; steps++) {
        struct pair p;
        sluice_event event;
        unsigned outcomes = 0, closed = 0;
        resume_seed = steps;
        resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS));
        for (unsigned i = 0; i < 6; i++)
            assert_int_equal(
                i % 3 == 1 ? pair_request(&p.b, 10, i, SLUICE_SEND(.tag = i + 1))
                           : pair_send(&p.b, i % 3 ? LARGE : 64, i, SLUICE_SEND(.tag = i + 1)),
                0);
        resume_lose(resume_chance(2) ? &p.a : &p.b);
        struct side *sides[2] = {&p.a, &p.b}, *ends = sides[resume_chance(2)];
        for (unsigned i = 0; closed < 2; i++) {
            struct side *side = sides[resume_chance(2)];
            if (i == steps)
                sluice_hangup(ends->session, 0);
            pair_clock += i > 400 ? SECOND / 10 : 0; /* what nothing else ends */
            if (resume_chance(2))
                cm_progress(side->node->cm, 0);
            if (sluice_poll(side->loop, &event, 1, 0) != 1)
                continue;
            closed += event.type == SLUICE_CLOSED;
            outcomes += event.type == SLUICE_SENT || event.type == SLUICE_REPLY;
            if (event.type == SLUICE_CLOSED && side == &p.b)
                assert_int_equal(outcomes, 6);
        }
        pair_rnr_provoked = true;
        pair_close(&p);
    }
}
