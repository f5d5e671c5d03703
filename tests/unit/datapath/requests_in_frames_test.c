/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * requests_in_frames_test.c - requests and replies that do not fit a frame go in several where that is sooner: over TCP up to
 * 32 KiB, and up to 256 KiB while nothing else of their side is on its way. Which do, that each is whole and has one
 * outcome whatever ends it, and what a peer may not say.
 */
#include "core/wire/private_data.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/internal.h"
#include "datapath/rndv/rndv.h"
#include "datapath/tx/post.h"
#include "datapath/session/send_completion.h"
#include "support/announced.h"
#include "support/log.h"
#include "support/pool_stats.h"
#include "support/request.h"
#include "support/rows.h"

#define KIB 1024u
#define SHORT (16 * KIB) /* in frames also behind others */
#define LONG (100 * KIB) /* only alone */
#define CREDITS 64u

static struct pair pair;

static void connect_again(void) {
    pair_connect(&pair, PAIR_LINK(.credits = CREDITS));
    assert_true(pair_session(&pair.a)->connection->cm.rep.features & PRIVATE_DATA_FEATURE_PIECES);
    pair_grant_all(&pair, pair_session(&pair.b), pair_session(&pair.a));
    pair_grant_all(&pair, pair_session(&pair.a), pair_session(&pair.b));
}

static void open_with(uint32_t net) {
    memset(&pair, 0, sizeof pair);
    pair_open(&pair, PAIR_NODE(.soft_net = net, .log = log_nothing), PAIR_LINK(.credits = CREDITS));
    connect_again();
}

static int opened(void **state) {
    (void)state;
    open_with(SLUICE_SOFT_NET_REQUIRE);
    return 0;
}

static int closed(void **state) {
    (void)state;
    pair_turns(&pair, 100);
    assert_int_equal(pair_in_flight(&pair.a) + pair_in_flight(&pair.b), 0);
    pair_close(&pair);
    return 0;
}

#define FRAMES_TEST(name) TEST_WITH(opened, closed, name)

static uint64_t announced_by(struct side *side) {
    const struct rndv *r = pair_session(side)->rndv;
    return r ? r->out_order : 0;
}

/* The request that arrives at a, of which this is the pattern; its token. */
static uint64_t asked(size_t bytes, unsigned seed) {
    sluice_event event = pair_expect(&pair, &pair.a, SLUICE_REQUEST);
    assert_true(pair_check(event.msg, bytes, seed));
    sluice_free(event.msg);
    return event.token;
}

static void answered(size_t bytes, unsigned seed, uint64_t tag) {
    sluice_event event = pair_expect(&pair, &pair.b, SLUICE_REPLY);
    must_data_equal(event.tag, tag);
    assert_int_equal(event.status, 0);
    assert_true(pair_check(event.msg, bytes, seed));
    sluice_free(event.msg);
}

static void ended(uint64_t tag, sluice_status status) {
    sluice_event event = pair_expect(&pair, &pair.b, SLUICE_REPLY);
    must_data_equal(event.tag, tag);
    assert_int_equal(event.status, status);
    assert_null(event.msg);
}

/* ---- which ------------------------------------------------------------------------------------------------------- */

static void nothing(void) {
}

static void peer_of_before(void) {
    for (struct side *side = &pair.a;; side = &pair.b) {
        struct session *s = pair_session(side);
        s->connection->cm.rep.features &= ~PRIVATE_DATA_FEATURE_PIECES;
        s->tx.rpc_above = rndv_rpc_threshold(s);
        if (side == &pair.b)
            break;
    }
}

/* And the other side's loop stands still until they are sent. */
static void others_before_it(void) {
    assert_int_equal(pair_send(&pair.b, 100, 1, NULL), 0);
    assert_int_equal(pair_send(&pair.a, 100, 1, NULL), 0);
}

static void few_to_answer(void) {
    pair_session(&pair.a)->connection->tx.credits = 4;
}

static void few_credits(void) {
    few_to_answer();
    pair_session(&pair.b)->connection->tx.credits = 4;
}

struct row {
    uint32_t bytes;
    void (*before)(void);
    bool request_announced, reply_announced;
    bool shared; /* memory, and no TCP */
};

