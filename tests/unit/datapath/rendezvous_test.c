/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rendezvous_test.c - large messages: announced, read or written, delivered whole and in order; their
 * window, outcomes and ends.
 */
#include "common/sanitize.h"
#include "datapath/rndv/internal.h"
#include "datapath/rndv/rndv.h"
#include "datapath/tx/iov.h"
#include "support/pair.h"
#include "support/pool_stats.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"

#define KIB ((size_t)1024)

static const sluice_rendezvous ways[] = {SLUICE_RENDEZVOUS_READ, SLUICE_RENDEZVOUS_WRITE};

static void open_pair(struct pair *p, sluice_rendezvous way) {
    pair_open(p, PAIR_NODE(.rendezvous = way, .rendezvous_bytes = PAIR_LARGE),
              PAIR_LINK(.credits = 0));
    pair_connect(p, PAIR_LINK(.credits = 0));
}

static void settle(struct pair *p) {
    pair_turns(p, 200);
}

/* Everything sent and received came back to the pool: but for receives and headers. */
static void assert_nothing_kept(struct side *side, uint64_t before) {
    assert_int_equal(pool_in_use(side->node->pool), before);
}

static int open_way(void **state) {
    static struct pair of_test;
    sluice_rendezvous way = (sluice_rendezvous)(uintptr_t)*state;
    *state = &of_test;
    open_pair(*state, way);
    return 0;
}

/* ---- delivering ------------------------------------------------------------------------------ */

/* Each in both ways that a large message can go. */
#define WAY(name, way)                                                                             \
    { #name "/" #way, name, open_way, pair_closed, (void *)(uintptr_t)SLUICE_RENDEZVOUS_##way }
#define EACH_WAY(name) TEST_EACH(name, WAY(name, READ), WAY(name, WRITE))

EACH_WAY(large_messages_arrive_whole) {
    struct pair *p = *state;
    static const size_t sizes[] = {8169,          16385,          64 * KIB,
                                   256 * KIB - 1, 256 * KIB,      256 * KIB + 1,
                                   1024 * KIB,    1024 * KIB + 1, 5000 * KIB + 13};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(pair_send(&p->b, sizes[i], i, SLUICE_SEND(.tag = i + 1)), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, sizes[i], i));
        event = pair_expect(p, &p->b, SLUICE_SENT);
        must_data_equal(event.tag, i + 1);
        assert_int_equal(event.status, 0);
        assert_int_equal(event.bytes, sizes[i]);
    }
    pair_expect_nothing(p, &p->b);
    struct session *s = pair_session(&p->b);
    assert_int_equal(atomic_load(&s->window.own_messages), 0);
    assert_int_equal(atomic_load(&s->window.own_bytes), 0);
    assert_false(rndv_pending(s));
}

EACH_WAY(large_and_small_arrive_in_order) {
    struct pair *p = *state;
    for (unsigned i = 0; i < 60; i++) {
        size_t bytes = i % 3 == 0 ? 100 * KIB + i : i % 3 == 1 ? 20 : 20 * KIB;
        assert_int_equal(pair_send(&p->b, bytes, i, NULL), 0);
    }
    for (unsigned i = 0; i < 60; i++) {
        size_t bytes = i % 3 == 0 ? 100 * KIB + i : i % 3 == 1 ? 20 : 20 * KIB;
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, bytes, i));
    }
    pair_expect_nothing(p, &p->a);
}

EACH_WAY(several_are_under_way_at_once) {
    struct pair *p = *state;
    pair_grant_all(p, pair_session(&p->b), pair_session(&p->a));
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(pair_send(&p->b, 100 * KIB, i, SLUICE_SEND(.tag = i + 1)), 0);
    assert_int_equal(pair_session(&p->b)->rndv->out_count, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 100 * KIB, i));
    for (unsigned i = 0; i < 5; i++)
        must_data_equal(pair_expect(p, &p->b, SLUICE_SENT).tag, i + 1);
}

