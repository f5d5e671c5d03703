/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * move_test.c - a session goes on over a connection that was made beside its own, and neither application is told anything.
 */
#include "support/fault.h"
#include "support/log.h"
#include "support/request.h"
#include "support/resume.h"

#include "core/session_table.h"
#include "datapath/session/queue_pair.h"

static const sluice_link_options resumes = {.resume_ns = RESUME_NS};

/* Each has one message of the other's, in order. */
static void cross(struct pair *p, unsigned i) {
    assert_int_equal(pair_send(&p->a, i % 3 ? 50 : 20000, i, NULL), 0);
    assert_true(pair_check(pair_expect(p, &p->b, SLUICE_MESSAGE).msg, i % 3 ? 50 : 20000, i));
    assert_int_equal(pair_send(&p->b, i % 5 ? 40 : 9000, i, NULL), 0);
    assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, i % 5 ? 40 : 9000, i));
}

static void settle(struct pair *p) {
    pair_await(p, !resume_moves(&p->a) && !resume_moves(&p->b));
}

TEST(a_session_goes_on_over_another_connection) {
    struct pair p;
    resume_open(&p, &resumes);
    for (unsigned i = 0; i < 5; i++) {
        const struct connection *before[2] = {resume_connection(&p.a), resume_connection(&p.b)};
        cross(&p, i);
        assert_true(resume_move(&p.b));
        settle(&p);
        assert_ptr_not_equal(resume_connection(&p.a), before[0]);
        assert_ptr_not_equal(resume_connection(&p.b), before[1]);
        for (unsigned k = 0; k < 50; k++)
            cross(&p, k);
        pair_expect_nothing(&p, &p.a);
        pair_expect_nothing(&p, &p.b);
        assert_int_equal(pair_info(p.a.session).resumed + pair_info(p.b.session).resumed, 0);
        assert_int_equal(pair_info(p.a.session).up + pair_info(p.b.session).up, 2);
    }
    pair_close(&p);
}

/* Messages cross at every moment of the way. */
TEST(traffic_goes_on_meanwhile) {
    struct pair p;
    resume_open(&p, &resumes);
    for (unsigned i = 0; i < 20; i++) {
        assert_true(resume_move(&p.b));
        for (unsigned k = 0; resume_moves(&p.a) || resume_moves(&p.b) || k < 10; k++)
            cross(&p, k);
    }
    assert_int_equal(pair_info(p.a.session).resumed + pair_info(p.b.session).resumed, 0);
    pair_close(&p);
}

/* ---- to another loop ------------------------------------------------------------------------------ */

/* All that may go on does, until the session's first event comes on that loop. */
static void await_moved(struct pair *p, struct side *side, sluice_loop *from, sluice_loop *to) {
    struct side *other = side == &p->a ? &p->b : &p->a;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    sluice_event event;
    for (;;) {
        assert_true(env_now(&env_default) < limit);
        side->loop = from;
        assert_false(resume_goes_on(p, other, &event));
        assert_false(resume_goes_on(p, side, &event));
        side->loop = to;
        if (resume_goes_on(p, side, &event))
            break;
    }
    assert_int_equal(event.type, SLUICE_MOVED);
    assert_int_equal(event.session.id, side->session.id);
}

/* Of the dialer, and of the listener, whose peer makes the connection. */
TEST(a_session_moves_to_another_loop) {
    for (unsigned who = 0; who < 2; who++) {
        struct pair p;
        struct side *side = who ? &p.a : &p.b;
        sluice_error e;
        sluice_loop *loops[2];
        resume_open(&p, &resumes);
        loops[0] = side->loop;
        assert_int_equal(sluice_loop_open(side->node, &loops[1], &e), 0);
        for (unsigned i = 1; i < 7; i++) {
            sluice_loop *from = loops[(i + 1) % 2], *to = loops[i % 2];
            cross(&p, i);
            assert_int_equal(sluice_session_move(side->session, from), SLUICE_EINVAL);
            assert_int_equal(sluice_session_move(side->session, to), 0);
            assert_int_equal(sluice_session_move(side->session, to), SLUICE_EAGAIN);
            await_moved(&p, side, from, to);
            for (unsigned k = 0; k < 50; k++)
                cross(&p, k);
            settle(&p);
            assert_int_equal(pair_info(side->session).moved, i);
            assert_int_equal(pair_info(p.a.session).resumed + pair_info(p.b.session).resumed, 0);
        }
        assert_int_equal(sluice_loop_close(loops[1]), 0);
        pair_close(&p);
    }
}