static void both_ways(void **state) {
    const struct row *row = *state;
    open_with(row->shared ? SLUICE_SOFT_NET_OFF : SLUICE_SOFT_NET_REQUIRE);
    bool others = row->before == others_before_it;
    row->before();
    assert_int_equal(pair_request(&pair.b, row->bytes, 1, SLUICE_SEND(.tag = 9)), 0);
    if (others)
        sluice_free(pair_expect(&pair, &pair.a, SLUICE_MESSAGE).msg);
    uint64_t token = asked(row->bytes, 1);
    assert_int_equal(announced_by(&pair.b), row->request_announced);
    if (others) /* the first one's acknowledgement has come with the request */
        assert_int_equal(pair_send(&pair.a, 100, 1, NULL), 0);
    bool few = row->before == few_credits || row->before == few_to_answer;
    if (few)
        few_to_answer();
    assert_int_equal(pair_reply(&pair.a, token, row->bytes, 2), 0);
    for (unsigned i = 0; others && i < 2; i++)
        sluice_free(pair_expect(&pair, &pair.b, SLUICE_MESSAGE).msg);
    answered(row->bytes, 2, 9);
    assert_int_equal(announced_by(&pair.a), row->reply_announced);
    if (!few)
        closed(NULL);
    else
        pair_close(&pair);
}

/* A reply does not wait for credits, as what is asked for first is answered first in no order. */
FRAMES_TEST(a_reply_in_frames_does_not_mix_with_a_message_that_is_not_through) {
    assert_int_equal(pair_request(&pair.b, 10, 1, SLUICE_SEND(.tag = 9)), 0);
    uint64_t token = asked(10, 1);
    struct session *a = pair_session(&pair.a);
    uint32_t credits = a->connection->tx.credits;
    a->tx.rndv_above = UINT64_MAX;
    a->connection->tx.credits = 2 + a->connection->tx.reserve;
    assert_int_equal(pair_send(&pair.a, LONG, 3, NULL), 0);
    while (a->connection->tx.credits > a->connection->tx.reserve)
        assert_int_equal(sluice_poll(pair.a.loop, NULL, 0, 0), 0);
    assert_int_not_equal(a->tx.queue.head->tx.sent, 0);
    a->connection->tx.credits = credits - 2;
    assert_int_equal(pair_reply(&pair.a, token, SHORT, 2), 0);
    bool reply = false, message = false;
    while (!reply || !message) {
        sluice_event event;
        assert_true(pair_next(&pair, &pair.b, &event));
        bool is_reply = event.type == SLUICE_REPLY;
        assert_true(is_reply ? pair_check(event.msg, SHORT, 2) : pair_check(event.msg, LONG, 3));
        *(is_reply ? &reply : &message) = true;
        sluice_free(event.msg);
    }
}

/* ---- many, and again and again --------------------------------------------------------------------------------------- */

FRAMES_TEST(many_of_all_sizes_at_once_are_answered_once_each) {
    enum { COUNT = 60 };
    static const uint32_t sizes[] = {10, SHORT, 8 * KIB, LONG, 9 * KIB, 300 * KIB, 32 * KIB};
    const unsigned n = sizeof sizes / sizeof *sizes;
    static uint8_t told[COUNT + 1];
    memset(told, 0, sizeof told);
    for (unsigned i = 1; i <= COUNT; i++)
        assert_int_equal(pair_request(&pair.b, sizes[i % n], i, SLUICE_SEND(.tag = i)), 0);
    for (unsigned i = 1; i <= COUNT; i++)
        assert_int_equal(pair_reply(&pair.a, asked(sizes[i % n], i), sizes[i / n % n], i), 0);
    for (unsigned i = 1; i <= COUNT; i++) {
        sluice_event event = pair_expect(&pair, &pair.b, SLUICE_REPLY);
        must_data_equal(told[event.tag]++, 0);
        assert_true(pair_check(event.msg, sizes[event.tag / n % n], (unsigned)event.tag));
        sluice_free(event.msg);
    }
}

/* The receive that is kept for a reply is kept again, and none is lost. */
FRAMES_TEST(what_is_received_in_goes_round) {
    uint64_t before = 0;
    for (unsigned i = 1; i <= 200; i++) {
        assert_int_equal(pair_request(&pair.b, LONG, i, SLUICE_SEND(.tag = i)), 0);
        assert_int_equal(pair_reply(&pair.a, asked(LONG, i), LONG, i), 0);
        answered(LONG, i, i);
        assert_int_equal(pair_session(&pair.b)->connection->recv.reserved, 0);
        if (i == 20)
            before = pool_in_use(pair.b.node->rx_pool);
    }
    assert_int_equal(announced_by(&pair.a) + announced_by(&pair.b), 0);
    assert_int_equal(pool_in_use(pair.b.node->rx_pool), before);
}

