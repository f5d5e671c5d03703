/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Credits: four at first, more as they are used, fewer after a while of silence; never more than is
 * posted, with receives of one's own and with shared ones; receives for replies.
 */
#include "support/pair.h"
#include "support/log.h"
#include "support/pool_stats.h"
#include "datapath/rx/credits.h"

#define SECOND 1000000000ull
#define EACH_KIND(flag) for (uint32_t flag = 0; flag <= SLUICE_ISOLATED; flag += SLUICE_ISOLATED)

static void quiesce(struct pair *p) {
    for (int quiet = 0; quiet < 50;) {
        uint64_t before = p->a.loop->totals.completions + p->b.loop->totals.completions;
        pair_turn(p);
        quiet =
            before == p->a.loop->totals.completions + p->b.loop->totals.completions ? quiet + 1 : 0;
    }
}

/* Every receive the device has is a credit, reserved, or spare. */
static void assert_covered(struct side *side) {
    struct sluice_loop *l = side->loop;
    uint32_t shared = l->srq.queue.spare;
    for (struct session *s = l->sessions; s; s = s->next) {
        if (!s->connection->qp)
            continue;
        uint32_t promised =
            s->connection->rx.granted + s->connection->rx.unreported + s->connection->recv.reserved;
        if (s->connection->rx.queue->srq)
            shared += promised;
        else
            assert_int_equal(promised + s->connection->recv.own.spare,
                             s->connection->recv.own.posted);
        assert_true(promised + s->connection->rx.repost_count <= s->connection->credits.granted +
                                                                     s->connection->recv.reserved +
                                                                     s->connection->recv.own.spare);
        assert_true(s->connection->credits.granted <= s->connection->credits.max);
    }
    if (l->srq.queue.srq)
        assert_int_equal(shared, l->srq.queue.posted);
}

static uint32_t info_of(struct side *side, bool shared) {
    sluice_session_info info = pair_info(side->session);
    return shared ? info.shared : info.granted;
}

TEST(every_peer_begins_with_four) {
    EACH_KIND(flag) {
        struct pair p;
        pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 512, .flags = flag));
        pair_connect(&p, PAIR_LINK(.credits = 4, .flags = flag));
        quiesce(&p);
        assert_int_equal(pair_session(&p.b)->connection->tx.credits, 4);
        assert_int_equal(pair_session(&p.a)->connection->tx.credits, 4);
        assert_int_equal(pair_session(&p.a)->connection->credits.granted, 4);
        assert_int_equal(info_of(&p.a, true), flag == 0);
        assert_covered(&p.a);
        assert_covered(&p.b);
        pair_close(&p);
    }
}

TEST(a_stream_has_all_its_credits_after_a_few_round_trips) {
    static const uint32_t most[] = {4, 5, 32, 33, 1024};
    EACH_KIND(flag) {
        for (unsigned i = 0; i < sizeof most / sizeof *most; i++) {
            struct pair p;
            pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = most[i], .flags = flag));
            pair_connect(&p, PAIR_LINK());
            unsigned sent = 0, received = 0;
            uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
            while (pair_session(&p.a)->connection->credits.granted < most[i] || received < sent) {
                if (sent < 5 * most[i] && pair_send(&p.b, 10, sent, NULL) == 0)
                    sent++;
                sluice_event event;
                assert_true(sluice_poll(p.b.loop, NULL, 0, 0) >= 0);
                if (sluice_poll(p.a.loop, &event, 1, 0) == 1)
                    assert_true(pair_check(event.msg, 10, received++));
                assert_covered(&p.a);
                assert_true(env_now(&env_default) < limit);
            }
            assert_true(received <= 5 * most[i]); /* doubled each time half was used */
            pair_close(&p);
        }
    }
}

PAIR_WITH(pair_connected, a_peer_that_says_a_word_now_and_then_gets_no_more) {
    struct pair *p = *state;
    for (unsigned i = 0; i < 50; i++) {
        assert_int_equal(pair_send(&p->b, 10, i, NULL), 0);
        pair_expect(p, &p->a, SLUICE_MESSAGE);
        pair_clock += 2 * SECOND;
        quiesce(p);
    }
    assert_uint_in_range(pair_session(&p->a)->connection->credits.granted, 4, 8);
}