TEST(what_cannot_move_is_refused) {
    struct pair p;
    resume_open(&p, &resumes);
    assert_int_equal(sluice_session_move(p.b.session, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_session_move(p.b.session, p.a.loop), SLUICE_EINVAL);
    assert_int_equal(sluice_session_move(p.b.session, p.b.loop), SLUICE_EINVAL);
    assert_int_equal(sluice_session_move(p.a.session, p.b.loop), SLUICE_EINVAL);
    assert_int_equal(sluice_session_move_worker(p.b.session, 0), SLUICE_EINVAL);
    assert_int_equal(sluice_session_move((sluice_session){p.b.session.id ^ 1}, p.b.loop),
                     SLUICE_ECLOSED);
    cross(&p, 1);
    pair_close(&p);
}

/* ---- at any moment of the way ----------------------------------------------------------------------- */

enum { MOMENTS = 60, SOME = 3 };

/* What one side was told since the move began. */
struct seen {
    struct side *side;
    unsigned messages, downs, ups;
    bool closed;
    sluice_reason reason;
};

static void see(struct seen *seen, const sluice_event *event) {
    if (event->type == SLUICE_MESSAGE)
        assert_true(pair_check(event->msg, event->bytes, seen->messages++));
    else if (event->type == SLUICE_DOWN)
        seen->downs++;
    else if (event->type == SLUICE_UP)
        seen->ups++;
    else if (event->type == SLUICE_CLOSED)
        seen->reason = (sluice_reason)event->reason;
    else
        fail_msg("%s", sluice_event_name(event->type));
    seen->closed |= event->type == SLUICE_CLOSED;
}

static void turn(struct pair *p, struct seen seen[2]) {
    sluice_event event;
    for (unsigned i = 0; i < 2; i++)
        if (resume_goes_on(p, seen[i].side, &event))
            see(&seen[i], &event);
}

#define turns_until(p, seen, condition)                                                            \
    for (uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS; !(condition); turn(p, seen))      \
    assert_true(env_now(&env_default) < limit)

static void send_some(struct side *side) {
    for (unsigned i = 0; i < SOME; i++)
        assert_int_equal(pair_send(side, i == 1 ? 20000 : 50, i, NULL), 0);
}

/* What was accepted is delivered, if there is time for that, and the peer hears a good-bye; it may be slow. */
static void ends_in_order(uint64_t grace_ns, unsigned alone) {
    for (unsigned moment = 0; moment < 2 * MOMENTS; moment++) {
        struct pair p;
        resume_open(&p, &resumes);
        struct seen seen[2] = {{.side = &p.a}, {.side = &p.b}};
        struct seen *own = &seen[moment % 2], *other = &seen[1 - moment % 2];
        assert_true(resume_move(&p.b));
        for (unsigned i = 0; i < moment / 2; i++)
            turn(&p, seen);
        send_some(own->side);
        sluice_hangup(own->side->session, grace_ns);
        for (unsigned i = 0; i < alone && !own->closed; i++) {
            sluice_event event;
            pair_clock += SECOND / 1000;
            if (resume_goes_on(&p, own->side, &event))
                see(own, &event);
        }
        turns_until(&p, seen, seen[0].closed && seen[1].closed);
        if (grace_ns > 0)
            assert_int_equal(other->messages, SOME);
        assert_int_equal(other->reason, SLUICE_REASON_PEER_CLOSE);
        assert_int_equal(own->reason, SLUICE_REASON_LOCAL_CLOSE);
        assert_int_equal(seen[0].downs + seen[1].downs, 0);
        pair_close(&p);
    }
}

TEST(a_session_that_is_hung_up_while_it_moves_ends_in_order) {
    ends_in_order(SECOND, 0);
    ends_in_order(0, 0);
    ends_in_order(0, 300);
}

/* The connection that is left, or the one that it moves to; as the network would cut it, or at one end. */
static void break_one(struct pair *p, unsigned way) {
    struct side *side = way & 1 ? &p->a : &p->b;
    struct session *s = pair_session(side);
    struct connection *c = session_connection(way & 2 && s->move.guest ? s->move.guest : s);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    if (!c->qp)
        return;
    if (way & 4)
        connection_modify(c, &attr, IBV_QP_STATE);
    else
        (void)side->node->fabric->disconnect(c->cm.owner.id);
}

TEST(a_connection_that_is_lost_while_it_moves_is_a_loss_like_any_other) {
    for (unsigned moment = 0; moment < 8 * MOMENTS; moment++) {
        struct pair p;
        resume_open(&p, &resumes);
        struct seen seen[2] = {{.side = &p.a}, {.side = &p.b}};
        assert_true(resume_move(&p.b));
        for (unsigned i = 0; i < moment / 8; i++)
            turn(&p, seen);
        send_some(&p.a);
        send_some(&p.b);
        break_one(&p, moment % 8);
        turns_until(&p, seen,
                    seen[0].messages == SOME && seen[1].messages == SOME &&
                        seen[0].downs == seen[0].ups && seen[1].downs == seen[1].ups &&
                        !resume_moves(&p.a) && !resume_moves(&p.b));
        pair_rnr_provoked = true;
        pair_close(&p);
    }
}

/* ---- what the peer has not done yet ---------------------------------------------------------------- */

/* For replies memory is set aside, which is not there before the peer is over the other connection, too. */
TEST(replies_do_not_come_before_the_peer_has_moved) {
    enum { REQUESTS = 60 };
    struct pair p;
    sluice_event event;
    uint64_t tokens[REQUESTS], limit = env_now(&env_default) + PAIR_LIMIT_NS;
    resume_open(&p, &resumes);
    for (unsigned i = 0; i < REQUESTS; i++) {
        assert_int_equal(pair_request(&p.a, 50, i, NULL), 0);
        tokens[i] = pair_expect(&p, &p.b, SLUICE_REQUEST).token;
    }
    assert_true(resume_move(&p.b));
    while (pair_session(&p.a)->move.step < MOVE_SAID) {
        assert_true(env_now(&env_default) < limit);
        pair_turn(&p);
    }
    for (unsigned turn = 0; turn < 100; turn++)
        assert_false(resume_goes_on(&p, &p.b, &event));
    for (unsigned i = 0; i < REQUESTS; i++)
        assert_int_equal(pair_reply(&p.b, tokens[i], 60, i), 0);
    for (unsigned turn = 0; turn < 100; turn++)
        assert_false(resume_goes_on(&p, &p.b, &event));
    for (unsigned i = 0; i < REQUESTS; i++)
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_REPLY).msg, 60, i));
    settle(&p);
    pair_expect_nothing(&p, &p.a);
    pair_expect_nothing(&p, &p.b);
    pair_close(&p);
}