/* Both sides with few credits, both full of large messages: nobody waits for ever. */
TEST(both_sides_at_once_with_few_credits) {
    for (unsigned credits = 4; credits <= 6; credits++)
        for (unsigned w = 0; w < PAIR_WAYS; w++) {
            struct pair p;
            unsigned got[2] = {0, 0};
            pair_open(&p, PAIR_NODE(.rendezvous = ways[w]), PAIR_LINK(.credits = credits));
            pair_connect(&p, PAIR_LINK(.credits = credits));
            for (unsigned i = 0; i < 50; i++) {
                size_t bytes = i % 4 == 3 ? 10 : 40 * KIB;
                assert_int_equal(pair_send(&p.a, bytes, i, NULL), 0);
                assert_int_equal(pair_send(&p.b, bytes, i, NULL), 0);
            }
            uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
            while (got[0] + got[1] < 100) {
                struct side *sides[2] = {&p.a, &p.b};
                assert_true(env_now(&env_default) < limit);
                for (unsigned k = 0; k < 2; k++) {
                    sluice_event event;
                    int n = sluice_poll(sides[k]->loop, &event, 1, 0);
                    if (n == 0)
                        continue;
                    assert_int_equal(event.type, SLUICE_MESSAGE);
                    assert_true(pair_check(event.msg, got[k] % 4 == 3 ? 10 : 40 * KIB, got[k]));
                    got[k]++;
                }
            }
            pair_close(&p);
        }
}

/* A receiver that takes no events takes the bytes all the same, up to what it may keep. */
EACH_WAY(sent_does_not_wait_for_the_application) {
    struct pair *p = *state;
    assert_int_equal(pair_send(&p->b, 100 * KIB, 1, SLUICE_SEND(.tag = 7)), 0);
    must_data_equal(pair_expect(p, &p->b, SLUICE_SENT).tag, 7); /* a polls into no array */
    assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 100 * KIB, 1));
}

EACH_WAY(buffers_come_back) {
    struct pair *p = *state;
    assert_int_equal(pair_send(&p->b, 100 * KIB, 1, NULL), 0);
    pair_expect(p, &p->a, SLUICE_MESSAGE);
    settle(p);
    uint64_t a = pool_in_use(p->a.node->pool), b = pool_in_use(p->b.node->pool);
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(pair_send(&p->b, 100 * KIB + i, i, NULL), 0);
        pair_expect(p, &p->a, SLUICE_MESSAGE);
    }
    settle(p);
    assert_nothing_kept(&p->a, a);
    assert_nothing_kept(&p->b, b);
}

/* ---- which messages -------------------------------------------------------------------------- */

TEST(the_option_says_which_messages_are_announced) {
    struct pair p;
    pair_open(&p, PAIR_NODE(.rendezvous_bytes = 100000), PAIR_LINK(.credits = 0));
    pair_connect(&p, PAIR_LINK(.credits = 0));
    assert_int_equal(pair_session(&p.b)->tx.rndv_above, 100000);
    assert_int_equal(pair_send(&p.b, 100000, 1, NULL), 0);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 100000, 1));
    assert_null(pair_session(&p.b)->rndv);
    assert_int_equal(pair_send(&p.b, 100001, 2, NULL), 0);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 100001, 2));
    assert_non_null(pair_session(&p.b)->rndv);
    pair_close(&p);
}

TEST(without_rendezvous_messages_are_cut) {
    struct pair p;
    pair_without(WITHOUT_RENDEZVOUS);
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 0));
    pair_connect(&p, PAIR_LINK(.credits = 0));
    assert_int_equal(pair_send(&p.b, 1000000, 1, NULL), 0);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 1000000, 1));
    assert_null(pair_session(&p.b)->rndv);
    assert_null(pair_session(&p.a)->rndv);
    pair_close(&p);
}

/* ---- memory ---------------------------------------------------------------------------------- */

TEST(a_message_there_can_be_no_memory_for_is_refused) {
    for (unsigned w = 0; w < PAIR_WAYS; w++) {
        struct pair p;
        memset(&p, 0, sizeof p);
        pair_clock = 0;
        pair_open_side(&p.a, PAIR_NODE(.rendezvous = ways[w], .memory_bytes_max = 4u << 20));
        pair_open_side(&p.b, PAIR_NODE(.rendezvous = ways[w]));
        pair_listen(&p, PAIR_LINK(.credits = 0));
        pair_connect(&p, PAIR_LINK(.credits = 0));
        assert_int_equal(pair_send(&p.b, 8u << 20, 1, SLUICE_SEND(.tag = 1)), 0);
        sluice_event event = pair_expect(&p, &p.b, SLUICE_SENT);
        assert_int_equal(event.status, SLUICE_EMSGSIZE);
        assert_int_equal(pair_send(&p.b, 100 * KIB, 2, SLUICE_SEND(.tag = 2)), 0);
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 100 * KIB, 2));
        assert_int_equal(pair_expect(&p, &p.b, SLUICE_SENT).status, 0);
        pair_close(&p);
    }
}

