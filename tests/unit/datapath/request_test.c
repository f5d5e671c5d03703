/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Requests: many in flight, one outcome each, one answer each, whatever happens on either side. */
#include "support/request.h"
#include "datapath/rpc/internal.h"

/* ---- answers --------------------------------------------------------------------------------- */

PAIR_WITH(pair_connected, a_request_is_answered_with_the_reply_and_the_tag) {
    struct pair *p = *state;
    for (unsigned round = 0; round < 3; round++) {
        static const size_t sizes[] = {0, 1, 64, 200, 1000, 8000};
        for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            struct side *asks = round & 1 ? &p->a : &p->b, *answers = round & 1 ? &p->b : &p->a;
            assert_int_equal(pair_request(asks, sizes[i], i, SLUICE_SEND(.tag = 77 + i)), 0);
            sluice_event event = pair_expect(p, answers, SLUICE_REQUEST);
            assert_true(pair_check(event.msg, sizes[i], i));
            assert_int_equal(event.value, 0);
            assert_int_not_equal(event.token, 0);
            assert_int_equal(sluice_request_wanted(answers->session, event.token), 1);
            assert_int_equal(pair_reply(answers, event.token, sizes[5 - i], i + 9), 0);
            event = pair_expect(p, asks, SLUICE_REPLY);
            assert_int_equal(event.status, 0);
            must_data_equal(event.tag, 77 + i);
            assert_true(pair_check(event.msg, sizes[5 - i], i + 9));
        }
    }
    pair_expect_nothing(p, &p->a);
    pair_expect_nothing(p, &p->b);
    assert_int_equal(pair_in_flight(&p->a) + pair_in_flight(&p->b), 0);
}

TEST(a_borrowed_request_can_be_sent_back_as_the_reply) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 4));
    pair_connect(&p, PAIR_LINK());
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(pair_request(&p.b, 64, i, NULL), 0);
        sluice_event event = pair_expect(&p, &p.a, SLUICE_REQUEST);
        assert_int_equal(sluice_reply(p.a.session, event.token, event.msg), 0);
        event = pair_expect(&p, &p.b, SLUICE_REPLY);
        assert_true(pair_check(event.msg, 64, i));
    }
    pair_close(&p);
}

PAIR_WITH(pair_opened, replies_come_in_any_order) {
    struct pair *p = *state;
    enum { COUNT = 256 };
    uint64_t tokens[COUNT];
    bool seen[COUNT] = {false};
    pair_connect(p, PAIR_LINK(.requests = COUNT, .window_messages = COUNT));
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(pair_request(&p->b, 16, i, SLUICE_SEND(.tag = i)), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        sluice_event event = pair_expect(p, &p->a, SLUICE_REQUEST);
        assert_true(pair_check(event.msg, 16, i)); /* requests are in order */
        tokens[i] = event.token;
    }
    assert_int_equal(pair_in_flight(&p->b), COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        unsigned k = i * 77 % COUNT; /* 77 and 256 have no divisor in common */
        assert_int_equal(pair_reply(&p->a, tokens[k], 20, k), 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        sluice_event event = pair_expect(p, &p->b, SLUICE_REPLY);
        must_data_equal(event.tag, i * 77 % COUNT);
        must_data(!seen[event.tag]);
        seen[event.tag] = true;
        assert_true(pair_check(event.msg, 20, (unsigned)event.tag));
    }
    assert_int_equal(pair_in_flight(&p->b), 0);
    pair_expect_nothing(p, &p->b);
}

static int reply_with(struct side *side, uint64_t token, unsigned seed,
                      const sluice_send_options *o) {
    sluice_msg *msg;
    assert_int_equal(sluice_alloc(side->node, 64, &msg), 0);
    pair_fill(msg, seed);
    int status = sluice_reply_with(side->session, token, msg, o);
    if (status != 0)
        sluice_free(msg);
    return status;
}

PAIR_WITH(pair_opened, replies_that_follow_each_other_share_a_frame) {
    struct pair *p = *state;
    enum { COUNT = 40 };
    uint64_t tokens[COUNT];
    pair_connect(p, PAIR_LINK(.requests = COUNT));
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < COUNT; i++)
            assert_int_equal(pair_request(&p->b, 16, i, SLUICE_SEND(.tag = i)), 0);
        for (unsigned i = 0; i < COUNT; i++)
            tokens[i] = pair_expect(p, &p->a, SLUICE_REQUEST).token;
        pair_settle(p);
        uint64_t frames = loop_totals(p->a.loop)->frames_sent,
                 sent = loop_totals(p->a.loop)->messages_sent;
        /* The last of the first round says that nothing follows; in the second the next poll does. */
        for (unsigned i = 0; i < COUNT; i++)
            assert_int_equal(
                reply_with(&p->a, tokens[i], i,
                           i + 1 < COUNT || round > 0 ? SLUICE_SEND(.flags = SLUICE_MORE) : NULL),
                0);
        assert_int_equal(loop_totals(p->a.loop)->frames_sent, frames + (round == 0));
        assert_int_equal(sluice_poll(p->a.loop, NULL, 0, 0), 0);
        assert_int_equal(loop_totals(p->a.loop)->messages_sent, sent + COUNT);
        assert_int_equal(loop_totals(p->a.loop)->frames_sent, frames + 1);
        for (unsigned i = 0; i < COUNT; i++) {
            sluice_event event = pair_expect(p, &p->b, SLUICE_REPLY);
            must_data_equal(event.tag, i);
            assert_true(pair_check(event.msg, 64, i));
        }
    }
    assert_int_equal(pair_in_flight(&p->b), 0);
}