/* ---- given up in the middle ------------------------------------------------------------------------------------------- */

/* A request of which some fragments are on their way, and the others wait for credits. */
static void begin_request(uint64_t tag, uint64_t deadline_ns) {
    struct session *b = pair_session(&pair.b);
    b->connection->tx.credits = 1 + b->connection->tx.reserve;
    assert_int_equal(
        pair_request(&pair.b, SHORT, 1, SLUICE_SEND(.tag = tag, .deadline_ns = deadline_ns)), 0);
    while (b->connection->tx.credits > b->connection->tx.reserve)
        assert_int_equal(sluice_poll(pair.b.loop, NULL, 0, 0), 0);
    assert_int_equal(announced_by(&pair.b), 0);
    assert_int_equal(b->tx.queue.head->tx.sent, b->tx.frame_payload - FRAME_WHOLE_BYTES);
}

static void go_on(void) {
    pair_session(&pair.b)->connection->tx.credits += 20;
    loop_dirty(pair.b.loop, pair_session(&pair.b));
}

FRAMES_TEST(one_that_is_given_up_in_the_middle_ends_once) {
    begin_request(5, 0);
    sluice_cancel(pair.b.session, 5);
    ended(5, SLUICE_ECANCELLED);
    go_on();
    assert_int_equal(pair_reply(&pair.a, asked(SHORT, 1), SHORT, 1), 0); /* nobody waits for it */
    pair_expect_nothing(&pair, &pair.b);
    assert_int_equal(pair_request(&pair.b, LONG, 2, SLUICE_SEND(.tag = 6)), 0);
    assert_int_equal(pair_reply(&pair.a, asked(LONG, 2), 10, 2), 0);
    answered(10, 2, 6);
}

FRAMES_TEST(one_whose_time_is_over_in_the_middle_ends_once) {
    begin_request(5, pair_now(NULL) + 1000000);
    ended(5, SLUICE_ETIMEDOUT);
    go_on();
    assert_int_equal(pair_request(&pair.b, LONG, 2, SLUICE_SEND(.tag = 6)), 0);
    assert_int_equal(pair_reply(&pair.a, asked(LONG, 2), 10, 2), 0);
    answered(10, 2, 6);
}

/* What was posted is the device's until it completes, whatever became of the message. */
static void drop_what_is_read(struct side *side) {
    struct sluice_loop *l = side->loop;
    struct session *s = pair_session(side);
    bool nested;
    assert_true(loop_enter(l, &nested));
    assert_int_not_equal(sq_used(s->connection), 0);
    uint64_t before = pool_in_use(side->node->pool);
    send_drop_queue(l, s, SLUICE_ECLOSED);
    assert_int_equal(pool_in_use(side->node->pool), before);
    loop_leave(l, nested);
}

/* b ends with one in the middle, some of whose fragments the device may still read, or of which all completed. */
static void end_in_the_middle(bool completed, bool given_up) {
    begin_request(5, 0);
    if (completed) /* the acknowledgement of what was posted without a signal comes with the next frame */
        pair_session(&pair.b)->window.wants_signal = true;
    if (completed) {
        loop_dirty(pair.b.loop, pair_session(&pair.b));
        pair_await(&pair, sq_used(pair_session(&pair.b)->connection) == 0);
    }
    if (given_up) {
        sluice_cancel(pair.b.session, 5);
        ended(5, SLUICE_ECANCELLED);
    }
    if (!completed)
        drop_what_is_read(&pair.b);
    sluice_hangup(pair.b.session, 0);
    if (!given_up)
        ended(5, SLUICE_ECLOSED);
    pair_expect(&pair, &pair.b, SLUICE_CLOSED);
    pair_expect(&pair, &pair.a, SLUICE_CLOSED);
    pair_turns(&pair, 100);
    assert_int_equal(pool_in_use(pair.b.node->pool), 0);
}

struct end {
    bool completed, given_up;
};

static void a_session_that_ends(void **state) {
    const struct end *end = *state;
    open_with(SLUICE_SOFT_NET_REQUIRE);
    end_in_the_middle(end->completed, end->given_up);
    pair_close(&pair);
}

