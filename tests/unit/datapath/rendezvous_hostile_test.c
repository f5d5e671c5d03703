/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rendezvous_hostile_test.c - announcements, answers and writes that break the rules end their session, with
 * reason PROTOCOL, and nothing else: no memory is kept, and the node goes on.
 */
#include "support/pair.h"
#include "support/pool_stats.h"
#include "core/wire/private_data.h"
#include "datapath/rndv/internal.h"
#include "datapath/tx/post.h"

/* One frame of the test's own making, on b's queue pair. */
struct forged {
    enum frame_type type;
    unsigned flags;
    uint64_t total;
    uint32_t length;
    uint64_t word[5];
};

static void post(struct pair *p, const struct forged *f) {
    struct connection *connection = pair_session(&p->b)->connection;
    const struct frame frame = {.type = (uint8_t)f->type,
                                .flags = (uint8_t)f->flags,
                                .length = f->length,
                                .total = f->total};
    uint64_t words[5];
    for (unsigned i = 0; i < 5; i++)
        words[i] = htole64(f->word[i]);
    if (FRAME_NUMBERED >> f->type & 1)
        connection->tx.sequence++;
    sluice_msg *msg = pair_forge(&p->b, &frame, words, sizeof words);
    connection->tx.credits--;
    sluice_free(msg); /* nobody takes it before the bytes are gone: the test allocates no more */
}

static void write_imm(struct pair *p, uint32_t number) {
    struct session *s = pair_session(&p->b);
    struct ibv_send_wr *bad, wr = {.wr_id = wr_send_id(s->connection, s->connection->sq.tail),
                                   .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                   .imm_data = htobe32(number)};
    assert_int_equal(ibv_post_send(s->connection->qp, &wr, &bad), 0);
    s->connection->tx.credits--;
}

static void expect_protocol(struct pair *p) {
    sluice_event event = {0};
    do
        assert_true(pair_next(p, &p->a, &event));
    while (event.type == SLUICE_SENT);
    assert_int_equal(event.type, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_PROTOCOL);
    assert_int_equal(pool_in_use(p->a.node->pool), 0);
    pair_close(p);
}

static void open_pair(struct pair *p, sluice_rendezvous way) {
    pair_open(p, PAIR_NODE(.rendezvous = way, .log = NULL), PAIR_LINK(.credits = 0));
    pair_connect(p, PAIR_LINK(.credits = 0));
}

#define WORD(number, type, way, rkey)                                                              \
    ((uint64_t)(number) | (uint64_t)(type) << 16 | (uint64_t)(way) << 24 | (uint64_t)(rkey) << 32)
#define RTS(size, ...)                                                                             \
    {                                                                                              \
        FRAME_RTS, 0, size, FRAME_RTS_BYTES, {                                                     \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

TEST(announcements_out_of_bounds) {
    static const struct forged wrong[] = {
        RTS(100000, WORD(RNDV_NUMBERS, FRAME_DATA, RNDV_BY_READ, 1), 4096),
        RTS(100000, WORD(0xffff, FRAME_DATA, RNDV_BY_READ, 1), 4096),
        RTS(100000, WORD(0, FRAME_FRAG, RNDV_BY_READ, 1), 4096),
        RTS(100000, WORD(0, 0, RNDV_BY_READ, 1), 4096),
        RTS(100000, WORD(0, FRAME_DATA, 0, 1), 4096),
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_COPY + 1, 1), 4096),
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_WRITE, 1), 0),
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_WRITE, 0), 4096),
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_READ, 1), 4096, 1),
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_READ, 1), 4096, 0, 1),
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_READ, 1), 4096, 0, 0, 1),
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_READ, 1), 4096, 0, 1ull << 32),
        RTS(0, WORD(0, FRAME_DATA, RNDV_BY_READ, 1), 4096),
        RTS(8168, WORD(0, FRAME_DATA, RNDV_BY_READ, 1), 4096),
        RTS((64u << 20) + 1, WORD(0, FRAME_DATA, RNDV_BY_READ, 1), 4096),
        RTS(UINT64_MAX, WORD(0, FRAME_DATA, RNDV_BY_WRITE, 0), 0),
        RTS(100000, WORD(0, FRAME_REPLY, RNDV_BY_READ, 1), 4096), /* takes a credit */
        {FRAME_RTS, 0, 100000, 32, {WORD(0, FRAME_DATA, RNDV_BY_READ, 1), 4096}},
        {FRAME_RTS, FRAME_FIRST, 100000, 40, {WORD(0, FRAME_DATA, RNDV_BY_READ, 1), 4096}},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct pair p;
        open_pair(&p, SLUICE_RENDEZVOUS_READ);
        post(&p, &wrong[i]);
        expect_protocol(&p);
    }
}