PAIR_WITH(pair_connected, a_reply_has_neither_tag_nor_deadline) {
    struct pair *p = *state;
    assert_int_equal(pair_request(&p->b, 16, 1, NULL), 0);
    uint64_t token = pair_expect(p, &p->a, SLUICE_REQUEST).token;
    assert_int_equal(reply_with(&p->a, token, 2, SLUICE_SEND(.tag = 1)), SLUICE_EINVAL);
    assert_int_equal(reply_with(&p->a, token, 2, SLUICE_SEND(.deadline_ns = UINT64_MAX)),
                     SLUICE_EINVAL);
    assert_int_equal(reply_with(&p->a, token, 2, SLUICE_SEND(.flags = 8)), SLUICE_EINVAL);
    assert_int_equal(reply_with(&p->a, token, 2, NULL), 0); /* it is still to be answered */
    assert_true(pair_check(pair_expect(p, &p->b, SLUICE_REPLY).msg, 64, 2));
}

PAIR_WITH(pair_connected, a_refusal_carries_its_code) {
    struct pair *p = *state;
    static const uint32_t codes[] = {0, 1, 255, 65536, UINT32_MAX - 256};
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(pair_request(&p->b, 16, i, SLUICE_SEND(.tag = 5)), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_REQUEST);
        uint64_t token = event.token;
        assert_int_equal(sluice_reply_error(p->a.session, token, UINT32_MAX), SLUICE_EINVAL);
        assert_int_equal(sluice_reply_error(p->a.session, token, codes[i]), 0);
        assert_int_equal(sluice_reply_error(p->a.session, token, codes[i]), SLUICE_EINVAL);
        event = pair_expect(p, &p->b, SLUICE_REPLY);
        assert_int_equal(event.status, SLUICE_EREJECTED);
        assert_int_equal(event.vendor, codes[i]);
        must_data_equal(event.tag, 5);
        assert_null(event.msg);
    }
}

