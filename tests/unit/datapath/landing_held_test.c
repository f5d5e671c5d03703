/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * landing_held_test.c - large messages that have arrived and whose memory is not free: kept by the application, or sent on
 * and not taken. They count as their peer's until it is.
 */
#include "support/landing.h"
#include "support/rows.h"

#define MIB ((uint32_t)1 << 20)
#define SECOND 1000000000ull
#define HONEST 7u /* the number of another peer */
#define MANY 200u

struct way {
    uint32_t way;
    uint64_t above; /* larger ones go that way; smaller ones in frames */
};

static void open_as(struct pair *p, const sluice_node_options *node) {
    pair_open(p, node, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
}

/* So many MiB for receiving: a peer may hold five eighths of it, and all together seven. */
#define NODE(mib, ...)                                                                             \
    PAIR_NODE(.memory_bytes_max = (mib)*8ull * MIB, .receive_bytes_max = (mib) * (uint64_t)MIB,    \
              .log = NULL, __VA_ARGS__)
#define USUAL 64
#define BIG (4 * MIB)
#define SHARE (USUAL * 5 / 8 * MIB)

static void another(struct pair *p) {
    pair_connect(p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
}

/* The next message on p->a; false: none comes. */
static bool comes(struct pair *p, sluice_event *event) {
    for (unsigned i = 0; i < 2000; i++) {
        pair_turn(p);
        if (sluice_poll(p->a.loop, event, 1, 0) == 1) {
            assert_int_equal(event->type, SLUICE_MESSAGE);
            return true;
        }
        sched_yield();
    }
    return false;
}

static uint64_t held(struct pair *p) {
    return atomic_load(&p->a.node->landing_bytes);
}

/* The session that was opened last sends messages until none comes any more, and the application keeps them. How many. */
static unsigned keep_all(struct pair *p, uint32_t bytes, sluice_msg **kept, unsigned most) {
    sluice_event event;
    unsigned count = 0;
    while (count < most) {
        assert_int_equal(pair_send(&p->b, bytes, count, NULL), 0);
        if (!comes(p, &event))
            break;
        sluice_keep(event.msg);
        kept[count++] = event.msg;
    }
    return count;
}

static void expect_large_messages(struct pair *p, uint32_t bytes) {
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(pair_send(&p->b, bytes, i, NULL), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, bytes, i));
        assert_int_equal(sluice_send(event.session, event.msg, NULL), 0);
        event = pair_expect(p, &p->b, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, bytes, i));
    }
}

/* Sessions of one peer send messages that are sent back, and take none of the answers. */
static void who_takes_no_answers(void **state) {
    const struct way *way = *state;
    struct pair p;
    sluice_event event;
    sluice_session first = {0};
    unsigned answered = 0;
    open_as(&p, NODE(USUAL, .message_bytes_max = 16 << 20, .rendezvous = way->way,
                     .rendezvous_bytes = way->above));
    pair_rnr_provoked = true;
    for (;; answered++) {
        another(&p);
        assert_int_equal(pair_send(&p.b, BIG, answered, NULL), 0);
        if (!comes(&p, &event))
            break;
        assert_true(pair_check(event.msg, BIG, answered));
        pair_session(&p.b)->rx.stopped = true;
        assert_int_equal(sluice_send(event.session, event.msg, NULL), 0);
        if (answered == 0)
            first = event.session;
        assert_true(answered < MANY);
    }
    assert_int_equal(answered, SHARE / BIG);
    assert_true(held(&p) == SHARE);
    struct side waits = p.b;
    another(&p);
    landing_be_of(&p, HONEST);
    expect_large_messages(&p, 4 * BIG);
    sluice_hangup(first, 0); /* gives back what it holds */
    for (event.type = 0; event.type != SLUICE_MESSAGE;)
        assert_true(pair_next(&p, &p.a, &event));
    assert_true(pair_check(event.msg, BIG, answered));
    assert_int_equal(pair_session(&waits)->state, SESSION_UP);
    pair_close(&p);
}

static int opened(void **state) {
    static struct pair of_test;
    *state = &of_test;
    open_as(*state, NODE(USUAL, .message_bytes_max = 16 << 20));
    return 0;
}

