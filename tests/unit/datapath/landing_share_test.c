/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * landing_share_test.c - memory for large messages, and peers that announce them and do not go on: what
 * one session can hold of it, and for how long.
 *
 * b's sessions play both: a greedy one's receiving half is deaf, and its frames are the test's own.
 */
#include "support/landing.h"
#include "datapath/rndv/internal.h"
#include "datapath/tx/post.h"

#define MIB ((uint32_t)1 << 20)
#define SECOND 1000000000ull

/* 8 MiB for receiving. */
static void open_pair(struct pair *p) {
    pair_open(p,
              PAIR_NODE(.memory_bytes_max = 32 << 20, .receive_bytes_max = 8 << 20,
                        .message_bytes_max = 4 << 20, .log = NULL),
              PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    pair_rnr_provoked = true;
}

static void another(struct pair *p) {
    pair_connect(p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
}

static void forge(struct pair *p, enum frame_type type, unsigned flags, uint64_t total,
                  const uint64_t *words, uint32_t bytes) {
    struct connection *connection = pair_session(&p->b)->connection;
    const struct frame frame = {
        .type = (uint8_t)type, .flags = (uint8_t)flags, .length = bytes, .total = total};
    connection->tx.sequence++;
    sluice_msg *msg = pair_forge(&p->b, &frame, words, bytes);
    connection->tx.credits--;
    pair_turns(p, 20);
    sluice_free(msg);
}

static void announce(struct pair *p, unsigned number, uint64_t bytes) {
    uint64_t words[FRAME_RTS_BYTES / sizeof(uint64_t)] = {
        htole64(number | (uint64_t)FRAME_DATA << 16 | (uint64_t)RNDV_BY_WRITE << 24)};
    forge(p, FRAME_RTS, 0, bytes, words, FRAME_RTS_BYTES);
}

static int opened(void **state) {
    static struct pair of_test;
    *state = &of_test;
    open_pair(*state);
    return 0;
}

/* The session that was opened last announces as much as it may, each message of so many bytes. */
static void be_greedy(struct pair *p, uint64_t bytes) {
    struct session *s = pair_session(&p->b);
    pair_grant_all(p, s, pair_session(&p->a));
    pair_grant_all(p, pair_session(&p->a), s); /* for leave to write */
    s->rx.stopped = true;
    for (unsigned i = 0; i < RNDV_NUMBERS && s->connection->tx.credits > 2; i++)
        announce(p, i, bytes);
}

static void expect_large_message(struct pair *p, uint32_t bytes) {
    assert_int_equal(pair_send(&p->b, bytes, 9, NULL), 0);
    sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, bytes, 9));
}

TEST(a_session_that_holds_nothing_gets_memory) {
    static const uint64_t sizes[] = {100000, MIB, 2 * MIB, 4 * MIB};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct pair p;
        open_pair(&p);
        another(&p);
        struct session *greedy = pair_session(&p.a);
        be_greedy(&p, sizes[i]);
        assert_true(greedy->rndv->landing_bytes > 0);
        another(&p);
        for (unsigned k = 0; k < 5; k++)
            expect_large_message(&p, MIB);
        assert_int_equal(greedy->state, SESSION_UP); /* nobody had to go for that */
        pair_close(&p);
    }
}