PAIR_WITH(pair_opened, a_request_is_answered_once_and_with_its_own_token) {
    struct pair *p = *state;
    uint64_t old = 0;
    pair_connect(p, PAIR_LINK(.requests = 1)); /* one place: it comes again each time */
    assert_int_equal(pair_reply(&p->a, 1, 1, 1), SLUICE_EINVAL);
    assert_int_equal(sluice_reply_error(p->a.session, 1, 1), SLUICE_EINVAL);
    assert_int_equal(sluice_request_wanted(p->a.session, 1), SLUICE_EINVAL);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(pair_request(&p->b, 16, i, NULL), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_REQUEST);
        uint64_t token = event.token;
        static const uint64_t none[] = {0, 1, UINT64_MAX, 1ull << 63, 255};
        for (unsigned k = 0; k < 5; k++)
            assert_int_equal(pair_reply(&p->a, none[k], 1, 1), SLUICE_EINVAL);
        assert_int_equal(pair_reply(&p->a, token + 1, 1, 1), SLUICE_EINVAL);
        assert_int_equal(pair_reply(&p->a, token + RPC_IDS_MAX, 1, 1), SLUICE_EINVAL);
        assert_int_equal(pair_reply(&p->a, token | 1ull << 62, 1, 1), SLUICE_EINVAL);
        assert_int_equal(pair_reply(&p->a, old, 1, 1),
                         SLUICE_EINVAL); /* of the place's last request */
        assert_int_equal(sluice_reply_error(p->a.session, old, 1), SLUICE_EINVAL);
        assert_int_equal(sluice_request_wanted(p->a.session, old), SLUICE_EINVAL);
        assert_int_equal(pair_reply(&p->a, token, 16, i), 0);
        assert_int_equal(pair_reply(&p->a, token, 16, i), SLUICE_EINVAL);
        assert_int_equal(sluice_reply_error(p->a.session, token, 1), SLUICE_EINVAL);
        old = token;
        event = pair_expect(p, &p->b, SLUICE_REPLY);
        assert_true(pair_check(event.msg, 16, i));
    }
    pair_expect_nothing(p, &p->b);
    sluice_session session = p->a.session;
    assert_int_equal(pair_request(&p->b, 16, 1, NULL), 0);
    uint64_t token = pair_expect(p, &p->a, SLUICE_REQUEST).token;
    sluice_hangup(p->b.session, 0);
    pair_expect(p, &p->a, SLUICE_CLOSED);
    assert_int_equal(pair_reply(&p->a, token, 1, 1), SLUICE_ECLOSED);
    assert_int_equal(sluice_reply_error(session, token, 1), SLUICE_ECLOSED);
    assert_int_equal(sluice_request_wanted(session, token), SLUICE_ECLOSED);
}

/* ---- bounds ---------------------------------------------------------------------------------- */

PAIR_WITH(pair_opened, the_last_request_is_refused_and_writable_follows_once) {
    struct pair *p = *state;
    enum { LIMIT = 8 };
    uint64_t tokens[LIMIT];
    pair_connect(p, PAIR_LINK(.requests = LIMIT));
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < LIMIT; i++)
            assert_int_equal(pair_request(&p->b, 16, i, NULL), 0);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(pair_request(&p->b, 16, 1, NULL), SLUICE_EAGAIN);
        /* A message is no request: the window is open. */
        assert_int_equal(pair_send(&p->b, 16, 3, NULL), 0);
        for (unsigned i = 0; i < LIMIT; i++)
            tokens[i] = pair_expect(p, &p->a, SLUICE_REQUEST).token;
        pair_expect(p, &p->a, SLUICE_MESSAGE);
        pair_expect_nothing(p, &p->b);
        assert_int_equal(pair_reply(&p->a, tokens[0], 1, 1), 0);
        pair_expect(p, &p->b, SLUICE_REPLY);
        pair_expect_nothing(p, &p->b); /* a quarter must be free */
        assert_int_equal(pair_reply(&p->a, tokens[1], 1, 1), 0);
        pair_expect(p, &p->b, SLUICE_REPLY);
        pair_expect(p, &p->b, SLUICE_WRITABLE);
        pair_expect_nothing(p, &p->b);
        for (unsigned i = 2; i < LIMIT; i++) {
            assert_int_equal(pair_reply(&p->a, tokens[i], 1, 1), 0);
            pair_expect(p, &p->b, SLUICE_REPLY);
        }
        pair_expect_nothing(p, &p->b);
    }
}