TEST(a_message_waits_for_memory) {
    for (unsigned w = 0; w < PAIR_WAYS; w++) {
        struct pair p;
        sluice_msg *kept[4];
        memset(&p, 0, sizeof p);
        pair_clock = 0;
        pair_open_side(&p.a, PAIR_NODE(.rendezvous = ways[w], .memory_bytes_max = 16u << 20,
                                       .receive_bytes_max = 8u << 20));
        pair_open_side(&p.b, PAIR_NODE(.rendezvous = ways[w]));
        pair_listen(&p, PAIR_LINK(.credits = 0));
        pair_connect(&p, PAIR_LINK(.credits = 0));
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(pair_send(&p.b, 2u << 20, i, NULL), 0);
            kept[i] = pair_expect(&p, &p.a, SLUICE_MESSAGE).msg;
            sluice_keep(kept[i]);
        }
        assert_int_equal(pair_send(&p.b, 3u << 20, 9, NULL), 0);
        assert_int_equal(pair_send(&p.b, 10, 10, NULL), 0);
        pair_expect_nothing(&p, &p.a);
        for (unsigned i = 0; i < 2; i++) {
            assert_true(pair_check(kept[i], 2u << 20, i));
            sluice_free(kept[i]);
        }
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 3u << 20, 9));
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 10, 10));
        pair_close(&p);
    }
}

/* ---- ends ------------------------------------------------------------------------------------ */

EACH_WAY(hanging_up_waits_until_the_peer_has_them) {
    struct pair *p = *state;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pair_send(&p->b, 300 * KIB, i, SLUICE_SEND(.tag = i + 1)), 0);
    sluice_hangup(p->b.session, 5000000000);
    for (unsigned i = 0; i < 4; i++)
        assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 300 * KIB, i));
    for (unsigned i = 0; i < 4; i++) {
        sluice_event event = pair_expect(p, &p->b, SLUICE_SENT);
        must_data_equal(event.tag, i + 1);
        assert_int_equal(event.status, 0);
    }
    pair_expect(p, &p->b, SLUICE_CLOSED);
    sluice_event event = pair_expect(p, &p->a, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_CLOSE);
}

#ifdef SANITIZE_THREAD
enum { BYTES = 520 * 1024, STEP = 3 }; /* three chunks, two of them whole */
#else
enum { BYTES = 520 * 1024, STEP = 1 };
#endif

/* Either side ends the session after some number of turns: exact outcomes, nothing lost, nothing kept. */
static void end_at_turn(sluice_rendezvous way, unsigned turns, bool sender) {
    struct pair p;
    unsigned sent = 0, told = 0, closed = 0, arrived = 0;
    open_pair(&p, way);
    if (turns & 1)
        pair_grant_all(&p, pair_session(&p.b), pair_session(&p.a));
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(pair_send(&p.b, BYTES, i, SLUICE_SEND(.tag = i + 1)), 0);
    for (unsigned i = 0; i < turns; i++) {
        sluice_event event;
        struct side *side = i & 1 ? &p.a : &p.b;
        if (sluice_poll(side->loop, &event, 1, 0) == 1) {
            sent += event.type == SLUICE_SENT;
            told |= event.type == SLUICE_SENT ? 1u << event.tag : 0;
            arrived += event.type == SLUICE_MESSAGE;
        }
    }
    sluice_hangup(sender ? p.b.session : p.a.session, 0);
    while (closed < 2) {
        struct side *side = p.b.closed ? &p.a : &p.b;
        sluice_event event;
        if (!pair_next(&p, side, &event))
            fail_msg("no end after %u turns", turns);
        if (event.type == SLUICE_SENT) {
            must_data_equal(told >> event.tag & 1, 0);
            told |= 1u << event.tag;
            assert_true(event.status == 0 || event.status == SLUICE_EUNKNOWN ||
                        event.status == SLUICE_ECLOSED);
            sent++;
        } else if (event.type == SLUICE_MESSAGE) {
            assert_true(pair_check(event.msg, BYTES, arrived));
            arrived++;
        } else {
            assert_int_equal(event.type, SLUICE_CLOSED);
            closed++;
        }
    }
    assert_int_equal(sent, 6);
    assert_int_equal(told, 0x7e);
    settle(&p);
    assert_nothing_kept(&p.a, 0);
    assert_nothing_kept(&p.b, 0);
    pair_close(&p);
}