/* Short ones are copied as soon as they are announced. */
TEST(short_ones_that_are_kept_count_too) {
    struct pair p;
    static sluice_msg *kept[MANY];
    const uint32_t bytes = 16000, share = 2 * MIB / 8 * 5;
    unsigned count = 0, more;
    open_as(&p, NODE(2, .message_bytes_max = MIB));
    do {
        another(&p);
        more = keep_all(&p, bytes, &kept[count], MANY - count);
        count += more;
    } while (more > 0);
    assert_true(held(&p) <= share && held(&p) > share - 2 * bytes);
    another(&p);
    landing_be_of(&p, HONEST);
    expect_large_messages(&p, bytes);
    while (count > 0)
        sluice_free(kept[--count]);
    pair_close(&p);
}

static void *send_back(void *arg) {
    const sluice_event *event = arg;
    return (void *)(intptr_t)sluice_send(event->session, event->msg, NULL);
}

/* By a thread without a loop, which has the message from one that kept it. */
static int send_back_elsewhere(sluice_event *event) {
    pthread_t thread;
    void *status;
    sluice_keep(event->msg);
    assert_int_equal(pthread_create(&thread, NULL, send_back, event), 0);
    assert_int_equal(pthread_join(thread, &status), 0);
    if (status)
        sluice_free(event->msg);
    return (int)(intptr_t)status;
}

struct sender {
    bool elsewhere;
};

/* The session that was opened last sends messages of a frame, which are sent back, and takes none of them, until that fails. */
static int send_back_all(struct pair *p, uint32_t bytes, bool elsewhere) {
    sluice_event event;
    int status = SLUICE_OK;
    bool came = true;
    while (status == SLUICE_OK && came) {
        while (pair_send(&p->b, bytes, 1, NULL) == SLUICE_OK)
            continue;
        if (!(came = comes(p, &event)))
            continue;
        status =
            elsewhere ? send_back_elsewhere(&event) : sluice_send(event.session, event.msg, NULL);
    }
    pair_session(&p->b)->rx.stopped = true; /* nor what there will be room for */
    while (comes(p, &event))
        continue;
    return status;
}

static void messages_of_a_frame_count(void **state) {
    const struct sender *sender = *state;
    struct pair p;
    int status = SLUICE_OK;
    open_as(&p, NODE(16, .message_bytes_max = 4 << 20));
    pair_rnr_provoked = true;
    for (unsigned i = 0; i < MANY && status != SLUICE_ENOMEM; i++) {
        another(&p);
        status = send_back_all(&p, 8000, sender->elsewhere);
    }
    assert_int_equal(status, SLUICE_ENOMEM);
    assert_true(held(&p) <= 10 * MIB && held(&p) > 10 * MIB - 8192);
    another(&p);
    landing_be_of(&p, HONEST);
    expect_large_messages(&p, 64 << 10);
    expect_large_messages(&p, 8000); /* of a frame, too */
    pair_close(&p);
}

static void *free_them(void *arg) {
    for (sluice_msg **msg = arg; *msg; msg++)
        sluice_free(*msg);
    return NULL;
}

/* What a peer's messages hold is its own matter, and no time is too long for it. */
PAIR_WITH(opened, a_peer_waits_for_what_the_application_keeps) {
    struct pair *p = *state;
    sluice_msg *kept[MANY] = {NULL};
    pthread_t other;
    another(p);
    unsigned count = keep_all(p, BIG, kept, MANY);
    assert_int_equal(count, SHARE / BIG);
    struct session *s = pair_session(&p->a);
    for (unsigned i = 0; i < 300; i++) {
        pair_clock += SECOND;
        pair_turn(p);
    }
    assert_int_equal(s->state, SESSION_UP);
    assert_int_equal(pthread_create(&other, NULL, free_them, kept), 0); /* without a loop */
    sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, BIG, count));
    assert_int_equal(pthread_join(other, NULL), 0);
    pair_turn(p);
    assert_true(held(p) == 0);
}

/* Nor does a peer get rid of it by another session. */
PAIR_WITH(opened, what_is_kept_counts_after_its_session) {
    struct pair *p = *state;
    sluice_msg *kept[MANY] = {NULL};
    sluice_event event;
    another(p);
    assert_int_equal(keep_all(p, BIG, kept, MANY), SHARE / BIG);
    sluice_hangup(p->b.session, 0);
    do /* the one that waited may fail, or come after all */
        assert_true(pair_next(p, &p->a, &event));
    while (event.type != SLUICE_CLOSED);
    while (p->b.closed == 0)
        assert_true(pair_next(p, &p->b, &event));
    assert_true(held(p) == SHARE);
    another(p);
    const struct landing_peer *honest = landing_be_of(p, HONEST);
    assert_true(atomic_load(&honest->bytes) == 0);
    expect_large_messages(p, BIG);
    another(p);
    assert_int_equal(pair_send(&p->b, BIG, 9, NULL), 0);
    pair_expect_nothing(p, &p->a);
    free_them(kept);
    assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, BIG, 9));
}