PAIR_WITH(pair_opened, a_request_counts_against_the_window_until_its_outcome) {
    struct pair *p = *state;
    uint64_t tokens[4];
    pair_connect(p, PAIR_LINK(.window_messages = 4));
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pair_request(&p->b, 300, i, NULL), 0);
    assert_int_equal(pair_request(&p->b, 16, 1, NULL), SLUICE_EAGAIN);
    for (unsigned i = 0; i < 4; i++)
        tokens[i] = pair_expect(p, &p->a, SLUICE_REQUEST).token;
    pair_settle(p); /* its device has acknowledged all of them */
    assert_int_equal(pair_send(&p->b, 16, 1, NULL), SLUICE_EAGAIN);
    pair_expect_nothing(p, &p->b);
    assert_int_equal(pair_reply(&p->a, tokens[2], 1, 1), 0);
    pair_expect(p, &p->b, SLUICE_REPLY);
    pair_expect(p, &p->b, SLUICE_WRITABLE);
    assert_int_equal(pair_send(&p->b, 16, 1, NULL), 0);
}

TEST(a_reply_is_taken_though_the_window_is_full) {
    struct pair p;
    uint64_t tokens[64];
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.window_messages = 2));
    pair_connect(&p, PAIR_LINK());
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(pair_request(&p.b, 16, i, SLUICE_SEND(.tag = i)), 0);
    for (unsigned i = 0; i < 64; i++)
        tokens[i] = pair_expect(&p, &p.a, SLUICE_REQUEST).token;
    while (pair_send(&p.a, 5000, 1, NULL) == 0)
        ;
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(pair_reply(&p.a, tokens[i], 1000, i), 0);
    for (unsigned replies = 0; replies < 64;) {
        sluice_event event;
        assert_true(pair_next(&p, &p.b, &event));
        if (event.type == SLUICE_MESSAGE)
            continue;
        assert_int_equal(event.type, SLUICE_REPLY);
        must_data_equal(event.tag, replies);
        assert_true(pair_check(event.msg, 1000, replies++));
    }
    pair_close(&p);
}

TEST(a_reply_needs_no_credit) {
    enum { COUNT = 16 };
    struct pair p;
    uint64_t tokens[COUNT];
    sluice_msg *kept[COUNT];
    unsigned count = 0;
    sluice_event event;
    pair_open(&p, PAIR_NODE(.memory_bytes_max = 64 << 20), PAIR_LINK());
    pair_connect(&p, PAIR_LINK(.credits = 4));
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(pair_request(&p.b, 16, i, NULL), 0);
        tokens[i] = pair_expect(&p, &p.a, SLUICE_REQUEST).token;
    }
    pair_session(&p.a)->connection->tx.credits = 0; /* as if they were all on their way */
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(pair_reply(&p.a, tokens[i], 16, i), 0);
    assert_int_equal(pair_send(&p.a, 16, 1, NULL), 0);
    while (count < COUNT) {
        event = pair_expect(&p, &p.b, SLUICE_REPLY);
        assert_true(pair_check(event.msg, 16, count));
        sluice_keep(event.msg);
        kept[count++] = event.msg;
    }
    pair_expect_nothing(&p, &p.b);
    for (unsigned i = 0; i < COUNT; i++)
        sluice_free(kept[i]);
    pair_close(&p);
}

/* ---- both sides at once ---------------------------------------------------------------------- */

struct busy {
    struct pair *p;
    struct side *side;
    unsigned asked, answered, total;
    unsigned count; /* deferred */
    uint64_t tokens[RPC_IDS_MAX];
    sluice_msg *kept[RPC_IDS_MAX];
    bool defer, keep;
    size_t bytes;
};