TEST(a_quiet_peer_gives_back_all_but_four) {
    EACH_KIND(flag) {
        struct pair p;
        pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = flag));
        pair_connect(&p, PAIR_LINK(.flags = flag));
        for (unsigned round = 0; round < 5; round++) {
            pair_grant_all(&p, pair_session(&p.b), pair_session(&p.a));
            assert_int_equal(pair_session(&p.b)->connection->tx.credits, CREDITS_DEFAULT);
            for (unsigned i = 0; i < 5; i++) {
                pair_clock += SECOND;
                quiesce(&p);
                assert_covered(&p.a);
            }
            assert_int_equal(pair_session(&p.a)->connection->credits.granted, CREDITS_INITIAL);
            assert_uint_in_range(pair_session(&p.b)->connection->tx.credits, 3, 4);
            assert_int_equal(p.a.loop->credits_check_ns, UINT64_MAX); /* nothing more to look at */
            assert_int_equal(p.a.closed + p.b.closed, 0);
            /* The receives are spare: the next growth takes them. */
            assert_uint_in_range(pool_in_use(p.a.node->rx_pool), CREDITS_DEFAULT,
                                 CREDITS_DEFAULT + 8);
        }
        pair_close(&p);
    }
}

PAIR_WITH(pair_connected, a_busy_peer_keeps_its_credits) {
    struct pair *p = *state;
    pair_grant_all(p, pair_session(&p->b), pair_session(&p->a));
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(pair_send(&p->b, 10, i, NULL), 0);
        pair_expect(p, &p->a, SLUICE_MESSAGE);
        pair_clock += SECOND * 6 / 10;
        quiesce(p);
        assert_int_equal(pair_session(&p->a)->connection->credits.granted, CREDITS_DEFAULT);
    }
}

TEST(false_recalls_and_returns_close_the_session) {
    static const struct frame lies[] = {
        {.type = FRAME_RETURN, .total = 0},       {.type = FRAME_RETURN, .total = 1},
        {.type = FRAME_RECALL, .total = 3},       {.type = FRAME_RECALL, .total = 0},
        {.type = FRAME_RECALL, .total = 1 << 16}, {.type = FRAME_RECALL, .total = UINT64_MAX},
        {.type = FRAME_RETURN, .total = 29},      {.type = FRAME_RETURN, .total = UINT64_MAX},
    };
    for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct pair p;
        struct frame f = lies[i];
        pair_open(&p, PAIR_NODE(.log = log_nothing), PAIR_LINK());
        pair_connect(&p, PAIR_LINK());
        if (i >= 6) { /* an answer, but a wrong one */
            pair_grant_all(&p, pair_session(&p.b), pair_session(&p.a));
            pair_session(&p.a)->connection->credits.recall = CREDITS_INITIAL;
            f.sequence = pair_session(&p.b)->connection->tx.sequence;
        }
        pair_raw_frame(&p.b, &f, FRAME_BYTES + f.length);
        assert_int_equal(pair_expect(&p, &p.a, SLUICE_CLOSED).reason, SLUICE_REASON_PROTOCOL);
        pair_expect(&p, &p.b, SLUICE_CLOSED);
        pair_close(&p);
    }
}

TEST(replies_have_receives_of_their_own) {
    EACH_KIND(flag) {
        struct pair p;
        pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = flag));
        pair_connect(&p, PAIR_LINK(.flags = flag, .requests = 16));
        struct session *s = pair_session(&p.b);
        uint32_t granted = s->connection->rx.granted;
        for (unsigned i = 0; i < 16; i++)
            assert_true(credits_reserve(p.b.loop, s));
        assert_int_equal(s->connection->recv.reserved, 16);
        assert_int_equal(s->connection->rx.granted, granted);
        assert_covered(&p.b);
        for (unsigned i = 0; i < 16; i++)
            credits_unreserve(s, false);
        assert_int_equal(s->connection->recv.reserved, 0);
        assert_covered(&p.b);
        uint64_t buffers = pool_in_use(p.b.node->rx_pool);
        for (unsigned i = 0; i < 1000; i++) { /* again and again: no more of them */
            assert_true(credits_reserve(p.b.loop, s));
            credits_unreserve(s, false);
        }
        assert_int_equal(pool_in_use(p.b.node->rx_pool), buffers);
        pair_close(&p);
    }
}