/* Memory that the peer does not share, or not so much of it; and from a peer that said it does not know how. */
TEST(copies_out_of_bounds) {
    static const struct forged wrong[] = {
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_COPY, UINT32_MAX), 4096),
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_COPY, 255), 0),
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_COPY, 0), UINT64_MAX - 50000),
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_COPY, 0), UINT64_C(1) << 40),
        RTS(64u << 20, WORD(0, FRAME_DATA, RNDV_BY_COPY, 0), 0), /* its end */
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_COPY, 0), 0),
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct pair p;
        open_pair(&p, SLUICE_RENDEZVOUS_AUTO);
        if (i + 1 == sizeof wrong / sizeof wrong[0])
            pair_session(&p.a)->connection->cm.rep.features &= ~PRIVATE_DATA_FEATURE_SHARED;
        post(&p, &wrong[i]);
        expect_protocol(&p);
    }
}

TEST(a_number_in_use_is_announced_again) {
    struct forged f = RTS(100000, WORD(3, FRAME_DATA, RNDV_BY_WRITE, 0));
    struct pair p;
    open_pair(&p, SLUICE_RENDEZVOUS_READ);
    post(&p, &f);
    post(&p, &f);
    expect_protocol(&p);
}

/* It was taken, but its sender was not told yet. */
TEST(a_number_that_is_not_free_yet_is_announced_again) {
    struct forged f = RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_WRITE, 0));
    struct pair p;
    open_pair(&p, SLUICE_RENDEZVOUS_AUTO);
    for (unsigned i = 0; i < 5; i++) {
        struct side *from = i % 2 ? &p.a : &p.b, *to = i % 2 ? &p.b : &p.a;
        assert_int_equal(pair_send(from, 10000, i, NULL), 0);
        sluice_free(pair_expect(&p, to, SLUICE_MESSAGE).msg);
    }
    uint32_t taken = pair_session(&p.a)->rndv->taken;
    assert_int_not_equal(taken, 0);
    f.word[0] |= (uint64_t)__builtin_ctz(taken);
    post(&p, &f);
    expect_protocol(&p);
}

TEST(answers_to_nothing) {
    static const struct forged wrong[] = {
        {FRAME_ATS, 0, 0, 0, {0}},
        {FRAME_ATS, 0, 15, 0, {0}},
        {FRAME_ATS, 0, 16, 0, {0}},
        {FRAME_ATS, 0, UINT64_MAX, 0, {0}},
        {FRAME_ATS, 0, 2ull << 32, 0, {0}},
        {FRAME_ATS, 0, 2ull << 32 | 1, 0, {0}},
        {FRAME_ATS, 0, 2ull << 32 | UINT32_MAX, 0, {0}},
        {FRAME_RTR, 0, 0, FRAME_RTR_BYTES, {4096, 1, 100000}},
        {FRAME_RTR, 0, 1ull << 32, FRAME_RTR_BYTES, {4096, 1, 100000}},
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct pair p;
        open_pair(&p, SLUICE_RENDEZVOUS_READ);
        post(&p, &wrong[i]);
        expect_protocol(&p);
    }
}

/* a announces by `way`, b answers with what does not fit. */
static void answer(sluice_rendezvous way, const struct forged *f, unsigned times) {
    struct pair p;
    open_pair(&p, way);
    assert_int_equal(pair_send(&p.a, 100000, 1, SLUICE_SEND(.tag = 1)), 0);
    for (unsigned i = 0; i < times; i++)
        post(&p, f);
    expect_protocol(&p);
}

TEST(answers_that_do_not_fit) {
    static const struct forged ready = {FRAME_RTR, 0, 0, FRAME_RTR_BYTES, {4096, 1, 100000}};
    static const struct forged other_size = {FRAME_RTR, 0, 0, FRAME_RTR_BYTES, {4096, 1, 100001}};
    static const struct forged padded = {
        FRAME_RTR, 0, 0, FRAME_RTR_BYTES, {4096, 1ull << 32, 100000}};
    static const struct forged taken = {FRAME_ATS, 0, 0, 0, {0}};
    static const struct forged outcome = {FRAME_ATS, 0, 3ull << 32, 0, {0}};
    static const struct forged several = {FRAME_ATS, 0, 2ull << 32 | 1, 0, {0}};
    static const struct forged none = {FRAME_ATS, 0, 2ull << 32, 0, {0}};
    static const struct forged more = {FRAME_ATS, 0, 2ull << 32 | 3, 0, {0}};
    static const struct forged with_rts =
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_WRITE, 0), 0, 0, 1);
    static const struct forged more_with_rts =
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_WRITE, 0), 0, 0, 3);
    answer(SLUICE_RENDEZVOUS_READ, &ready, 1);
    answer(SLUICE_RENDEZVOUS_READ, &taken, 2);
    answer(SLUICE_RENDEZVOUS_READ, &outcome, 1);
    answer(SLUICE_RENDEZVOUS_READ, &several, 2);
    answer(SLUICE_RENDEZVOUS_READ, &none, 1);
    answer(SLUICE_RENDEZVOUS_READ, &more, 1);
    answer(SLUICE_RENDEZVOUS_READ, &more_with_rts, 1);
    answer(SLUICE_RENDEZVOUS_WRITE, &taken, 1);
    answer(SLUICE_RENDEZVOUS_WRITE, &several, 1);
    answer(SLUICE_RENDEZVOUS_WRITE, &with_rts, 1);
    answer(SLUICE_RENDEZVOUS_WRITE, &outcome, 1);
    answer(SLUICE_RENDEZVOUS_WRITE, &other_size, 1);
    answer(SLUICE_RENDEZVOUS_WRITE, &padded, 1);
}