/* Several of one peer's sessions hold all there is, one message each: announced, or begun with a fragment. */
static void who_stands_still_goes_when_others_wait(bool fragments) {
    struct pair p;
    const uint32_t bytes = 2400000;
    uint64_t word = 0;
    open_pair(&p);
    uint64_t begun = pair_now(NULL);
    for (unsigned i = 0; i < 2; i++) {
        another(&p);
        if (fragments)
            forge(&p, FRAME_FRAG, FRAME_FIRST, bytes, &word, sizeof word);
        else
            be_greedy(&p, bytes);
    }
    another(&p);
    assert_int_equal(pair_send(&p.b, 2 * MIB, 9, NULL), 0);
    pair_expect_nothing(&p, &p.a);
    sluice_event event;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    unsigned closed = 0;
    do {
        pair_clock += SECOND / 10;
        assert_true(env_now(&env_default) < limit);
        cm_progress(p.a.node->cm, 0);
        cm_progress(p.b.node->cm, 0);
        assert_true(sluice_poll(p.b.loop, NULL, 0, 0) >= 0);
        event.type = SLUICE_SENT;
        if (sluice_poll(p.a.loop, &event, 1, 0) == 1 && event.type == SLUICE_CLOSED) {
            assert_int_equal(event.reason, SLUICE_REASON_PROTOCOL);
            assert_true(pair_now(NULL) - begun >= 10 * SECOND + bytes * (SECOND / 1000000));
            closed++;
        }
    } while (event.type != SLUICE_MESSAGE);
    assert_true(closed > 0);
    assert_true(pair_check(event.msg, 2 * MIB, 9));
    pair_close(&p);
}

TEST(who_announced_and_stands_still_goes_when_others_wait) {
    who_stands_still_goes_when_others_wait(false);
}

TEST(who_began_and_stands_still_goes_when_others_wait) {
    who_stands_still_goes_when_others_wait(true);
}

static void fragment(struct pair *p, unsigned flags) {
    uint64_t word = 0;
    forge(p, FRAME_FRAG, flags, 2400000, &word, sizeof word);
}

/* One session after the other sends a little of a message, every three seconds. */
PAIR_WITH(opened, who_trickles_goes_when_others_wait) {
    struct pair *p = *state;
    struct side slow[2];
    for (unsigned i = 0; i < 2; i++) {
        another(p);
        pair_grant_all(p, pair_session(&p->b), pair_session(&p->a));
        fragment(p, FRAME_FIRST);
        slow[i] = p->b;
    }
    another(p);
    struct side fast = p->b;
    assert_int_equal(pair_send(&p->b, 2 * MIB, 9, NULL), 0);
    sluice_event event = {.type = SLUICE_SENT};
    for (unsigned i = 0; i < 300 && event.type != SLUICE_MESSAGE; i++) {
        for (unsigned k = 0; k < 2 && i % 30 == 0; k++) {
            p->b = slow[k];
            const struct session *s = pair_session(&p->b);
            if (s && s->state == SESSION_UP && s->connection->tx.credits > 0)
                fragment(p, 0);
        }
        p->b = fast;
        pair_clock += SECOND / 10;
        pair_turns(p, 20);
        if (sluice_poll(p->a.loop, &event, 1, 0) == 1 && event.type == SLUICE_CLOSED)
            assert_true(pair_clock >= 10 * SECOND);
    }
    assert_int_equal(event.type, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 2 * MIB, 9));
}

/* A message in frames that waits in line, and one behind it that is announced. */
PAIR_WITH(opened, what_waits_first_has_memory_first) {
    struct pair *p = *state;
    uint64_t word = 0;
    another(p);
    struct session *s = pair_session(&p->a);
    pair_grant_all(p, pair_session(&p->b), s);
    pair_session(&p->b)->rx.stopped = true;
    announce(p, 0, 100000);
    forge(p, FRAME_FRAG, FRAME_FIRST, 4 * MIB, &word, sizeof word);
    announce(p, 1, 3 * MIB);
    pair_expect_nothing(p, &p->a);
    assert_false(s->rx.partial);
    assert_true(s->rndv->landing_bytes == 100000 && s->state == SESSION_UP);
}

/* So many sessions of one peer and so many of another, each of which begins a message. What the other one's hold. */
static uint64_t fill_reserve(struct pair *p, unsigned count, unsigned others) {
    const struct landing_peer *other = NULL;
    uint64_t word = 0;
    for (unsigned i = 0; i < count; i++) {
        another(p);
        fragment(p, FRAME_FIRST);
    }
    for (unsigned i = 0; i < others; i++) {
        another(p);
        other = landing_be_of(p, 1);
        forge(p, FRAME_FRAG, FRAME_FIRST, MIB, &word, sizeof word);
        assert_int_equal(pair_session(&p->a)->state, SESSION_UP);
    }
    return other ? atomic_load(&other->bytes) : 0;
}

