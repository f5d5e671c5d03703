/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * waits_test.c - who is told EAGAIN can ask of the session which limit it met: window, requests or memory; and is
 * told so until the WRITABLE is on its way, whichever thread it was.
 */
#include "support/pair.h"
#include "datapath/rx/message.h"
#include "sluice/memory.h"

enum { SIZE = 2000, HOARD = 8192, MIB = 1 << 20 };

static uint8_t text[SIZE];

/* ---- the calls, by the loop's thread or by one that has no loop ------------------------------------ */

struct call {
    struct pair *p;
    int (*make)(struct pair *p);
    int status;
};

static int copy(struct pair *p) {
    return sluice_send_copy(p->b.session, text, SIZE, NULL);
}

static int request(struct pair *p) {
    sluice_msg *msg;
    int status = sluice_alloc(p->b.node, 16, &msg);
    if (status != 0)
        return status;
    memset(sluice_data(msg), 0, 16);
    status = sluice_request(p->b.session, msg, NULL);
    if (status != 0)
        sluice_free(msg);
    return status;
}

static int alloc(struct pair *p) {
    sluice_msg *msg;
    int status = sluice_alloc(p->b.node, SIZE, &msg);
    if (status == 0)
        sluice_free(msg);
    return status;
}

static void *make(void *arg) {
    struct call *call = arg;
    call->status = call->make(call->p);
    return NULL;
}

static int ask(struct pair *p, int (*what)(struct pair *p), bool elsewhere) {
    struct call call = {p, what, 0};
    pthread_t thread;
    if (!elsewhere)
        return what(p);
    assert_int_equal(pthread_create(&thread, NULL, make, &call), 0);
    pthread_join(thread, NULL);
    return call.status;
}

/* ---- what it is told ------------------------------------------------------------------------------- */

static void expect_waits(struct pair *p, uint32_t waits) {
    assert_int_equal(pair_info(p->b.session).waits, waits);
}

/* Of messages, or of bytes. */
static void a_full_window(const sluice_link_options *link, unsigned fits, bool elsewhere) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    pair_connect(&p, link);
    for (unsigned i = 0; i < fits; i++)
        assert_int_equal(copy(&p), 0);
    expect_waits(&p, 0);
    assert_int_equal(pair_info(p.b.session).window_messages_used, fits);
    assert_int_equal(pair_info(p.b.session).window_bytes_used, fits * SIZE);
    assert_int_equal(ask(&p, copy, elsewhere), SLUICE_EAGAIN);
    expect_waits(&p, SLUICE_WAITS_WINDOW);
    for (unsigned i = 0; i < fits; i++)
        pair_expect(&p, &p.a, SLUICE_MESSAGE);
    pair_expect(&p, &p.b, SLUICE_WRITABLE);
    expect_waits(&p, 0);
    assert_int_equal(ask(&p, copy, elsewhere), 0);
    expect_waits(&p, 0);
    pair_close(&p);
}

TEST(a_full_window_is_told_as_such) {
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        a_full_window(PAIR_LINK(.window_messages = 4), 4, elsewhere);
        a_full_window(PAIR_LINK(.window_bytes = 3 * SIZE), 3, elsewhere);
    }
}

TEST(requests_in_flight_are_told_as_such) {
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        struct pair p;
        uint64_t tokens[4];
        pair_open(&p, PAIR_NODE(), PAIR_LINK());
        pair_connect(&p, PAIR_LINK(.requests = 4));
        for (unsigned i = 0; i < 4; i++)
            assert_int_equal(request(&p), 0);
        expect_waits(&p, 0);
        assert_int_equal(ask(&p, request, elsewhere), SLUICE_EAGAIN);
        expect_waits(&p, SLUICE_WAITS_REQUESTS);
        assert_int_equal(copy(&p), 0); /* that is no request */
        for (unsigned i = 0; i < 4; i++)
            tokens[i] = pair_expect(&p, &p.a, SLUICE_REQUEST).token;
        pair_expect(&p, &p.a, SLUICE_MESSAGE);
        expect_waits(&p, SLUICE_WAITS_REQUESTS);
        assert_int_equal(sluice_reply_error(p.a.session, tokens[0], 7), 0);
        pair_expect(&p, &p.b, SLUICE_REPLY);
        pair_expect(&p, &p.b, SLUICE_WRITABLE);
        expect_waits(&p, 0);
        pair_close(&p);
    }
}

