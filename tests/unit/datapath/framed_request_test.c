/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * framed_request_test.c - the short way of requests and replies, into a frame that lies open: what it must keep of what
 * the long way keeps.
 */
#include "support/request.h"

#define MANY 16u

static const sluice_send_options more = {.size = sizeof more, .flags = SLUICE_MORE};

/* The tables of requests are there from the first one on. */
static void open_pair(struct pair *p, const sluice_link_options *link) {
    pair_open(p, PAIR_NODE(), link);
    pair_connect(p, link);
    assert_int_equal(pair_request(&p->b, 64, 1, NULL), 0);
    sluice_event event = pair_expect(p, &p->a, SLUICE_REQUEST);
    assert_int_equal(sluice_reply(p->a.session, event.token, event.msg), 0);
    (void)pair_expect(p, &p->b, SLUICE_REPLY);
    pair_turns(p, 20);
}

static uint64_t posts(struct side *side) {
    return loop_totals(side->loop)->posts;
}

static int tagged_request(struct side *side, size_t bytes, unsigned seed, uint32_t flags) {
    return pair_request(
        side, bytes, seed,
        &(sluice_send_options){.size = sizeof more, .flags = flags, .tag = seed + 1});
}

/* One with more behind it and the last without: one frame there, and one back. */
TEST(requests_and_replies_share_frames) {
    struct pair p;
    open_pair(&p, PAIR_LINK(.requests = MANY));
    for (unsigned round = 0; round < 4; round++) {
        sluice_event events[MANY], event;
        uint64_t before = posts(&p.b);
        for (unsigned i = 0; i < MANY; i++)
            assert_int_equal(tagged_request(&p.b, 10 + i, i, i + 1 < MANY ? SLUICE_MORE : 0), 0);
        assert_int_equal(posts(&p.b), before + 1);
        assert_int_equal(pair_in_flight(&p.b), MANY);
        pair_await(&p, pair_session(&p.a)->connection->rx.sequence ==
                           pair_session(&p.b)->connection->tx.sequence);
        assert_int_equal(sluice_poll(p.a.loop, events, MANY, 0), MANY);
        before = posts(&p.a);
        for (unsigned i = 0; i < MANY; i++) { /* sent back as it came, or as another message */
            assert_int_equal(events[i].type, SLUICE_REQUEST);
            assert_true(pair_check(events[i].msg, 10 + i, i));
            assert_int_equal(sluice_reply_with(p.a.session, events[i].token, events[i].msg,
                                               i + 1 < MANY ? &more : NULL),
                             0);
            /* A request has one answer. */
            assert_int_equal(sluice_reply(p.a.session, events[i].token, events[i].msg),
                             SLUICE_EINVAL);
            assert_int_equal(sluice_reply_error(p.a.session, events[i].token, 1), SLUICE_EINVAL);
        }
        assert_int_equal(posts(&p.a), before + 1);
        for (unsigned i = 0; i < MANY; i++) {
            event = pair_expect(&p, &p.b, SLUICE_REPLY);
            assert_int_equal(event.status, SLUICE_OK);
            must_data_equal(event.tag, i + 1);
            assert_true(pair_check(event.msg, 10 + i, i));
        }
        assert_int_equal(pair_in_flight(&p.b), 0);
        pair_turns(&p, 20);
    }
    pair_close(&p);
}

TEST(one_in_an_open_frame_goes_as_one) {
    static const size_t sizes[] = {0, 1, 7, 8, 64, 65, 88, 89, 300, 512};
    struct pair p;
    open_pair(&p, PAIR_LINK());
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(tagged_request(&p.b, sizes[i], i, SLUICE_MORE), 0);
        sluice_event event = pair_expect(&p, &p.a, SLUICE_REQUEST);
        assert_true(pair_check(event.msg, sizes[i], i));
        assert_true(event.msg->flags & MSG_RX); /* in a receive of its own */
        assert_int_equal(sluice_reply_with(p.a.session, event.token, event.msg, &more), 0);
        event = pair_expect(&p, &p.b, SLUICE_REPLY);
        must_data_equal(event.tag, i + 1);
        assert_true(pair_check(event.msg, sizes[i], i));
        assert_true(event.msg->flags & MSG_RX);
    }
    pair_close(&p);
}

