/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Messages made of pieces: they arrive as one, whatever lies where, and regions are in use meanwhile. */
#include "support/memory.h"
#include "datapath/rndv/internal.h"

#define BIG (1 << 20)

/* Cuts `total` bytes of a pattern into pieces, every other one in the region, and sends them. */
static int send_cut(struct memory *m, uint64_t total, unsigned count, unsigned kinds, unsigned seed,
                    uint64_t tag) {
    static uint8_t plain[BIG];
    sluice_piece pieces[SLUICE_PIECES_MAX];
    uint64_t at = 0;
    memory_fill(plain, total, seed);
    memory_fill(memory_here(m), total, seed);
    for (unsigned i = 0; i < count; i++) {
        uint64_t left = total - at, size = i + 1 == count ? left : left / (count - i) + i % 3;
        size = size > left ? left : size;
        bool region = kinds >> i % 2 & 1;
        pieces[i] =
            (sluice_piece){(region ? memory_here(m) : plain) + at, size, region ? m->here : NULL};
        at += size;
    }
    int status = sluice_send_pieces(m->pair.b.session, pieces, (int)count, SLUICE_SEND(.tag = tag));
    memset(plain, 0, total); /* copied by the call */
    return status;
}

TEST(pieces_arrive_as_one_message) {
    struct memory m;
    memory_open(&m, BIG, PAIR_LINK());
    const uint64_t frame = 1024 - FRAME_BYTES;
    const uint64_t sizes[] = {0,         1,     191,       192,  193,    500,
                              frame - 1, frame, frame + 1, 5000, 100000, BIG};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (unsigned count = 1; count <= SLUICE_PIECES_MAX; count += count < 3 ? 1 : 13)
            for (unsigned kinds = 0; kinds < 4; kinds++) {
                unsigned seed = i + 31 * count + kinds;
                assert_int_equal(send_cut(&m, sizes[i], count, kinds, seed, 5), 0);
                sluice_event event = pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE);
                assert_true(pair_check(event.msg, sizes[i], seed));
                event = pair_expect(&m.pair, &m.pair.b, SLUICE_SENT);
                must_data_equal(event.tag, 5);
                assert_int_equal(event.status, 0);
                assert_int_equal(event.bytes, sizes[i]);
            }
    pair_expect_nothing(&m.pair, &m.pair.b);
    assert_non_null(pair_session(&m.pair.b)->rndv);
    assert_int_equal(atomic_load(&pair_session(&m.pair.b)->window.own_messages), 0);
    assert_int_equal(atomic_load(&pair_session(&m.pair.b)->window.own_bytes), 0);
    assert_int_equal(sluice_region_close(m.here), 0);
    memory_close(&m);
}

/* Nothing of the sender's memory is told to anybody: the pieces are written. */
TEST(large_pieces_are_written_from_where_they_lie) {
    for (unsigned without = 0; without < 2; without++) {
        struct memory m;
        memory_open(&m, BIG, PAIR_LINK());
        struct session *s = pair_session(&m.pair.b);
        if (without)
            s->tx.rndv_above = UINT64_MAX;
        assert_int_equal(send_cut(&m, BIG, 7, 2, 3, 1), 0);
        assert_int_equal(s->rndv ? s->rndv->out_writes : 0, !without);
        assert_int_equal(sluice_region_close(m.here), SLUICE_EINVAL);
        sluice_event event = pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, BIG, 3));
        pair_expect(&m.pair, &m.pair.b, SLUICE_SENT);
        assert_int_equal(sluice_region_close(m.here), 0);
        memory_close(&m);
    }
}

TEST(no_pieces_are_an_empty_message) {
    struct memory m;
    memory_open(&m, 4096, PAIR_LINK());
    assert_int_equal(sluice_send_pieces(m.pair.b.session, NULL, 0, SLUICE_SEND(.tag = 1)), 0);
    sluice_event event = pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE);
    assert_int_equal(event.bytes, 0);
    pair_expect(&m.pair, &m.pair.b, SLUICE_SENT);
    memory_close(&m);
}

TEST(order_with_other_messages_is_kept) {
    struct memory m;
    enum { COUNT = 600 };
    unsigned sent = 0, received = 0, outcomes = 0;
    memory_open(&m, BIG, PAIR_LINK(.window_messages = 20));
    const uint64_t sizes[] = {10, 400, 3000, 900};
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    memory_fill(memory_here(&m), BIG, 3);
    while ((received < COUNT || outcomes < COUNT) && env_now(&env_default) < limit) {
        sluice_event events[8];
        while (sent < COUNT) {
            uint64_t n = sizes[sent % 4];
            sluice_piece p[2] = {{memory_here(&m), n / 2, m.here},
                                 {memory_here(&m) + n / 2, n - n / 2, m.here}};
            int status = sent % 3 == 0
                             ? pair_send(&m.pair.b, n, 3, SLUICE_SEND(.tag = sent + 1))
                             : sluice_send_pieces(m.pair.b.session, p, 2,
                                                  SLUICE_SEND(.tag = sent + 1,
                                                              .flags = sent % 2 ? SLUICE_MORE : 0));
            if (status != 0) {
                assert_int_equal(status, SLUICE_EAGAIN);
                break;
            }
            sent++;
        }
        int n = sluice_poll(m.pair.b.loop, events, 8, 0);
        for (int i = 0; i < n; i++)
            if (events[i].type == SLUICE_SENT)
                must_data_equal(events[i].tag, ++outcomes);
        n = sluice_poll(m.pair.a.loop, events, 8, 0);
        for (int i = 0; i < n; i++)
            assert_true(pair_check(events[i].msg, sizes[received++ % 4], 3));
    }
    must_data_equal(received, COUNT);
    must_data_equal(outcomes, COUNT);
    memory_close(&m);
}