/* Its application is busy with something else: that is no loss of the connection. */
TEST(a_peer_that_does_not_poll_for_long_is_waited_for) {
    struct pair p;
    sluice_event event;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS, .keepalive_ns = SLUICE_OFF));
    fault_plan("qp=* send=* delay=500ms"); /* of b's SWITCH */
    assert_true(resume_move(&p.b));
    while (pair_session(&p.b)->move.step < MOVE_SAID || !pair_session(&p.a)->move.guest) {
        assert_true(env_now(&env_default) < limit);
        assert_false(resume_goes_on(&p, &p.a, &event));
        assert_false(resume_goes_on(&p, &p.b, &event));
    }
    fault_clear();
    assert_int_equal(pair_session(&p.a)->move.step, MOVE_NONE);
    for (unsigned turn = 0; turn < 100; turn++) {
        pair_clock += SECOND;
        assert_false(resume_goes_on(&p, &p.b, &event));
    }
    settle(&p);
    cross(&p, 1);
    assert_int_equal(pair_info(p.a.session).resumed + pair_info(p.b.session).resumed, 0);
    pair_close(&p);
}

/* A listener's session asks at each moment of a move for another one, which its dialer has no room for: the loop that it named is free again. */
TEST(a_loop_that_a_session_does_not_come_to_can_be_closed) {
    for (unsigned moment = 0; moment < MOMENTS; moment++) {
        struct pair p;
        sluice_error e;
        sluice_loop *other;
        sluice_event event;
        resume_open(&p, &resumes);
        assert_int_equal(sluice_loop_open(p.a.node, &other, &e), 0);
        assert_true(resume_move(&p.b));
        for (unsigned i = 0; i < moment; i++) {
            assert_false(resume_goes_on(&p, &p.a, &event));
            assert_false(resume_goes_on(&p, &p.b, &event));
        }
        p.b.node->options.sessions_max = 1;
        int status = sluice_session_move(p.a.session, other);
        assert_true(status == 0 || status == SLUICE_EAGAIN);
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
        while (resume_moves(&p.a) || resume_moves(&p.b) ||
               atomic_load(&pair_session(&p.a)->wanted)) {
            assert_true(env_now(&env_default) < limit);
            if (!resume_moves(&p.a) && !resume_moves(&p.b))
                pair_clock += SECOND / 10;
            (void)resume_goes_on(&p, &p.b, &event);
            (void)resume_goes_on(&p, &p.a, &event);
            assert_int_equal(sluice_poll(other, &event, 1, 0) > 0 && event.type != SLUICE_MOVED, 0);
        }
        sluice_loop *at = session_mail(pair_session(&p.a));
        if (at != other) {
            while (sluice_loop_close(other) != 0) { /* a guest may be about to leave it */
                assert_true(env_now(&env_default) < limit);
                (void)resume_goes_on(&p, &p.b, &event);
                (void)resume_goes_on(&p, &p.a, &event);
                assert_true(sluice_poll(other, &event, 1, 0) <= 0);
            }
        } else {
            assert_int_equal(pair_info(p.a.session).moved, 1); /* it was in time for that one */
            p.a.loop = other;
        }
        pair_close(&p);
    }
}

