/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Requests that end without a reply: deadlines, cancellation, the end of the session, broken peers. */
#include "support/request.h"
#include "datapath/tx/post.h"

#define SECOND 1000000000ull

static sluice_event expect_outcome(struct pair *p, struct side *side, uint64_t tag,
                                   sluice_status status) {
    sluice_event event = pair_expect(p, side, SLUICE_REPLY);
    must_data_equal(event.tag, tag);
    assert_int_equal(event.status, status);
    if (status != SLUICE_OK)
        assert_null(event.msg);
    return event;
}

/* Both sides are as if there had never been a request, and another one passes. */
static void expect_idle(struct pair *p) {
    pair_settle(p);
    pair_expect_nothing(p, &p->a);
    pair_expect_nothing(p, &p->b);
    assert_int_equal(pair_in_flight(&p->b), 0);
    assert_int_equal(pair_session(&p->b)->connection->recv.reserved, 0);
    assert_int_equal(pair_session(&p->b)->window.own_messages, 0);
    assert_int_equal(pair_session(&p->b)->window.own_bytes, 0);
    assert_int_equal(pair_request(&p->b, 10, 1, SLUICE_SEND(.tag = 99)), 0);
    sluice_event event = pair_expect(p, &p->a, SLUICE_REQUEST);
    assert_int_equal(pair_reply(&p->a, event.token, 10, 2), 0);
    event = expect_outcome(p, &p->b, 99, SLUICE_OK);
    assert_true(pair_check(event.msg, 10, 2));
}

/* ---- deadlines ------------------------------------------------------------------------------- */

PAIR_WITH(pair_connected, the_time_that_is_left_travels_with_the_request) {
    struct pair *p = *state;
    uint64_t deadline = pair_now(NULL) + 50 * SECOND;
    assert_int_equal(pair_request(&p->b, 10, 1, SLUICE_SEND(.deadline_ns = deadline)), 0);
    sluice_event event = pair_expect(p, &p->a, SLUICE_REQUEST);
    assert_uint_in_range(event.value, deadline, deadline + PAIR_LIMIT_NS);
}

/* What 32 bits of microseconds do not hold is no hour and eleven minutes: nothing is dropped by then. */
PAIR_WITH(pair_connected, a_deadline_that_is_hours_away_drops_nothing) {
    struct pair *p = *state;
    const uint64_t deadlines[] = {pair_now(NULL) + 5000 * SECOND, pair_now(NULL) + 10000 * SECOND,
                                  UINT64_MAX};
    for (unsigned i = 0; i < sizeof deadlines / sizeof *deadlines; i++) {
        assert_int_equal(
            pair_request(&p->b, 10, 1, SLUICE_SEND(.tag = 1, .deadline_ns = deadlines[i])), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_REQUEST);
        assert_true(event.value == 0);
        sluice_msg *reply;
        assert_int_equal(sluice_alloc(p->a.node, 1, &reply), 0);
        assert_int_equal(sluice_reply(event.session, event.token, reply), 0);
        pair_expect(p, &p->b, SLUICE_REPLY);
    }
}

TEST(dead_work_is_not_delivered) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    pair_connect(&p, PAIR_LINK());
    uint64_t deadline = pair_now(NULL) + 100 * SECOND;
    assert_int_equal(pair_request(&p.b, 10, 1, SLUICE_SEND(.tag = 1, .deadline_ns = deadline)), 0);
    assert_int_equal(pair_request(&p.b, 10, 2, SLUICE_SEND(.tag = 2)), 0);
    pair_settle(&p); /* it is there, and the application has not polled */
    pair_clock += 101 * SECOND;
    sluice_event event = pair_expect(&p, &p.a, SLUICE_REQUEST);
    assert_true(pair_check(event.msg, 10, 2));
    assert_int_equal(pair_reply(&p.a, event.token, 1, 1), 0);
    expect_outcome(&p, &p.b, 1, SLUICE_ETIMEDOUT);
    expect_outcome(&p, &p.b, 2, SLUICE_OK);
    expect_idle(&p);
    pair_close(&p);
}