/* Sessions of one peer, one message each, hold what their peer may have; to others, and to new sessions, there is some. */
TEST(one_peer_leaves_memory_to_others) {
    struct pair p;
    open_pair(&p);
    fill_reserve(&p, 4, 0);
    assert_in_range(atomic_load(&p.a.node->landing_bytes), 4 * MIB, 5 * MIB);
    assert_true(fill_reserve(&p, 0, 3) == 2 * MIB);
    assert_true(atomic_load(&p.a.node->landing_bytes) <= 7 * MIB);
    another(&p); /* and finds receives */
    pair_close(&p);
}

/* Sessions that are opened one after the other, each of which begins a message, until one finds no memory. How many. */
static unsigned begin_some(struct pair *p, uint64_t number) {
    uint64_t word = 0;
    for (unsigned count = 0;; count++) {
        another(p);
        if (number > 0)
            landing_be_of(p, number++);
        forge(p, FRAME_FRAG, FRAME_FIRST, MIB, &word, sizeof word);
        const struct session *s = pair_session(&p->a);
        pair_expect_nothing(p, &p->a);
        pair_await(p, s->rx.partial || s->rx.held.head);
        if (!s->rx.partial)
            return count;
        assert_true(count < 64);
    }
}

/* Of 64 MiB, in messages of one: so much is there that only these bounds end it. */
TEST(one_peer_has_five_eighths_and_all_peers_seven) {
    struct pair p;
    pair_open(&p,
              PAIR_NODE(.memory_bytes_max = 256 << 20, .receive_bytes_max = 64 << 20,
                        .message_bytes_max = 4 << 20, .log = NULL),
              PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    assert_int_equal(begin_some(&p, 0), 40);
    assert_int_equal(begin_some(&p, 1), 16);
    assert_true(atomic_load(&p.a.node->landing_bytes) == 56 * MIB);
    pair_close(&p);
}

/* Whichever is less. */
TEST(a_session_has_half_or_its_window_beside_others) {
    static const uint64_t window[] = {64 * MIB, 8 * MIB}, has[] = {32 * MIB, 8 * MIB};
    for (unsigned i = 0; i < 2; i++) {
        struct pair p;
        pair_open(&p,
                  PAIR_NODE(.memory_bytes_max = 256 << 20, .receive_bytes_max = 64 << 20,
                            .message_bytes_max = 4 << 20, .log = NULL),
                  PAIR_LINK(.keepalive_ns = SLUICE_OFF, .window_bytes = window[i]));
        pair_rnr_provoked = true;
        another(&p);
        be_greedy(&p, 4 * MIB);
        assert_true(pair_session(&p.a)->rndv->landing_bytes == has[i]);
        pair_close(&p);
    }
}

/* Whatever numbers they have: one peer holds all that it may, and each of hundreds gets its message. */
TEST(no_two_peers_are_taken_for_one) {
    struct pair p;
    uint64_t word = 0;
    open_pair(&p);
    for (unsigned i = 0; i < 2; i++) {
        another(&p);
        landing_be_of(&p, 1);
        fragment(&p, FRAME_FIRST);
    }
    for (uint64_t number = 2; number < 300; number++) {
        another(&p);
        landing_be_of(&p, number);
        forge(&p, FRAME_FRAG, FRAME_FIRST, MIB, &word, sizeof word);
        pair_expect_nothing(&p, &p.a);
        assert_true(pair_session(&p.a)->rx.partial);
        sluice_hangup(p.b.session, 0);
        sluice_event event = pair_expect(&p, &p.a, SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_PEER_CLOSE);
        pair_expect(&p, &p.b, SLUICE_CLOSED);
    }
    pair_close(&p);
}

/* By number, if there is one, else by the address without its port. */
TEST(a_peer_is_found_by_its_number_or_its_host) {
    struct landing_peers peers;
    landing_peers_init(&peers);
    struct landing_peer *of[] = {landing_peer_get(&peers, 7, "192.0.2.1:5"),
                                 landing_peer_get(&peers, 7, "192.0.2.2:5"),
                                 landing_peer_get(&peers, 8, "192.0.2.1:5"),
                                 landing_peer_get(&peers, 0, "192.0.2.1:5"),
                                 landing_peer_get(&peers, 0, "192.0.2.1:6"),
                                 landing_peer_get(&peers, 0, "192.0.2.10:5"),
                                 landing_peer_get(&peers, 0, "[2001:db8::1]:5"),
                                 landing_peer_get(&peers, 0, "[2001:db8::1]:6")};
    static const unsigned same[] = {0, 0, 2, 3, 3, 5, 6, 6};
    for (unsigned i = 0; i < sizeof of / sizeof *of; i++)
        for (unsigned k = 0; k < sizeof of / sizeof *of; k++)
            assert_int_equal(of[i] == of[k], same[i] == same[k]);
    for (unsigned i = 0; i < sizeof of / sizeof *of; i++)
        landing_peer_put(&peers, of[i]);
    for (unsigned i = 0; i < LANDING_CHAINS; i++)
        assert_null(peers.chain[i]);
    landing_peers_close(&peers);
}

/* It waits when its node is closed, and would be looked at again behind its CLOSED. */
TEST(a_session_that_waits_for_memory_ends_once) {
    for (unsigned others = 3; others <= 6; others += 3) {
        struct pair p;
        open_pair(&p);
        fill_reserve(&p, 2 * others, others);
        assert_non_null(pair_session(&p.a)->rx.held.head); /* the last one's */
        pair_close(&p);
    }
}

PAIR_WITH(opened, who_stands_still_stays_while_nobody_waits) {
    struct pair *p = *state;
    another(p);
    be_greedy(p, MIB);
    another(p);
    for (unsigned i = 0; i < 300; i++) {
        pair_clock += SECOND;
        pair_turn(p);
    }
    expect_large_message(p, MIB);
    pair_expect_nothing(p, &p->a);
}

/* A loop that was not polled for long looks once more, after it has seen what came meanwhile. */
PAIR_WITH(opened, nobody_goes_because_this_loop_was_away) {
    struct pair *p = *state;
    struct session *slow[2];
    for (unsigned i = 0; i < 2; i++) {
        another(p);
        slow[i] = pair_session(&p->a);
        be_greedy(p, 2400000);
    }
    another(p);
    assert_int_equal(pair_send(&p->b, 2 * MIB, 9, NULL), 0);
    pair_expect_nothing(p, &p->a);
    pair_clock += 60 * SECOND;
    pair_turn(p);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(slow[i]->state, SESSION_UP);
}

/* Its peer hung up meanwhile, and no queue pair is left when the message needs memory: which peer it was is known. */
PAIR_WITH(opened, a_message_in_frames_is_there_after_the_queue_pair) {
    struct pair *p = *state;
    another(p);
    struct session *s = pair_session(&p->a);
    uint32_t bytes = pair_session(&p->b)->tx.frame_payload + 1;
    pair_session(&p->b)->tx.rndv_above = UINT64_MAX;
    assert_int_equal(pair_send(&p->b, bytes, 9, SLUICE_SEND(.tag = 1)), 0);
    pair_expect(p, &p->b, SLUICE_SENT); /* the application of the other side takes nothing */
    assert_true(s->rx.held.head && s->rx.held.head->next);
    sluice_hangup(p->b.session, 0);
    pair_await(p, s->state == SESSION_GONE);
    assert_true(!s->connection->qp && s->rx.held.head);
    sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, bytes, 9));
    pair_expect(p, &p->a, SLUICE_CLOSED);
}