/* They have their ids already, and are behind nothing that the peer could have seen. */
TEST(a_request_whose_frame_was_never_posted_is_closed_and_not_unknown) {
    struct pair p;
    open_pair(&p, PAIR_LINK());
    assert_int_equal(tagged_request(&p.b, 64, 0, 0), 0);
    (void)pair_expect(&p, &p.a, SLUICE_REQUEST);
    pair_turns(&p, 20);
    assert_int_equal(pair_send(&p.b, 64, 9, &more), 0);
    for (unsigned i = 1; i < 4; i++)
        assert_int_equal(tagged_request(&p.b, 60 + i, i, SLUICE_MORE), 0);
    assert_int_equal(pair_in_flight(&p.b), 4);
    pair_session(&p.b)->connection->tx.credits = CREDIT_RESERVE; /* else it went now */
    sluice_hangup(p.b.session, 0);
    bool told[4] = {false};
    for (unsigned i = 0; i < 4; i++) {
        sluice_event event = pair_expect(&p, &p.b, SLUICE_REPLY);
        must_data(event.tag >= 1 && event.tag <= 4 && !told[event.tag - 1]);
        told[event.tag - 1] = true;
        assert_int_equal(event.status, event.tag == 1 ? SLUICE_EUNKNOWN : SLUICE_ECLOSED);
    }
    (void)pair_expect(&p, &p.b, SLUICE_CLOSED); /* debug builds assert an empty window */
    pair_close(&p);
}

TEST(a_request_in_an_open_frame_can_be_given_up) {
    struct pair p;
    open_pair(&p, PAIR_LINK());
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(tagged_request(&p.b, 64, i, SLUICE_MORE), 0);
    sluice_cancel(p.b.session, 2);
    sluice_event event = pair_expect(&p, &p.b, SLUICE_REPLY);
    must_data_equal(event.tag, 2);
    assert_int_equal(event.status, SLUICE_ECANCELLED);
    for (unsigned i = 0; i < 3; i++) {
        event = pair_expect(&p, &p.a, SLUICE_REQUEST);
        assert_true(pair_check(event.msg, 64, i));
        pair_settle(&p);
        assert_int_equal(sluice_request_wanted(p.a.session, event.token), i != 1);
        assert_int_equal(pair_reply(&p.a, event.token, 64, i), 0);
    }
    for (unsigned i = 0; i < 3; i += 2)
        must_data_equal(pair_expect(&p, &p.b, SLUICE_REPLY).tag, i + 1);
    pair_expect_nothing(&p, &p.b);
    assert_int_equal(pair_in_flight(&p.b), 0);
    pair_close(&p);
}

/* What cannot go yet waits in the queue, where it is given up without a trace. */
TEST(without_credits_a_request_is_not_written_into_a_frame) {
    struct pair p;
    open_pair(&p, PAIR_LINK());
    struct session *s = pair_session(&p.b);
    while (s->connection->tx.credits > CREDIT_RESERVE)
        assert_int_equal(pair_send(&p.b, 64, 0, NULL), 0);
    uint32_t taken = s->connection->recv.reserved;
    assert_int_equal(tagged_request(&p.b, 64, 5, SLUICE_MORE), 0);
    assert_int_equal(s->connection->recv.reserved, taken);
    sluice_cancel(p.b.session, 6);
    sluice_event event;
    for (;;) { /* and the peer never hears of it */
        if (!pair_next(&p, &p.b, &event))
            fail_msg("no outcome");
        if (event.type == SLUICE_REPLY)
            break;
    }
    assert_int_equal(event.status, SLUICE_ECANCELLED);
    pair_turns(&p, 100);
    while (sluice_poll(p.a.loop, &event, 1, 0) == 1)
        assert_int_equal(event.type, SLUICE_MESSAGE);
    pair_close(&p);
}

/* No more at once than were agreed, whichever way they take; then WRITABLE. */
TEST(as_many_requests_as_were_agreed) {
    enum { LIMIT = 5 };
    struct pair p;
    open_pair(&p, PAIR_LINK(.requests = LIMIT));
    for (unsigned round = 0; round < 20; round++) {
        unsigned sent = 0;
        while (tagged_request(&p.b, 64, sent, sent % 2 ? SLUICE_MORE : 0) == 0)
            sent++;
        assert_int_equal(sent, LIMIT);
        assert_int_equal(tagged_request(&p.b, 64, 9, 0), SLUICE_EAGAIN);
        for (unsigned i = 0; i < sent; i++) {
            sluice_event event = pair_expect(&p, &p.a, SLUICE_REQUEST);
            assert_int_equal(sluice_reply(p.a.session, event.token, event.msg), 0);
        }
        bool writable = false;
        for (unsigned replies = 0; replies < LIMIT || !writable;) {
            sluice_event event;
            assert_true(pair_next(&p, &p.b, &event));
            writable |= event.type == SLUICE_WRITABLE;
            replies += event.type == SLUICE_REPLY;
        }
    }
    pair_close(&p);
}