/* A reply of which the first fragment is on its way. */
static void begin_reply(void) {
    struct sluice_loop *l = pair.a.loop;
    struct session *a = pair_session(&pair.a);
    sluice_msg *msg;
    bool nested;
    assert_int_equal(pair_request(&pair.b, 10, 1, SLUICE_SEND(.tag = 9)), 0);
    uint64_t token = asked(10, 1);
    assert_int_equal(sluice_alloc(pair.a.node, LONG, &msg), 0);
    pair_fill(msg, 2);
    assert_true(loop_enter(l, &nested));
    assert_int_equal(
        sluice_reply_with(pair.a.session, token, msg, SLUICE_SEND(.flags = SLUICE_MORE)), 0);
    struct wr_batch batch;
    wr_batch_begin(&batch);
    assert_int_equal(wr_batch_message(l, a, &batch, msg), BUILD_PARTIAL);
    wr_batch_post(l, a, &batch);
    loop_leave(l, nested);
}

FRAMES_TEST(a_reply_that_waits_for_credits_goes_on) {
    struct session *a = pair_session(&pair.a);
    uint32_t credits = a->connection->tx.credits;
    begin_reply();
    a->connection->tx.credits = a->connection->tx.reserve + 2;
    while (a->connection->tx.credits > a->connection->tx.reserve)
        assert_int_equal(sluice_poll(pair.a.loop, NULL, 0, 0), 0);
    assert_non_null(a->tx.replies.head);
    a->connection->tx.credits = credits - 2;
    assert_int_equal(pair_send(&pair.b, 10, 1, NULL), 0); /* with the frame there are credits */
    sluice_free(pair_expect(&pair, &pair.a, SLUICE_MESSAGE).msg);
    answered(LONG, 2, 9);
}

/* The side that answers ends, and what was there of the reply goes. */
TEST(a_reply_that_is_cut_off_ends_its_request) {
    uint64_t received = 0;
    open_with(SLUICE_SOFT_NET_REQUIRE);
    for (unsigned i = 0; i < 2; i++) {
        if (i > 0)
            connect_again();
        begin_reply();
        drop_what_is_read(&pair.a);
        sluice_event event;
        while (!pair_session(&pair.b)->rx.partial_reply) /* with room for what it brings */
            assert_int_equal(sluice_poll(pair.b.loop, &event, 1, 0), 0);
        sluice_hangup(pair.a.session, 0);
        ended(9, SLUICE_EUNKNOWN);
        pair_expect(&pair, &pair.a, SLUICE_CLOSED);
        pair_expect(&pair, &pair.b, SLUICE_CLOSED);
        pair_turns(&pair, 100);
        assert_int_equal(pool_in_use(pair.a.node->pool), 0);
        assert_int_equal(pool_in_use(pair.b.node->pool), 0);
        if (i == 0)
            received = pool_in_use(pair.b.node->rx_pool);
    }
    assert_int_equal(pool_in_use(pair.b.node->rx_pool), received);
    pair_close(&pair);
}

/* ---- what a peer may not say -------------------------------------------------------------------------------------------- */

/* Says a frame with these words behind its header, as the next numbered one. */
static void say(unsigned type, unsigned flags, uint32_t length, uint64_t total, uint64_t first) {
    const uint64_t words[4] = {htole64(first)};
    const struct frame f = {
        .type = (uint8_t)type, .flags = (uint8_t)flags, .length = length, .total = total};
    pair_session(&pair.b)->connection->tx.sequence++;
    (void)pair_forge(&pair.b, &f, words, sizeof words);
}

static void is_refused(const char *text) {
    if (pair_in_flight(&pair.a) > 0)
        pair_expect(&pair, &pair.a, SLUICE_REPLY); /* there is no answer */
    sluice_event event = pair_expect(&pair, &pair.a, SLUICE_CLOSED);
    sluice_session_info info = pair_info(event.session);
    if (!strstr(info.close_text, text))
        fail_msg("\"%s\" where \"%s\" was expected", info.close_text, text);
    pair_close(&pair);
}

struct wrong {
    unsigned type, flags;
    uint32_t length;
    uint64_t whole; /* the first word */
    const char *text;
    void (*before)(void);
};

static void breaks_the_rules(void **state) {
    const struct wrong *w = *state;
    open_with(SLUICE_SOFT_NET_REQUIRE);
    w->before();
    say(w->type, w->flags, w->length, 0, w->whole);
    is_refused(w->text);
}

static void asks_something(void) {
    assert_int_equal(pair_request(&pair.a, 10, 1, NULL), 0);
    pair_expect(&pair, &pair.b, SLUICE_REQUEST);
}