TEST(a_reply_after_the_deadline_is_dropped) {
    static const size_t sizes[] = {10, 5000};
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    pair_connect(&p, PAIR_LINK());
    for (unsigned i = 0; i < 2; i++) {
        uint64_t deadline = pair_now(NULL) + 100 * SECOND;
        assert_int_equal(
            pair_request(&p.b, sizes[i], 1, SLUICE_SEND(.tag = 1, .deadline_ns = deadline)), 0);
        uint64_t token = pair_expect(&p, &p.a, SLUICE_REQUEST).token;
        assert_int_equal(sluice_request_wanted(p.a.session, token), 1);
        pair_clock += 101 * SECOND;
        expect_outcome(&p, &p.b, 1, SLUICE_ETIMEDOUT);
        assert_int_equal(pair_in_flight(&p.b), 1); /* its place is free when the reply comes */
        assert_int_equal(pair_session(&p.b)->window.own_messages, 0);
        assert_int_equal(sluice_request_wanted(p.a.session, token), 0);
        assert_int_equal(
            i ? sluice_reply_error(p.a.session, token, 3) : pair_reply(&p.a, token, 100, 1), 0);
        expect_idle(&p);
    }
    pair_close(&p);
}

TEST(a_request_that_was_not_posted_by_its_deadline_never_leaves) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    pair_connect(&p, PAIR_LINK());
    uint32_t credits = pair_session(&p.b)->connection->tx.credits;
    pair_session(&p.b)->connection->tx.credits = 0;
    uint64_t deadline = pair_now(NULL) + 100 * SECOND;
    assert_int_equal(pair_request(&p.b, 10, 1, SLUICE_SEND(.tag = 1, .deadline_ns = deadline)), 0);
    pair_expect_nothing(&p, &p.b);
    pair_clock += 101 * SECOND;
    expect_outcome(&p, &p.b, 1, SLUICE_ETIMEDOUT);
    pair_session(&p.b)->connection->tx.credits = credits;
    expect_idle(&p);
    pair_close(&p);
}

/* ---- cancellation ---------------------------------------------------------------------------- */

PAIR_WITH(pair_connected, a_request_cancelled_before_it_was_posted_never_leaves) {
    struct pair *p = *state;
    uint32_t credits = pair_session(&p->b)->connection->tx.credits;
    pair_session(&p->b)->connection->tx.credits = 0;
    for (unsigned i = 1; i <= 3; i++)
        assert_int_equal(pair_request(&p->b, 10, i, SLUICE_SEND(.tag = i)), 0);
    sluice_cancel(p->b.session, 2);
    sluice_cancel(p->b.session, 2);
    sluice_cancel(p->b.session, 4);
    expect_outcome(p, &p->b, 2, SLUICE_ECANCELLED);
    pair_session(&p->b)->connection->tx.credits = credits;
    assert_int_equal(pair_request(&p->b, 10, 5, SLUICE_SEND(.tag = 5)), 0);
    static const unsigned left[] = {1, 3, 5};
    for (unsigned i = 0; i < 3; i++) {
        sluice_event event = pair_expect(p, &p->a, SLUICE_REQUEST);
        assert_true(pair_check(event.msg, 10, left[i]));
        assert_int_equal(pair_reply(&p->a, event.token, 1, 1), 0);
        expect_outcome(p, &p->b, left[i], SLUICE_OK);
    }
    expect_idle(p);
}

PAIR_WITH(pair_connected, a_request_cancelled_before_it_was_looked_at_is_left_out) {
    struct pair *p = *state;
    static const size_t sizes[] = {10, 5000};
    pair_grant_all(p, pair_session(&p->b), pair_session(&p->a)); /* some for the CANCEL */
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pair_request(&p->b, sizes[i], 1, SLUICE_SEND(.tag = 1)), 0);
        assert_int_equal(pair_request(&p->b, sizes[i], 2, SLUICE_SEND(.tag = 2)), 0);
        pair_settle(p); /* held: nobody takes events */
        sluice_cancel(p->b.session, 1);
        expect_outcome(p, &p->b, 1, SLUICE_ECANCELLED);
        pair_settle(p);
        sluice_event event = pair_expect(p, &p->a, SLUICE_REQUEST);
        assert_true(pair_check(event.msg, sizes[i], 2));
        assert_int_equal(sluice_request_wanted(p->a.session, event.token), 1);
        assert_int_equal(pair_reply(&p->a, event.token, 1, 1), 0);
        expect_outcome(p, &p->b, 2, SLUICE_OK);
        expect_idle(p);
    }
}