TEST(memory_is_told_as_such) {
    static sluice_msg *hoard[HOARD];
    int (*const calls[])(struct pair *) = {copy, alloc};
    for (unsigned k = 0; k < 4; k++) {
        int (*call)(struct pair *) = calls[k / 2];
        bool elsewhere = k % 2;
        struct pair p;
        unsigned hoarded = 0;
        pair_open(&p, PAIR_NODE(.memory_bytes_max = 4 * MIB, .message_bytes_max = 256 << 10),
                  PAIR_LINK());
        pair_connect(&p, PAIR_LINK());
        assert_true(sluice_poll(p.b.loop, NULL, 0, 0) >= 0);
        while (hoarded < HOARD && (hoard[hoarded] = message_get(p.b.node->pool, SIZE)))
            hoarded++;
        assert_uint_in_range(hoarded, 1, HOARD - 1);
        expect_waits(&p, 0);
        assert_int_equal(ask(&p, call, elsewhere), SLUICE_EAGAIN);
        expect_waits(&p, SLUICE_WAITS_MEMORY);
        pair_expect_nothing(&p, &p.b);
        expect_waits(&p, SLUICE_WAITS_MEMORY);
        sluice_free(hoard[--hoarded]);
        pair_expect(&p, &p.b, SLUICE_WRITABLE);
        expect_waits(&p, 0);
        assert_int_equal(ask(&p, call, elsewhere), 0);
        assert_true(sluice_poll(p.b.loop, NULL, 0, 0) >= 0);
        while (hoarded > 0)
            sluice_free(hoard[--hoarded]);
        pair_close(&p);
    }
}

/* The peer takes what comes until the call is not told EAGAIN; each time it is, WRITABLE follows. */
static int until_taken(struct pair *p, int (*what)(struct pair *p), bool elsewhere,
                       unsigned *arrived) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    sluice_event event;
    int status;
    while ((status = ask(p, what, elsewhere)) == SLUICE_EAGAIN) {
        do {
            if (env_now(&env_default) > limit)
                fail_msg("it is not taken; %u messages arrived", *arrived);
            pair_turn(p);
            while (sluice_poll(p->a.loop, &event, 1, 0) == 1) {
                assert_int_equal(event.type, SLUICE_MESSAGE);
                ++*arrived;
            }
        } while (sluice_poll(p->b.loop, &event, 1, 0) == 0);
        assert_int_equal(event.type, SLUICE_WRITABLE);
    }
    return status;
}

static const sluice_send_options *small_options;

static int send_small(struct pair *p) {
    return sluice_send_copy(p->b.session, "x", 1, small_options);
}

/* ---- what does not fit behind small messages ------------------------------------------------------- */

enum { LARGE = 64 << 10 };

static sluice_msg *large;
static sluice_region *here, *there;
static sluice_token token;
static uint64_t asked; /* what a reply answers */

static void large_message(struct pair *p) {
    assert_int_equal(sluice_alloc(p->b.node, LARGE, &large), 0);
    memset(sluice_data(large), 1, LARGE);
}

static int send_large(struct pair *p) {
    return sluice_send(p->b.session, large, NULL);
}

static int request_large(struct pair *p) {
    return sluice_request(p->b.session, large, NULL);
}

static void question(struct pair *p) {
    sluice_msg *msg;
    large_message(p);
    assert_int_equal(sluice_alloc(p->a.node, 1, &msg), 0);
    *(uint8_t *)sluice_data(msg) = 1;
    assert_int_equal(sluice_request(p->a.session, msg, NULL), 0);
    asked = pair_expect(p, &p->b, SLUICE_REQUEST).token;
}

static int reply_large(struct pair *p) {
    return sluice_reply(p->b.session, asked, large);
}