static void busy_ask(struct busy *b) {
    while (b->asked < b->total) {
        int status = pair_request(b->side, b->bytes, b->asked, SLUICE_SEND(.tag = b->asked + 1));
        if (status == SLUICE_EAGAIN)
            return;
        assert_int_equal(status, 0);
        b->asked++;
    }
}

static void busy_answer(struct busy *b, unsigned from) {
    while (b->count > from) {
        b->count--;
        if (b->keep) {
            assert_int_equal(sluice_reply(b->side->session, b->tokens[b->count], b->kept[b->count]),
                             0);
        } else {
            assert_int_equal(pair_reply(b->side, b->tokens[b->count], b->bytes, 7), 0);
        }
    }
}

static void busy_event(struct busy *b, const sluice_event *event) {
    if (event->type == SLUICE_REPLY) {
        assert_int_equal(event->status, 0);
        b->answered++;
    } else if (event->type == SLUICE_REQUEST) {
        if (b->keep)
            sluice_keep(event->msg);
        b->kept[b->count] = event->msg;
        b->tokens[b->count++] = event->token;
        if (!b->defer)
            busy_answer(b, 0);
    } else {
        assert_int_equal(event->type, SLUICE_WRITABLE);
    }
}

/* Both ask as fast as they may; replies are deferred until nothing moves without them. */
static uint32_t saturate_without;

static void saturate(uint32_t credits, uint32_t requests, bool defer, bool keep, size_t bytes) {
    struct pair p;
    pair_without(saturate_without);
    pair_open(&p, PAIR_NODE(.eager_bytes = 1024),
              PAIR_LINK(.credits = credits, .requests = requests));
    pair_connect(&p, PAIR_LINK(.credits = credits, .requests = requests));
    struct busy sides[2] = {
        {.p = &p, .side = &p.a, .total = 2000, .defer = defer, .keep = keep, .bytes = bytes},
        {.p = &p, .side = &p.b, .total = 2000, .defer = defer, .keep = keep, .bytes = bytes}};
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    unsigned quiet = 0;
    while (sides[0].answered < 2000 || sides[1].answered < 2000) {
        sluice_event events[8];
        quiet++;
        for (int i = 0; i < 2; i++) {
            busy_ask(&sides[i]);
            int n = sluice_poll(sides[i].side->loop, events, 8, 0);
            for (int k = 0; k < n; k++)
                busy_event(&sides[i], &events[k]);
            if (n > 0)
                quiet = 0;
            if (quiet > 100)
                busy_answer(&sides[i], 0);
        }
        if (env_now(&env_default) > limit)
            fail_msg("stuck: %u and %u of 2000", sides[0].answered, sides[1].answered);
    }
    pair_expect_nothing(&p, &p.a);
    pair_expect_nothing(&p, &p.b);
    for (int i = 0; i < 2; i++) {
        struct session *s = pair_session(sides[i].side);
        assert_int_equal(s->connection->recv.reserved, 0);
        assert_int_equal(pair_in_flight(sides[i].side), 0);
    }
    pair_close(&p);
}

TEST(two_saturated_sides_finish) {
    saturate(32, 64, false, false, 64);
    saturate(4, 64, false, false, 64);
    saturate(4, 1, false, false, 900);
    saturate(32, 256, false, true, 900);
}

TEST(two_saturated_sides_that_defer_finish) {
    saturate(32, 64, true, false, 64);
    saturate(4, 64, true, false, 900);
}

TEST(two_saturated_sides_that_keep_every_message_finish) {
    saturate(4, 64, true, true, 64);
    saturate(32, 256, true, true, 900);
}

/* A queue of a session's own has room for its credits and its replies, and is never asked for more. */
TEST(saturated_sides_with_receives_of_their_own_finish) {
    saturate_without = WITHOUT_SRQ;
    saturate(4, 1, false, false, 900);
    saturate(4, 64, true, false, 900);
    saturate(32, 64, false, false, 64);
    saturate(32, 256, false, true, 900);
    saturate_without = 0;
}