/* A peer that said it does not know of several at once. */
TEST(several_answers_that_were_not_agreed_on) {
    static const struct forged wrong[] = {
        {FRAME_ATS, 0, 2ull << 32 | 1, 0, {0}},
        RTS(100000, WORD(0, FRAME_DATA, RNDV_BY_WRITE, 0), 0, 0, 1),
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct pair p;
        open_pair(&p, SLUICE_RENDEZVOUS_READ);
        pair_session(&p.a)->connection->cm.rep.features &= ~PRIVATE_DATA_FEATURE_ANSWERS;
        assert_int_equal(pair_send(&p.a, 100000, 1, SLUICE_SEND(.tag = 1)), 0);
        post(&p, &wrong[i]);
        expect_protocol(&p);
    }
}

TEST(writes_that_nobody_asked_for) {
    static const uint32_t numbers[] = {0, RNDV_NUMBERS - 1, RNDV_NUMBERS, UINT32_MAX};
    for (unsigned i = 0; i < 4; i++) {
        struct pair p;
        open_pair(&p, SLUICE_RENDEZVOUS_READ);
        write_imm(&p, numbers[i]);
        expect_protocol(&p);
    }
}

/* An announcement that is never followed by anything holds memory until the session ends, and no longer. */
TEST(a_peer_that_announces_and_goes) {
    struct pair p;
    sluice_event event;
    open_pair(&p, SLUICE_RENDEZVOUS_READ);
    pair_rnr_provoked = true; /* more at once than it has credits for */
    for (unsigned i = 0; i < 8; i++) {
        struct forged f = RTS(8u << 20, WORD(i, FRAME_DATA, RNDV_BY_WRITE, 0));
        post(&p, &f);
    }
    pair_turns(&p, 100);
    assert_true(pair_session(&p.a)->rndv->landing_bytes <= 16u << 20); /* window_bytes */
    sluice_hangup(p.a.session, 0);
    do
        assert_true(pair_next(&p, &p.a, &event));
    while (event.type != SLUICE_CLOSED);
    assert_int_equal(pool_in_use(p.a.node->pool), 0);
    pair_close(&p);
}

/* ---- bytes that a peer did not send ------------------------------------------------------------- */

#define LARGE 300000u
#define LESS 290000u /* fits into the same buffer */

/* b announces that it will write, does as if it had when it may, and nothing else. Returns the message. */
static sluice_event write_nothing(struct pair *p, sluice_session at, uint32_t bytes) {
    struct forged f = RTS(bytes, WORD(0, FRAME_DATA, RNDV_BY_WRITE, 0));
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    struct session *s = session_table_at(at.id);
    pair_session(&p->b)->rx.stopped = true; /* to RTR, which it did not ask for */
    post(p, &f);
    while (!s->rndv || !s->rndv->by_number[0] || s->rndv->by_number[0]->state != RNDV_RX_MOVES) {
        sluice_event event;
        cm_progress(p->a.node->cm, 0);
        cm_progress(p->b.node->cm, 0);
        assert_true(sluice_poll(p->b.loop, NULL, 0, 0) >= 0);
        if (sluice_poll(p->a.loop, &event, 1, 0) == 1) {
            assert_int_equal(event.type, SLUICE_LARGE);
            return event;
        }
        assert_true(env_now(&env_default) < limit);
    }
    write_imm(p, 0);
    return pair_expect(p, &p->a, SLUICE_MESSAGE);
}

static bool is_zero(const uint8_t *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != 0)
            return false;
    return true;
}

/* Another connection than the one before; it sends `bytes` of pattern `seed`. Returns where they lay. */
static const uint8_t *a_message_of_another(struct pair *p, uint32_t bytes, unsigned seed) {
    pair_connect(p, PAIR_LINK(.credits = 0));
    assert_int_equal(pair_send(&p->b, bytes, seed, NULL), 0);
    sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, bytes, seed));
    return sluice_data(event.msg);
}