static void regions(struct pair *p) {
    if (here)
        return;
    assert_int_equal(sluice_region_open(p->b.node, NULL, LARGE, 0, &here, NULL), 0);
    assert_int_equal(sluice_region_open(p->a.node, NULL, LARGE, SLUICE_MAY_WRITE, &there, NULL), 0);
    assert_int_equal(sluice_region_token(there, 0, LARGE, SLUICE_MAY_WRITE, &token), 0);
}

static int put_large(struct pair *p) {
    const sluice_send_options o = {.size = sizeof o, .tag = 1};
    return sluice_put(p->b.session, here, 0, LARGE, &token, 0, &o);
}

static int pieces_large(struct pair *p) {
    const sluice_send_options o = {.size = sizeof o, .tag = 1};
    const sluice_piece pieces[] = {{"y", 1, NULL}, {sluice_region_data(here), LARGE - 1, here}};
    return sluice_send_pieces(p->b.session, pieces, 2, &o);
}

static const struct {
    const char *name;
    void (*before)(struct pair *p); /* the small messages */
    int (*call)(struct pair *p);
    bool fits;              /* at any time */
    sluice_event_type at_a; /* 0: nothing comes there */
    sluice_event_type at_b; /* 0: it has no outcome */
} kinds[] = {
    {"message", large_message, send_large, false, SLUICE_MESSAGE, 0},
    {"request", large_message, request_large, false, SLUICE_REQUEST, SLUICE_REPLY},
    {"reply", question, reply_large, true, SLUICE_REPLY, 0},
    {"put", regions, put_large, false, 0, SLUICE_DONE},
    {"pieces", regions, pieces_large, false, SLUICE_MESSAGE, SLUICE_SENT},
};

/* Behind so many small messages. */
static void it_is_taken(struct pair *p, unsigned kind, unsigned smalls, bool elsewhere) {
    unsigned arrived = 0;
    kinds[kind].before(p);
    for (unsigned i = 0; i < smalls; i++)
        assert_int_equal(until_taken(p, send_small, false, &arrived), 0);
    assert_int_equal(ask(p, kinds[kind].call, elsewhere), kinds[kind].fits ? 0 : SLUICE_EAGAIN);
    if (!kinds[kind].fits)
        assert_int_equal(until_taken(p, kinds[kind].call, elsewhere, &arrived), 0);
    for (unsigned due = smalls - arrived + (kinds[kind].at_a != 0); due > 0; due--) {
        sluice_event event = {0};
        assert_true(pair_next(p, &p->a, &event));
        if (event.type != SLUICE_MESSAGE) /* answers are in no order with messages */
            assert_int_equal(event.type, kinds[kind].at_a);
        if (event.type == SLUICE_REQUEST)
            assert_int_equal(sluice_reply_error(p->a.session, event.token, 7), 0);
    }
    if (kinds[kind].at_b)
        pair_expect(p, &p->b, kinds[kind].at_b);
}

/*
 * Small messages that go inline leave no completion of their own. What does not fit behind them is told EAGAIN, and
 * then WRITABLE, however few they are, whichever way they went, and whatever it is.
 */
TEST(a_window_of_unsignalled_messages_opens) {
    for (unsigned k = 0; k < 5 * 2 * 2 * 6; k++) {
        unsigned kind = k % 5, smalls = k / 20 + 1;
        bool elsewhere = k / 5 % 2, together = k / 10 % 2;
        const sluice_send_options o = {.size = sizeof o, .flags = together ? SLUICE_MORE : 0};
        struct pair p;
        small_options = &o;
        pair_open(&p, PAIR_NODE(), PAIR_LINK(.window_bytes = LARGE));
        pair_connect(&p, PAIR_LINK(.window_bytes = LARGE));
        print_message("%s behind %u, %u, %u\n", kinds[kind].name, smalls, elsewhere, together);
        for (unsigned round = 0; round < 4; round++)
            it_is_taken(&p, kind, smalls, elsewhere);
        if (here) {
            assert_int_equal(sluice_region_close(here), 0);
            assert_int_equal(sluice_region_close(there), 0);
            here = there = NULL;
        }
        pair_close(&p);
    }
}