PAIR_WITH(pair_connected, a_request_cancelled_at_once_has_its_outcome_though_the_device_reads_it) {
    struct pair *p = *state;
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(pair_request(&p->b, 5000, 1, SLUICE_SEND(.tag = i)), 0);
        sluice_cancel(p->b.session, i);
        assert_int_equal(pair_session(&p->b)->window.own_messages, 0);
        expect_outcome(p, &p->b, i, SLUICE_ECANCELLED);
        for (unsigned k = 0; k < i; k++) /* it may have been looked at before the CANCEL came */
            pair_turn(p);
        sluice_event event;
        if (sluice_poll(p->a.loop, &event, 1, 0) == 1) {
            assert_int_equal(event.type, SLUICE_REQUEST);
            assert_int_equal(sluice_reply_error(p->a.session, event.token, 1), 0);
        }
        pair_settle(p);
        if (sluice_poll(p->a.loop, &event, 1, 0) == 1)
            assert_int_equal(sluice_reply_error(p->a.session, event.token, 1), 0);
        expect_idle(p);
    }
}

PAIR_WITH(pair_connected, whoever_serves_a_cancelled_request_can_see_it_and_answers_all_the_same) {
    struct pair *p = *state;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pair_request(&p->b, 10, 1, SLUICE_SEND(.tag = 7)), 0);
        assert_int_equal(pair_request(&p->b, 10, 2, SLUICE_SEND(.tag = 7)), 0);
        assert_int_equal(pair_request(&p->b, 10, 3, SLUICE_SEND(.tag = 8)), 0);
        uint64_t tokens[3];
        for (unsigned k = 0; k < 3; k++)
            tokens[k] = pair_expect(p, &p->a, SLUICE_REQUEST).token;
        sluice_cancel(p->b.session, 7);
        expect_outcome(p, &p->b, 7, SLUICE_ECANCELLED);
        expect_outcome(p, &p->b, 7, SLUICE_ECANCELLED);
        pair_settle(p);
        for (unsigned k = 0; k < 3; k++)
            assert_int_equal(sluice_request_wanted(p->a.session, tokens[k]), k == 2);
        assert_int_equal(pair_in_flight(&p->b), 3);
        for (unsigned k = 0; k < 3; k++)
            assert_int_equal(i ? sluice_reply_error(p->a.session, tokens[k], 1)
                               : pair_reply(&p->a, tokens[k], 10, k),
                             0);
        expect_outcome(p, &p->b, 8, i ? SLUICE_EREJECTED : SLUICE_OK);
        expect_idle(p);
    }
}

PAIR_WITH(pair_opened, a_cancellation_that_crosses_the_reply_is_the_outcome) {
    struct pair *p = *state;
    pair_connect(p, PAIR_LINK(.requests = 1));
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(pair_request(&p->b, 10, 1, SLUICE_SEND(.tag = 7)), 0);
        uint64_t token = pair_expect(p, &p->a, SLUICE_REQUEST).token;
        assert_int_equal(pair_reply(&p->a, token, 10, 1), 0); /* posted, and b has not looked */
        sluice_cancel(p->b.session, 7);
        expect_outcome(p, &p->b, 7, SLUICE_ECANCELLED);
        expect_idle(p); /* the place's next request is not taken for the one that was given up */
    }
}

