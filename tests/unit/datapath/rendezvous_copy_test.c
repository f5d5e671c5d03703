/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rendezvous_copy_test.c - a large message that lies in memory of both sides' is copied by its receiver, without a key and
 * without a READ. Where one of the two does not know how, or cannot reach the memory, it is read.
 */
#include <limits.h>

#include <sluice/memory.h>

#include "core/wire/private_data.h"
#include "datapath/rndv/internal.h"
#include "support/announced.h"
#include "support/memory.h"
#include "support/pool_stats.h"
#include "fabric/fast.h"

#define MIB (1u << 20)

static void open_pair(struct pair *p) {
    memset(p, 0, sizeof *p);
    pair_open(p, PAIR_NODE(), PAIR_LINK());
    pair_connect(p, PAIR_LINK());
}

static unsigned way(struct pair *p) {
    return pair_session(&p->b)->rndv->out[0].way;
}

static void receive(struct pair *p, uint32_t bytes) {
    sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, bytes, 0));
}

TEST(a_large_message_is_copied_by_its_receiver) {
    static const uint32_t sizes[] = {
        8169, 8193, 100000, RNDV_SHARE_COPIED, RNDV_SHARE_COPIED + 1, 5 * MIB + 3};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct pair p;
        open_pair(&p);
        announced_send(&p, sizes[i]);
        assert_int_equal(way(&p), RNDV_BY_COPY);
        receive(&p, sizes[i]);
        pair_await(&p, pair_session(&p.b)->rndv->out_count == 0);
        assert_false(pair_session(&p.b)->rndv->out[0].mw.open);
        pair_close(&p);
    }
}

/* Its memory is held by nothing, as if it had come in a frame. */
TEST(a_short_one_is_delivered_in_place_of_its_announcement) {
    struct pair p;
    sluice_event event = {0};
    open_pair(&p);
    for (unsigned i = 0; i < 20; i++, event.type = 0) {
        assert_int_equal(pair_send(&p.b, RNDV_AT_ONCE - i % 2, i, NULL), 0);
        while (event.type == 0) {
            assert_true(sluice_poll(p.b.loop, NULL, 0, 0) >= 0);
            assert_true(sluice_poll(p.a.loop, &event, 1, 0) >= 0);
            const struct session *a = pair_session(&p.a);
            assert_true(!a->rx.held.head && a->landing.ns == 0); /* it never held any */
        }
        assert_int_equal(event.type, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, RNDV_AT_ONCE - i % 2, i));
    }
    pair_close(&p);
}

static struct fabric_ops fabric;
static struct fabric_fast fast;
static int (*device_words)(struct ibv_qp *, const uint64_t *, unsigned, bool, uint64_t);
static unsigned asked, posted; /* calls of post_words(), and those that did something */
static unsigned refused;       /* so many calls in a row, and so on */

static int counted_words(struct ibv_qp *qp, const uint64_t *words, unsigned count, bool signalled,
                         uint64_t wr_id) {
    if (++asked % (refused + 1) != 0)
        return EAGAIN;
    int rc = device_words(qp, words, count, signalled, wr_id);
    posted += rc == 0;
    return rc;
}

static void watch_words(struct pair *p, unsigned refuse) {
    fabric = *p->a.node->fabric;
    fast = *fabric.fast;
    device_words = fast.post_words;
    fast.post_words = counted_words;
    fabric.fast = &fast;
    p->a.node->fabric = p->b.node->fabric = &fabric;
    asked = posted = 0;
    refused = refuse;
}

/* The announcement and the answer, each where nothing is before it; the first one made what they need. */
TEST(neither_frame_needs_a_work_request) {
    enum { COUNT = 20 };
    struct pair p;
    open_pair(&p);
    announced_send(&p, 10000);
    receive(&p, 10000);
    pair_await(&p, pair_session(&p.b)->rndv->out_count == 0);
    watch_words(&p, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(pair_send(&p.b, 10000, 0, NULL), 0);
        receive(&p, 10000);
        pair_await(&p, pair_session(&p.b)->rndv->out_count == 0);
    }
    assert_int_equal(asked, 2 * COUNT);
    assert_int_not_equal(posted, 0);
    pair_close(&p);
}

static size_t in_use_at_rest(struct pair *p) {
    pair_await(p, pair_session(&p->b)->rndv->out_count == 0);
    pair_turns(p, 20); /* which give back what was delivered */
    return pool_in_use(p->a.node->pool) + pool_in_use(p->b.node->pool);
}

/* The first frame asks for what the others may need, should the device take them no more. */
TEST(its_memory_is_there_from_the_first_message_on) {
    struct pair p;
    open_pair(&p);
    announced_send(&p, 10000);
    receive(&p, 10000);
    size_t before = in_use_at_rest(&p);
    watch_words(&p, UINT_MAX - 1);
    announced_send(&p, 10000);
    receive(&p, 10000);
    assert_int_equal(posted, 0);
    assert_int_equal(in_use_at_rest(&p), before);
    pair_close(&p);
}