/* With a key, or asked about: as the first connection was. */
TEST(another_connection_is_opened_as_the_first_one_was) {
    struct pair p;
    const sluice_key key = {7, 16, "0123456789abcdef"};
    resume_open(&p, PAIR_LINK(.resume_ns = RESUME_NS, .keys = &key, .key_count = 1));
    for (unsigned i = 0; i < 3; i++) {
        assert_true(resume_move(&p.b));
        settle(&p);
        cross(&p, i);
        assert_int_equal(resume_connection(&p.a)->cm.req.key_id, 7);
    }
    pair_close(&p);
    pair_open(&p, PAIR_NODE(.log = log_nothing),
              PAIR_LINK(.resume_ns = RESUME_NS, .flags = SLUICE_ASK));
    pair_dial(&p, PAIR_LINK(.resume_ns = RESUME_NS, .private_data = "me", .private_bytes = 2));
    assert_int_equal(sluice_accept(pair_expect(&p, &p.a, SLUICE_CONNECT).session, &p), 0);
    pair_expect(&p, &p.b, SLUICE_UP);
    assert_ptr_equal(pair_expect(&p, &p.a, SLUICE_UP).arg, &p);
    assert_true(resume_move(&p.b));
    settle(&p);
    pair_expect_nothing(&p, &p.a);
    cross(&p, 1);
    pair_close(&p);
}