PAIR_WITH(pair_connected, a_cancellation_waits_for_a_credit) {
    struct pair *p = *state;
    struct session *s = pair_session(&p->b);
    pair_grant_all(p, s, pair_session(&p->a));
    assert_int_equal(pair_request(&p->b, 10, 1, SLUICE_SEND(.tag = 7)), 0);
    assert_int_equal(pair_request(&p->b, 10, 1, SLUICE_SEND(.tag = 7)), 0);
    uint64_t token = pair_expect(p, &p->a, SLUICE_REQUEST).token;
    uint64_t other = pair_expect(p, &p->a, SLUICE_REQUEST).token;
    uint32_t credits = s->connection->tx.credits - CREDIT_RESERVE;
    s->connection->tx.credits = CREDIT_RESERVE;
    sluice_cancel(p->b.session, 7);
    expect_outcome(p, &p->b, 7, SLUICE_ECANCELLED);
    expect_outcome(p, &p->b, 7, SLUICE_ECANCELLED);
    pair_settle(p);
    assert_int_equal(s->rpc.cancels, 2);
    assert_int_equal(pair_reply(&p->a, other, 10, 1), 0); /* this one needs none any more */
    pair_expect_nothing(p, &p->b);
    assert_int_equal(s->rpc.cancels, 1);
    assert_int_equal(sluice_request_wanted(p->a.session, token), 1);
    s->connection->tx.credits += credits;
    assert_int_equal(pair_send(&p->a, 10, 1, NULL), 0); /* a frame that comes ends the wait */
    pair_expect(p, &p->b, SLUICE_MESSAGE);
    pair_settle(p);
    assert_int_equal(s->rpc.cancels, 0);
    assert_int_equal(sluice_request_wanted(p->a.session, token), 0);
    assert_int_equal(pair_reply(&p->a, token, 10, 1), 0);
    expect_idle(p);
}

/* ---- the end of the session ------------------------------------------------------------------ */

TEST(at_the_end_each_request_has_one_outcome_that_says_whether_it_left) {
    static const size_t sizes[] = {10, 5000};
    for (unsigned i = 0; i < 4; i++) {
        struct pair p;
        pair_open(&p, PAIR_NODE(), PAIR_LINK());
        pair_connect(&p, PAIR_LINK());
        assert_int_equal(pair_request(&p.b, sizes[i & 1], 1, SLUICE_SEND(.tag = 1)), 0);
        assert_int_equal(pair_request(&p.b, sizes[i & 1], 1, SLUICE_SEND(.tag = 2)), 0);
        assert_int_equal(pair_request(&p.b, sizes[i & 1], 1, SLUICE_SEND(.tag = 3)), 0);
        uint64_t token = pair_expect(&p, &p.a, SLUICE_REQUEST).token;
        assert_int_equal(pair_reply(&p.a, token, 10, 1), 0);
        expect_outcome(&p, &p.b, 1, SLUICE_OK);
        sluice_cancel(p.b.session, 3);
        expect_outcome(&p, &p.b, 3, SLUICE_ECANCELLED);
        pair_session(&p.b)->connection->tx.credits = 0;
        assert_int_equal(pair_request(&p.b, sizes[i & 1], 1, SLUICE_SEND(.tag = 4)), 0);
        sluice_hangup(i & 2 ? p.a.session : p.b.session, 0);
        unsigned unknown = 0, closed = 0;
        for (unsigned k = 0; k < 2; k++) {
            sluice_event event = pair_expect(&p, &p.b, SLUICE_REPLY);
            unknown += event.tag == 2 && event.status == SLUICE_EUNKNOWN;
            closed += event.tag == 4 && event.status == SLUICE_ECLOSED;
        }
        assert_int_equal(unknown, 1);
        assert_int_equal(closed, 1);
        pair_expect(&p, &p.b, SLUICE_CLOSED);
        assert_int_equal(pair_request(&p.b, 1, 1, NULL), SLUICE_ECLOSED);
        sluice_cancel(p.b.session, 2);
        pair_expect_nothing(&p, &p.b);
        pair_close(&p);
    }
}