TEST(a_session_may_end_at_any_point) {
    for (unsigned w = 0; w < PAIR_WAYS; w++)
        for (unsigned turns = 0; turns < 40; turns += turns < 12 ? STEP : 3 * STEP - STEP / 2)
            for (unsigned sender = 0; sender < 2; sender++)
                end_at_turn(ways[w], turns, sender != 0);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

TEST(chunks_reach_beyond_4_gib) {
    const uint64_t bytes = (4ull << 30) + 1;
    static struct connection c;
    static struct session s = {.connection = &c};
    for (unsigned copies = 0; copies < 2; copies++) {
        const uint32_t most = copies ? RNDV_CHUNK_COPIED : RNDV_CHUNK;
        c.copies = copies;
        uint64_t offset = 0, count = 0;
        while (offset < bytes) {
            uint32_t chunk = rndv_chunk(&s, bytes, offset);
            assert_true(chunk > 0 && chunk <= most);
            offset += chunk;
            count++;
        }
        assert_true(offset == bytes);
        assert_true(count == bytes / most + 1);
    }
    /* Of pieces: 4 GiB less one, two bytes, and what is none of it. */
    struct iov_part parts[3] = {{1ull << 40, UINT32_MAX, NULL, NULL, 1},
                                {1ull << 44, 1, NULL, NULL, 2},
                                {1ull << 45, 1, NULL, NULL, 3}};
    struct ibv_sge out[2];
    unsigned n;
    uint64_t offset = (uint64_t)UINT32_MAX - 5;
    assert_int_equal(rndv_slice(parts, 3, offset, 1000, out, &n), 6);
    assert_int_equal(n, 2);
    assert_true(out[0].addr == (1ull << 40) + offset && out[0].length == 5 && out[0].lkey == 1);
    assert_true(out[1].addr == 1ull << 44 && out[1].length == 1 && out[1].lkey == 2);
    assert_int_equal(rndv_slice(parts, 3, bytes - 1, 1000, out, &n), 1);
    assert_true(out[0].addr == 1ull << 45 && out[0].lkey == 3);
    assert_int_equal(rndv_slice(parts, 3, bytes, 1000, out, &n), 0);
    assert_int_equal(rndv_slice(parts, 3, 0, 1000, out, &n), 1000);
    struct iov_part huge = {1ull << 40, bytes, NULL, NULL, 4};
    assert_int_equal(rndv_slice(&huge, 1, bytes - 7, 1000, out, &n), 7);
    assert_true(n == 1 && out[0].addr == (1ull << 40) + bytes - 7 && out[0].length == 7);
}

/* It says that it is inside of our memory and never again that it left: the device has no part in it. */
TEST(a_peer_that_dies_while_it_reads_is_lost) {
    struct pair p;
    open_pair(&p, SLUICE_RENDEZVOUS_READ);
    assert_int_equal(pair_send(&p.b, 100 * KIB, 1, SLUICE_SEND(.tag = 1)), 0);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 100 * KIB, 1));
    struct soft_ring *ring = atomic_load(&soft_qp_of(pair_session(&p.b)->connection->qp)->rx);
    atomic_fetch_or(&ring->tx.touching, 1);
    sluice_event event = pair_expect(&p, &p.b, SLUICE_SENT);
    must_data_equal(event.tag, 1);
    event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_PEER_LOST);
    assert_int_equal(pool_in_use(p.b.node->pool), 0);
    pair_close(&p);
}

int main(int argc, char **argv) {
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return tests_run(NULL, NULL);
}