/* The application has some when the node is closed. */
TEST(a_node_closes_while_messages_are_kept) {
    struct pair p;
    sluice_msg *kept[MANY] = {NULL};
    open_as(&p, NODE(USUAL, .message_bytes_max = 16 << 20));
    another(&p);
    assert_int_equal(keep_all(&p, BIG, kept, MANY), SHARE / BIG);
    pair_close(&p);
}

/* One that is slow stays, where what the other peer waits for is its own. */
TEST(nobody_goes_for_what_another_peer_holds) {
    struct pair of_test, *p = &of_test;
    sluice_msg *kept[MANY] = {NULL};
    open_as(p, NODE(USUAL, .message_bytes_max = 16 << 20, .rendezvous = SLUICE_RENDEZVOUS_WRITE));
    another(p);
    landing_be_of(p, HONEST);
    struct session *slow = pair_session(&p->a);
    struct side of_slow = p->b;
    pair_session(&p->b)->rx.stopped = true; /* so that it never writes */
    assert_int_equal(pair_send(&p->b, BIG, 1, NULL), 0);
    pair_await(p, slow->landing.bytes == BIG);
    another(p);
    pair_grant_all(p, pair_session(&p->b), pair_session(&p->a));
    assert_int_equal(keep_all(p, BIG, kept, MANY), SHARE / BIG);
    for (unsigned i = 0; i < 600; i++) {
        pair_clock += SECOND / 10;
        pair_turn(p);
    }
    assert_int_equal(slow->state, SESSION_UP);
    free_them(kept);
    assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, BIG, SHARE / BIG));
    assert_true(slow->landing.bytes == BIG && pair_session(&of_slow)->state == SESSION_UP);
    pair_close(p);
}

/* What the application keeps for good must not keep the largest messages out. */
TEST(a_message_larger_than_a_share_comes_beside_an_eighth) {
    struct pair of_test, *p = &of_test;
    open_as(p, NODE(8, .message_bytes_max = 6 << 20));
    another(p);
    assert_int_equal(pair_send(&p->b, MIB, 1, NULL), 0);
    sluice_msg *kept = pair_expect(p, &p->a, SLUICE_MESSAGE).msg;
    sluice_keep(kept);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(pair_send(&p->b, 5 * MIB + MIB / 2, i, NULL), 0);
        assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 5 * MIB + MIB / 2, i));
    }
    assert_true(pair_check(kept, MIB, 1));
    sluice_free(kept);
    pair_close(p);
}

/* What is larger than all of the reserve takes none of it: 56 MiB are for sending, of which a peer may hold 35. */
TEST(what_is_larger_than_the_reserve_holds_none_of_it) {
    struct pair p;
    sluice_msg *kept[MANY] = {NULL};
    open_as(&p, NODE(8, .message_bytes_max = 10 << 20));
    another(&p);
    assert_int_equal(keep_all(&p, 10 * MIB, kept, MANY), 3);
    assert_true(held(&p) == 0);
    another(&p);
    landing_be_of(&p, HONEST);
    expect_large_messages(&p, 2 * MIB);
    assert_int_equal(pair_send(&p.b, 10 * MIB, 1, NULL), 0); /* 56 - 30 */
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 10 * MIB, 1));
    free_them(kept);
    pair_close(&p);
}

#define ANSWERS(name, ...) ROW(name, who_takes_no_answers, way, __VA_ARGS__)

#define SENT_ON(name, ...) ROW(name, messages_of_a_frame_count, sender, __VA_ARGS__)

TEST_CASES(SENT_ON(messages_of_a_frame_that_are_sent_on_count_too / here, false),
           SENT_ON(messages_of_a_frame_that_are_sent_on_count_too / elsewhere, true),
           ANSWERS(who_takes_no_answers_leaves_memory_to_others / read, SLUICE_RENDEZVOUS_READ, 0),
           ANSWERS(who_takes_no_answers_leaves_memory_to_others / write, SLUICE_RENDEZVOUS_WRITE,
                   0),
           ANSWERS(who_takes_no_answers_leaves_memory_to_others / copied, 0, 0),
           ANSWERS(who_takes_no_answers_leaves_memory_to_others / in_frames, 0, UINT64_MAX));