PAIR_WITH(pair_connected, a_grace_waits_for_replies) {
    struct pair *p = *state;
    assert_int_equal(pair_request(&p->b, 10, 1, SLUICE_SEND(.tag = 1)), 0);
    assert_int_equal(pair_request(&p->b, 10, 1, SLUICE_SEND(.tag = 2)), 0);
    assert_int_equal(pair_request(&p->b, 10, 1, SLUICE_SEND(.tag = 3)), 0);
    uint64_t tokens[3];
    for (unsigned i = 0; i < 3; i++)
        tokens[i] = pair_expect(p, &p->a, SLUICE_REQUEST).token;
    sluice_hangup(p->b.session, SLUICE_OFF);
    pair_expect_nothing(p, &p->b);
    assert_int_equal(pair_reply(&p->a, tokens[1], 10, 1), 0);
    expect_outcome(p, &p->b, 2, SLUICE_OK);
    assert_int_equal(sluice_reply_error(p->a.session, tokens[0], 4), 0);
    expect_outcome(p, &p->b, 1, SLUICE_EREJECTED);
    pair_expect_nothing(p, &p->b);
    sluice_cancel(p->b.session, 3);
    expect_outcome(p, &p->b, 3, SLUICE_ECANCELLED);
    assert_int_equal(pair_expect(p, &p->b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
    assert_int_equal(pair_expect(p, &p->a, SLUICE_CLOSED).reason, SLUICE_REASON_PEER_CLOSE);
}

TEST(a_deadline_ends_the_wait_of_a_grace) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    pair_connect(&p, PAIR_LINK());
    uint64_t deadline = pair_now(NULL) + 100 * SECOND;
    assert_int_equal(pair_request(&p.b, 10, 1, SLUICE_SEND(.tag = 1, .deadline_ns = deadline)), 0);
    pair_expect(&p, &p.a, SLUICE_REQUEST);
    sluice_hangup(p.b.session, SLUICE_OFF);
    pair_expect_nothing(&p, &p.b);
    pair_clock += 101 * SECOND;
    expect_outcome(&p, &p.b, 1, SLUICE_ETIMEDOUT);
    pair_expect(&p, &p.b, SLUICE_CLOSED);
    pair_close(&p);
}

/* ---- broken peers ---------------------------------------------------------------------------- */

/* A frame as no side of this library would send it. */
static void forge(struct side *side, unsigned type, unsigned flags, uint64_t total,
                  uint32_t bytes) {
    struct session *s = pair_session(side);
    struct sluice_msg *msg = message_of(pool_get(side->node->pool, NULL, bytes));
    assert_non_null(msg);
    if (FRAME_NUMBERED >> type & 1)
        s->connection->tx.sequence++;
    struct frame f = {.type = (uint8_t)type,
                      .flags = (uint8_t)flags,
                      .sequence = s->connection->tx.sequence,
                      .ack = s->connection->rx.sequence,
                      .length = bytes,
                      .total = total};
    frame_put(msg->data - FRAME_BYTES, &f);
    if (!(flags & FRAME_RESERVED))
        s->connection->tx.credits--;
    struct ibv_sge sge = {(uintptr_t)(msg->data - FRAME_BYTES), FRAME_BYTES + bytes, msg->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_send_id(s->connection, s->connection->sq.tail),
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    msg->state = MSG_SENDING;
    msg->tx.tag = 0;
    s->connection->sq.entries[s->connection->sq.tail++ & s->connection->sq.mask] =
        (struct sq_entry){msg, 0};
    assert_int_equal(ibv_post_send(s->connection->qp, &wr, &bad), 0);
}

static void expect_end(struct pair *p, sluice_reason reason) {
    sluice_event event;
    do {
        assert_true(pair_next(p, &p->a, &event));
    } while (event.type == SLUICE_REQUEST || event.type == SLUICE_REPLY);
    assert_int_equal(event.type, SLUICE_CLOSED);
    assert_int_equal(event.reason, reason);
}

struct forgery {
    unsigned type, flags;
    uint64_t total;
    uint32_t bytes;
    sluice_reason reason;
};

PAIR_WITH(pair_connected, a_frame_that_answers_nothing_ends_its_session_only) {
    struct pair *p = *state;
    /* a has one request in flight, with the id 256 */
    static const struct forgery list[] = {
        {FRAME_REPLY, FRAME_RESERVED, 257, 10, SLUICE_REASON_PROTOCOL}, /* a free place */
        {FRAME_REPLY, FRAME_RESERVED, 512, 10, SLUICE_REASON_PROTOCOL}, /* not this id */
        {FRAME_REPLY, FRAME_RESERVED, 0, 10, SLUICE_REASON_PROTOCOL},
        {FRAME_REPLY, FRAME_RESERVED, 511, 10, SLUICE_REASON_PROTOCOL}, /* above the limit */
        {FRAME_REPLY, FRAME_RESERVED, 256 | 2ull << 32, 1, SLUICE_REASON_PROTOCOL},
        {FRAME_REPLY, FRAME_RESERVED, 256 | 5ull << 32, 0, SLUICE_REASON_PROTOCOL},
        {FRAME_REPLY, FRAME_RESERVED, 256 | 255ull << 32, 0, SLUICE_REASON_PROTOCOL},
        {FRAME_REPLY, 0, 256, 10, SLUICE_REASON_PROTOCOL}, /* takes a credit */
        {FRAME_REPLY, FRAME_RESERVED | 1, 256, 10, SLUICE_REASON_PROTOCOL},
        {FRAME_REQUEST, FRAME_RESERVED, 256, 10, SLUICE_REASON_PROTOCOL},
        {FRAME_DATA, FRAME_RESERVED, 0, 10, SLUICE_REASON_PROTOCOL},
        {FRAME_CANCEL, 0, 1ull << 32, 0, SLUICE_REASON_PROTOCOL},
        {FRAME_CANCEL, 0, 256, 1, SLUICE_REASON_PROTOCOL},
    };
    struct side other_a = p->a, other_b = p->b;
    for (unsigned i = 0; i < sizeof list / sizeof list[0]; i++) {
        const struct forgery *f = &list[i];
        pair_connect(p, PAIR_LINK());
        assert_int_equal(pair_request(&p->a, 10, 1, SLUICE_SEND(.tag = 3)), 0);
        pair_expect(p, &p->b, SLUICE_REQUEST);
        forge(&p->b, f->type, f->flags, f->total, f->bytes);
        expect_outcome(p, &p->a, 3, SLUICE_EUNKNOWN);
        expect_end(p, f->reason);
        pair_expect(p, &p->b, SLUICE_CLOSED);
    }
    p->a.session = other_a.session;
    p->b.session = other_b.session;
    expect_idle(p);
}

PAIR_WITH(pair_opened, a_reply_without_a_request_overruns_the_credits) {
    struct pair *p = *state;
    /* none was ever sent */
    pair_connect(p, PAIR_LINK());
    forge(&p->b, FRAME_REPLY, FRAME_RESERVED, 256, 10);
    expect_end(p, SLUICE_REASON_CREDITS);
    pair_expect(p, &p->b, SLUICE_CLOSED);
    /* one was, and two replies come, before the first is looked at */
    pair_connect(p, PAIR_LINK());
    assert_int_equal(pair_request(&p->a, 10, 1, SLUICE_SEND(.tag = 3)), 0);
    uint64_t token = pair_expect(p, &p->b, SLUICE_REQUEST).token;
    assert_int_equal(pair_reply(&p->b, token, 10, 1), 0);
    forge(&p->b, FRAME_REPLY, FRAME_RESERVED, 256, 10);
    pair_turns(p, 50);
    expect_outcome(p, &p->a, 3, SLUICE_EUNKNOWN); /* nothing more is taken from this peer */
    expect_end(p, SLUICE_REASON_CREDITS);
}

PAIR_WITH(pair_connected, a_request_for_a_place_that_is_taken_breaks_the_protocol) {
    struct pair *p = *state;
    forge(&p->b, FRAME_REQUEST, 0, 511, 10);
    uint64_t token = pair_expect(p, &p->a, SLUICE_REQUEST).token;
    forge(&p->b, FRAME_REQUEST, 0, 767, 10); /* the same place, another id */
    expect_end(p, SLUICE_REASON_PROTOCOL);
    assert_int_equal(pair_reply(&p->a, token, 10, 1), SLUICE_ECLOSED);
    pair_expect(p, &p->b, SLUICE_CLOSED);
}

PAIR_WITH(pair_connected, a_cancellation_of_what_is_not_there_is_ignored) {
    struct pair *p = *state;
    static const uint32_t ids[] = {0, 255, 512, UINT32_MAX};
    for (unsigned i = 0; i < 4; i++)
        forge(&p->b, FRAME_CANCEL, 0, ids[i], 0);
    pair_settle(p);
    expect_idle(p);
    assert_int_equal(pair_request(&p->b, 10, 1, SLUICE_SEND(.tag = 1)), 0);
    uint64_t token = pair_expect(p, &p->a, SLUICE_REQUEST).token;
    forge(&p->b, FRAME_CANCEL, 0, 1 << 16, 0); /* its place, not its id */
    pair_settle(p);
    assert_int_equal(sluice_request_wanted(p->a.session, token), 1);
    assert_int_equal(pair_reply(&p->a, token, 10, 1), 0);
    expect_outcome(p, &p->b, 1, SLUICE_OK);
    expect_idle(p);
}

/* ---- hanging up ------------------------------------------------------------------------------ */

/* Requests that are there when their side hangs up, and that come behind it; nothing of them is delivered any more. */
PAIR_WITH(pair_connected, who_hangs_up_answers_what_it_was_asked) {
    struct pair *p = *state;
    pair_frozen = pair_now(NULL); /* no grace is over */
    assert_int_equal(pair_request(&p->a, 10, 1, SLUICE_SEND(.tag = 7)), 0);
    uint64_t asked = pair_expect(p, &p->b, SLUICE_REQUEST).token;
    assert_int_equal(pair_request(&p->b, 10, 1, SLUICE_SEND(.tag = 1)), 0);
    assert_int_equal(pair_request(&p->b, 9000, 2, SLUICE_SEND(.tag = 2)), 0);
    uint64_t token = pair_expect(p, &p->a, SLUICE_REQUEST).token;
    pair_settle(p);                          /* the second one waits to be taken */
    sluice_hangup(p->a.session, SLUICE_OFF); /* and waits for its own answer */
    assert_int_equal(pair_reply(&p->a, token, 1, 1), SLUICE_ECLOSED);
    expect_outcome(p, &p->b, 1, SLUICE_EUNKNOWN);
    pair_expect_nothing(p, &p->a);
    expect_outcome(p, &p->b, 2, SLUICE_EUNKNOWN);
    assert_int_equal(pair_request(&p->b, 10, 3, SLUICE_SEND(.tag = 3)), 0);
    pair_settle(p);
    pair_expect_nothing(p, &p->a);
    expect_outcome(p, &p->b, 3, SLUICE_EUNKNOWN);
    assert_int_equal(pair_reply(&p->b, asked, 10, 5), 0);
    expect_outcome(p, &p->a, 7, SLUICE_OK);
    pair_expect(p, &p->a, SLUICE_CLOSED);
    pair_expect(p, &p->b, SLUICE_CLOSED);
}

PAIR_WITH(pair_connected, two_that_hang_up_do_not_wait_for_each_others_answer) {
    struct pair *p = *state;
    pair_frozen = pair_now(NULL);
    assert_int_equal(pair_request(&p->a, 10, 1, SLUICE_SEND(.tag = 7)), 0);
    pair_expect(p, &p->b, SLUICE_REQUEST);
    assert_int_equal(pair_request(&p->b, 10, 1, SLUICE_SEND(.tag = 1)), 0);
    pair_expect(p, &p->a, SLUICE_REQUEST);
    sluice_hangup(p->a.session, SLUICE_OFF);
    sluice_hangup(p->b.session, SLUICE_OFF);
    expect_outcome(p, &p->a, 7, SLUICE_EUNKNOWN);
    expect_outcome(p, &p->b, 1, SLUICE_EUNKNOWN);
    pair_expect(p, &p->a, SLUICE_CLOSED);
    pair_expect(p, &p->b, SLUICE_CLOSED);
}