/* Two that are put together at the same time cannot be. */
TEST(a_second_one_before_the_first_is_whole_is_refused) {
    open_with(SLUICE_SOFT_NET_REQUIRE);
    for (unsigned i = 0; i < 2; i++)
        say(FRAME_REQUEST, FRAME_FIRST, 32, i, 100);
    is_refused("an unexpected first fragment");
}

TEST(one_that_has_more_than_it_said_is_refused) {
    open_with(SLUICE_SOFT_NET_REQUIRE);
    say(FRAME_REQUEST, FRAME_FIRST, 32, 0, 40);
    say(FRAME_FRAG, FRAME_LAST, 32, 0, 0);
    is_refused("a fragment that does not fit its message");
}

TEST(an_answer_to_what_was_not_asked_is_refused) {
    open_with(SLUICE_SOFT_NET_REQUIRE);
    asks_something();
    say(FRAME_REPLY, FRAME_FIRST | FRAME_RESERVED, 32, 77, 40);
    say(FRAME_FRAG, FRAME_LAST, 16, 0, 0);
    is_refused("a reply to no request");
}

#define UNEXPECTED "an unexpected first fragment"
#define WRONG(name, type, flags, length, whole, text)                                              \
    ROW(name, breaks_the_rules, wrong, type, flags, length, whole, text, nothing)

TEST_CASES(
    ROW(a_short_one_goes_in_frames, both_ways, row, SHORT, nothing, false, false, false),
    ROW(a_short_one_behind_others_does, both_ways, row, SHORT, others_before_it, false, false,
        false),
    ROW(a_long_one_alone_does, both_ways, row, LONG, nothing, false, false, false),
    ROW(a_long_one_behind_others_is_announced, both_ways, row, LONG, others_before_it, true, true,
        false),
    ROW(a_peer_of_before_is_told_of_it, both_ways, row, SHORT, peer_of_before, true, true, false),
    ROW(without_credits_a_long_one_is_announced, both_ways, row, LONG, few_credits, true, true,
        false),
    ROW(without_credits_a_short_reply_is, both_ways, row, 30 * KIB, few_to_answer, false, true,
        false),
    ROW(a_peer_that_shares_memory_is_told_of_it, both_ways, row, SHORT, nothing, true, true, true),
    ROW(a_session_ends_in_the_middle, a_session_that_ends, end, false, false),
    ROW(a_session_ends_when_some_of_it_completed, a_session_that_ends, end, true, false),
    ROW(a_session_ends_when_it_was_given_up, a_session_that_ends, end, false, true),
    ROW(a_session_ends_when_it_completed_and_was_given_up, a_session_that_ends, end, true, true),
    ROW(one_that_was_not_agreed_is_refused, breaks_the_rules, wrong, FRAME_REQUEST, FRAME_FIRST, 32,
        100, "which was not agreed", peer_of_before),
    WRONG(one_without_a_size_is_refused, FRAME_REQUEST, FRAME_FIRST, 0, 0, UNEXPECTED),
    WRONG(one_with_half_a_size_is_refused, FRAME_REQUEST, FRAME_FIRST, 4, 100, UNEXPECTED),
    WRONG(one_with_only_a_size_is_refused, FRAME_REQUEST, FRAME_FIRST, 8, 100, UNEXPECTED),
    WRONG(one_that_is_whole_is_refused, FRAME_REQUEST, FRAME_FIRST, 32, 24, UNEXPECTED),
    WRONG(one_of_nothing_is_refused, FRAME_REQUEST, FRAME_FIRST, 32, 0, UNEXPECTED),
    WRONG(one_larger_than_agreed_is_refused, FRAME_REQUEST, FRAME_FIRST, 32, UINT64_MAX,
          "a message larger than agreed"),
    WRONG(a_last_one_that_is_the_first_is_refused, FRAME_REQUEST, FRAME_FIRST | FRAME_LAST, 32, 100,
          "unknown flags"),
    WRONG(an_announcement_has_no_fragments, FRAME_RTS, FRAME_FIRST, 32, 100, "unknown flags"),
    WRONG(a_reply_where_nothing_was_asked_is_refused, FRAME_REPLY, FRAME_FIRST | FRAME_RESERVED, 32,
          100, "a reply without a request"),
    ROW(a_reply_that_takes_a_credit_is_refused, breaks_the_rules, wrong, FRAME_REPLY, FRAME_FIRST,
        32, 100, "a reply that takes a credit", asks_something));