TEST(a_region_is_in_use_until_the_outcome) {
    struct memory m;
    sluice_error e = {0};
    memory_open(&m, BIG, PAIR_LINK());
    pair_grant_all(&m.pair, pair_session(&m.pair.b), pair_session(&m.pair.a));
    assert_int_equal(send_cut(&m, 5000, 1, 3, 1, 1), 0);
    assert_int_equal(sluice_region_close(m.here), SLUICE_EINVAL);
    assert_int_equal(sluice_region_revoke(m.here, &e), SLUICE_EINVAL);
    pair_expect(&m.pair, &m.pair.b, SLUICE_SENT);
    assert_int_equal(sluice_region_revoke(m.here, &e), 0);
    assert_int_equal(send_cut(&m, 5000, 1, 3, 2, 1), 0); /* with its new key */
    pair_expect(&m.pair, &m.pair.b, SLUICE_SENT);
    sluice_event event = pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 5000, 1));
    event = pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 5000, 2));
    assert_int_equal(sluice_region_close(m.here), 0);
    memory_close(&m);
}

/* Half of a large one was posted: it ends, once, and the region is free. */
TEST(a_session_that_ends_in_the_middle_lets_regions_go) {
    for (unsigned way = 0; way < 4; way++) {
        struct memory m;
        unsigned outcomes = 0;
        memory_open(&m, BIG, PAIR_LINK());
        if (way & 2) /* as fragments */
            pair_session(&m.pair.b)->tx.rndv_above = UINT64_MAX;
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(send_cut(&m, BIG, 5, 1, i, i + 1), 0);
        sluice_hangup(way & 1 ? m.pair.a.session : m.pair.b.session, 0);
        sluice_event event;
        do {
            assert_true(pair_next(&m.pair, &m.pair.b, &event));
            if (event.type != SLUICE_SENT)
                continue;
            must_data_equal(outcomes >> event.tag & 1, 0);
            outcomes |= 1u << event.tag;
        } while (event.type != SLUICE_CLOSED);
        must_data_equal(outcomes, 14);
        assert_int_equal(sluice_region_close(m.here), 0);
        memory_close(&m);
    }
}

TEST(a_device_with_few_sges_sends_more_frames) {
    for (uint32_t sges = 2; sges <= 5; sges++) {
        struct memory m;
        memory_open(&m, BIG, PAIR_LINK());
        pair_session(&m.pair.b)->connection->sq.sges = sges;
        const uint64_t sizes[] = {300, 900, 20000};
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(send_cut(&m, sizes[i], 16, 3, i, 1), 0);
            sluice_event event = pair_expect(&m.pair, &m.pair.a, SLUICE_MESSAGE);
            assert_true(pair_check(event.msg, sizes[i], i));
            pair_expect(&m.pair, &m.pair.b, SLUICE_SENT);
        }
        memory_close(&m);
    }
}

TEST(wrong_pieces_are_refused) {
    struct memory m;
    memory_open(&m, 4096, PAIR_LINK());
    sluice_session s = m.pair.b.session;
    sluice_piece many[SLUICE_PIECES_MAX + 1] = {{0}};
    uint8_t plain[8];
    const sluice_piece wrong[] = {
        {memory_here(&m) - 1, 8, m.here},
        {memory_here(&m), 4097, m.here},
        {memory_here(&m) + 4096, 1, m.here},
        {plain, 8, m.here},
        {NULL, 8, NULL},
        {memory_here(&m) + 8, UINT64_MAX - 4, m.here},
        {memory_there(&m), 300, m.there}, /* another node's */
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(sluice_send_pieces(s, &wrong[i], 1, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_send_pieces(s, many, SLUICE_PIECES_MAX + 1, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_send_pieces(s, many, -1, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_send_pieces(s, NULL, 1, NULL), SLUICE_EINVAL);
    many[0] = many[1] = (sluice_piece){plain, UINT64_MAX / 2, NULL};
    assert_int_equal(sluice_send_pieces(s, many, 1, NULL), SLUICE_EMSGSIZE);
    assert_int_equal(sluice_send_pieces(s, many, 2, NULL), SLUICE_EMSGSIZE);
    assert_int_equal(sluice_send_pieces((sluice_session){0}, many, 0, NULL), SLUICE_ECLOSED);
    pair_expect_nothing(&m.pair, &m.pair.a);
    assert_int_equal(sluice_region_close(m.here), 0);
    memory_close(&m);
}