TEST(nobody_receives_bytes_of_another_session) {
    static const sluice_rendezvous ways[] = {SLUICE_RENDEZVOUS_READ, SLUICE_RENDEZVOUS_WRITE};
    for (unsigned way = 0; way < 2; way++) {
        struct pair p;
        open_pair(&p, ways[way]);
        const uint8_t *old = a_message_of_another(&p, LARGE, 1);
        pair_connect(&p, PAIR_LINK(.credits = 0));
        sluice_event event = write_nothing(&p, p.a.session, LARGE);
        assert_ptr_equal(sluice_data(event.msg), old); /* else it would say nothing */
        assert_int_equal(sluice_size(event.msg), LARGE);
        assert_true(is_zero(sluice_data(event.msg), LARGE));
        pair_close(&p);
    }
}

/* What a message of its own did not cover. */
TEST(nobody_receives_what_lay_behind_a_shorter_message) {
    struct pair p;
    open_pair(&p, SLUICE_RENDEZVOUS_READ);
    const uint8_t *old = a_message_of_another(&p, LARGE, 1);
    assert_ptr_equal(a_message_of_another(&p, LESS, 2), old);
    sluice_event event = write_nothing(&p, p.a.session, LARGE);
    assert_ptr_equal(sluice_data(event.msg), old);
    assert_true(is_zero(old, LARGE));
    pair_close(&p);
}

/* The application put something of its own into a message and passed it on. */
TEST(nobody_receives_what_was_sent_from_a_buffer) {
    struct pair p;
    open_pair(&p, SLUICE_RENDEZVOUS_READ);
    pair_connect(&p, PAIR_LINK(.credits = 0));
    assert_int_equal(pair_send(&p.b, LARGE, 1, NULL), 0);
    sluice_event event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
    uint8_t *at = sluice_data(event.msg);
    sluice_keep(event.msg);
    pair_fill(event.msg, 3);
    assert_int_equal(sluice_send(p.a.session, event.msg, NULL), 0);
    assert_true(pair_check(pair_expect(&p, &p.b, SLUICE_MESSAGE).msg, LARGE, 3));
    pair_expect_nothing(&p, &p.a);
    event = write_nothing(&p, p.a.session, LARGE);
    assert_ptr_equal(sluice_data(event.msg), at);
    assert_true(is_zero(at, LARGE));
    pair_close(&p);
}

/* The application wrote into a message that it was lent, or keeps, and no send ever took it. */
TEST(nobody_receives_what_the_application_wrote_into_a_message) {
    for (unsigned kept = 0; kept < 2; kept++) {
        struct pair p;
        open_pair(&p, SLUICE_RENDEZVOUS_READ);
        pair_connect(&p, PAIR_LINK(.credits = 0));
        assert_int_equal(pair_send(&p.b, LARGE, 1, NULL), 0);
        sluice_event event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        uint8_t *at = sluice_data(event.msg);
        if (kept)
            sluice_keep(event.msg);
        pair_fill(event.msg, 3);
        if (kept)
            sluice_free(event.msg);
        pair_expect_nothing(&p, &p.a);
        event = write_nothing(&p, p.a.session, LARGE);
        assert_ptr_equal(sluice_data(event.msg), at); /* else it would say nothing */
        assert_true(is_zero(at, LARGE));
        pair_close(&p);
    }
}

/* What the application chose is not delivered with what it has there. */
TEST(nobody_receives_what_lay_where_it_was_placed) {
    struct pair p;
    sluice_error e;
    sluice_region *region;
    pair_open(&p, PAIR_NODE(.log = NULL), PAIR_LINK(.credits = 0, .flags = SLUICE_RECEIVE_INTO));
    pair_connect(&p, PAIR_LINK(.credits = 0));
    assert_int_equal(sluice_region_open(p.a.node, NULL, LARGE + 2, 0, &region, &e), 0);
    uint8_t *at = sluice_region_data(region);
    pair_fill_bytes(at, LARGE + 2, 5);
    sluice_event event = write_nothing(&p, p.a.session, LARGE);
    assert_int_equal(event.type, SLUICE_LARGE);
    assert_int_equal(sluice_receive_into(p.a.session, event.token, region, 1), 0);
    struct session *s = pair_session(&p.a);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (s->rndv->by_number[0]->state != RNDV_RX_MOVES) {
        pair_turn(&p);
        assert_true(env_now(&env_default) < limit);
    }
    write_imm(&p, 0);
    event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
    assert_true(event.value == LARGE);
    assert_true(is_zero(at + 1, LARGE));
    assert_int_equal(at[0], pair_pattern(5)[0]);
    assert_int_equal(at[LARGE + 1], pair_pattern(5)[(LARGE + 1) % PAIR_PATTERN]);
    assert_int_equal(sluice_region_close(region), 0);
    pair_close(&p);
}