/* Its lock may be another thread's, and its ring full. */
TEST(where_the_device_takes_none_they_go_as_others_do) {
    for (unsigned refuse = 1; refuse <= 3; refuse++) {
        struct pair p;
        open_pair(&p);
        watch_words(&p, refuse);
        for (unsigned i = 0; i < 60; i++) {
            struct side *from = i % 3 ? &p.b : &p.a, *to = i % 3 ? &p.a : &p.b;
            uint32_t bytes = i % 2 ? 10000 : 100000;
            assert_int_equal(pair_send(from, bytes, i, NULL), 0);
            if (i % 5 == 0)
                assert_int_equal(pair_send(from, 100, i, NULL), 0);
            assert_true(pair_check(pair_expect(&p, to, SLUICE_MESSAGE).msg, bytes, i));
            if (i % 5 == 0)
                assert_true(pair_check(pair_expect(&p, to, SLUICE_MESSAGE).msg, 100, i));
        }
        assert_int_not_equal(posted, 0);
        pair_close(&p);
    }
}

/* Where there is no place for its event it waits, and what comes behind it too. */
TEST(short_ones_wait_for_the_application_in_order) {
    enum { COUNT = 8 };
    struct pair p;
    open_pair(&p);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(pair_send(&p.b, i % 2 ? 100 : 10000, i, NULL), 0);
    pair_turns(&p, 200);
    for (unsigned i = 0; i < COUNT; i++) {
        sluice_event event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, i % 2 ? 100 : 10000, i));
    }
    pair_close(&p);
}

/* The other sessions of the loop have their turn in between. A turn may look at a session twice. */
TEST(a_turn_copies_no_more_than_its_share) {
    struct pair p;
    open_pair(&p);
    announced_send(&p, 5 * MIB);
    const struct session *a = pair_session(&p.a);
    uint64_t turns = 0, before = 0;
    while (!a->rndv || a->rndv->first) {
        uint64_t now = a->rndv ? a->rndv->first->offset : 0;
        assert_uint_in_range(now - before, 0, 2 * RNDV_SHARE_COPIED);
        turns += now > before;
        before = now;
        sluice_event event;
        if (sluice_poll(p.a.loop, &event, 1, 0) == 1)
            assert_int_equal(event.type, SLUICE_MESSAGE);
    }
    assert_true(turns >= 5 * MIB / RNDV_SHARE_COPIED / 2 - 1);
    pair_close(&p);
}

TEST(of_a_peer_that_does_not_know_how_it_is_read) {
    struct pair p;
    open_pair(&p);
    assert_true(pair_session(&p.a)->connection->cm.rep.features & PRIVATE_DATA_FEATURE_SHARED);
    pair_session(&p.b)->connection->shares = false;
    announced_send(&p, 100000);
    assert_int_equal(way(&p), RNDV_BY_READ);
    receive(&p, 100000);
    pair_close(&p);
}

/* The receiver's device has mapped it by now: it hears of new memory by and by. */
static bool is_mapped(struct pair *p, const sluice_region *region) {
    uint32_t key;
    uint64_t at;
    return fabric_share(p->b.node->fabric, pair_session(&p->b)->connection->qp, region->mr,
                        region->addr, region->bytes, &key, &at);
}

static void send_in_place(struct pair *p, uint8_t *at, uint32_t bytes) {
    sluice_region *region;
    assert_int_equal(sluice_region_open(p->b.node, at, bytes, 0, &region, NULL), 0);
    memory_fill(sluice_region_data(region), bytes, 0);
    sluice_piece piece = {sluice_region_data(region), bytes, region};
    if (!at)
        pair_await(p, is_mapped(p, region));
    assert_int_equal(sluice_send_pieces(p->b.session, &piece, 1, SLUICE_SEND(.tag = 1)), 0);
    while (announced(p) == 0)
        assert_int_equal(sluice_poll(p->b.loop, NULL, 0, 0), 0);
    assert_int_equal(way(p), at ? RNDV_BY_READ : RNDV_BY_COPY);
    receive(p, bytes);
    pair_expect(p, &p->b, SLUICE_SENT);
    assert_int_equal(sluice_region_close(region), 0);
}

TEST(memory_of_the_sender_alone_is_read) {
    for (unsigned private = 0; private < 2; private ++) {
        struct pair p;
        uint8_t *mine = private ? malloc(100000) : NULL;
        open_pair(&p);
        send_in_place(&p, mine, 100000);
        pair_close(&p);
        free(mine);
    }
}

/* Turns of this loop alone until that is so. */
static void await_held(struct side *side, const struct session *s) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (!s->rx.held.head && env_now(&env_default) < limit)
        assert_true(sluice_poll(side->loop, NULL, 0, 0) >= 0);
    assert_non_null(s->rx.held.head);
}

/* The dialer is up while the listener has not heard so yet. */
TEST(it_may_be_announced_before_the_receiver_is_up) {
    struct pair p;
    sluice_event event = {0};
    memset(&p, 0, sizeof p);
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    pair_dial(&p, PAIR_LINK());
    for (unsigned turn = 0; event.type != SLUICE_UP; turn++) {
        if (turn % 256 == 255) /* b has had many: it waits for a */
            cm_progress(p.a.node->cm, 0);
        assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
        cm_progress(p.b.node->cm, 0);
        assert_true(sluice_poll(p.b.loop, &event, 1, 0) >= 0);
        sched_yield();
    }
    announced_send(&p, 100000);
    const struct session *a = p.a.loop->sessions;
    assert_non_null(a);
    await_held(&p.a, a);
    assert_false(a->announced);
    pair_expect(&p, &p.a, SLUICE_UP);
    receive(&p, 100000);
    pair_close(&p);
}
