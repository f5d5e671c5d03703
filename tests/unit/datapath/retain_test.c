/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A kept message holds exactly one credit of the session it came by, until it is freed, from whatever
 * thread, or sent on; whatever it came in.
 */
#include "support/pair.h"
#include "support/pool_stats.h"
#include "support/reports.h"
#include "support/request.h"

#include <pthread.h>

#define EACH_KIND(flag) for (uint32_t flag = 0; flag <= SLUICE_ISOLATED; flag += SLUICE_ISOLATED)

enum { CREDITS = 16, MOST = CREDITS - CREDIT_RESERVE };

static void quiesce(struct pair *p) {
    pair_turns(p, 100);
}

static uint32_t kept(struct side *side) {
    sluice_session_info info = pair_info(side->session);
    return info.kept;
}

/* Credits are with the sender, owed, to be posted, or withheld. */
static void assert_complete(struct pair *p, uint32_t withheld) {
    struct session *s = pair_session(&p->b), *r = pair_session(&p->a);
    assert_int_equal(r->connection->credits.retained, withheld);
    assert_int_equal(s->connection->tx.credits + r->connection->rx.unreported +
                         r->connection->rx.repost_count + withheld -
                         r->connection->credits.withheld_due,
                     r->connection->credits.granted);
}

/* One frame for each message, and all the credits there are. */
static void open_kind(struct pair *p, uint32_t flag) {
    pair_without(WITHOUT_COALESCE);
    pair_open(p, PAIR_NODE(), PAIR_LINK(.credits = CREDITS, .flags = flag));
    pair_connect(p, PAIR_LINK(.window_messages = 1000));
    pair_grant_all(p, pair_session(&p->b), pair_session(&p->a));
}

/* Keeps until nothing more comes; how many. */
static unsigned keep_all(struct pair *p, sluice_msg **msgs, unsigned max) {
    sluice_event event;
    unsigned count = 0;
    for (int quiet = 0; quiet < 500; quiet++) {
        cm_progress(p->b.node->cm, 0);
        assert_true(sluice_poll(p->b.loop, NULL, 0, 0) >= 0);
        if (sluice_poll(p->a.loop, &event, 1, 0) != 1)
            continue;
        assert_int_equal(event.type, SLUICE_MESSAGE);
        assert_true(count < max);
        sluice_keep(event.msg);
        msgs[count++] = event.msg;
        quiet = 0;
    }
    return count;
}

static int open_of_kind(void **state) {
    static struct pair of_test;
    uint32_t flag = (uint32_t)(uintptr_t)*state;
    *state = &of_test;
    open_kind(*state, flag);
    return 0;
}

/* Each with receives that are shared, and isolated. */
#define OF_BOTH_KINDS(name)                                                                        \
    TEST_EACH(                                                                                     \
        name, {#name "/shared", name, open_of_kind, pair_closed, (void *)0},                       \
        {#name "/isolated", name, open_of_kind, pair_closed, (void *)(uintptr_t)SLUICE_ISOLATED})

OF_BOTH_KINDS(a_kept_message_holds_one_credit_until_it_is_freed) {
    struct pair *p = *state;
    sluice_msg *msgs[64];
    for (unsigned i = 0; i < 60; i++)
        assert_int_equal(pair_send(&p->b, 10 + i, i, NULL), 0);
    unsigned count = keep_all(p, msgs, 64);
    assert_int_equal(count, MOST); /* the peer keeps two back */
    assert_int_equal(kept(&p->a), MOST);
    assert_int_equal(p->a.loop->totals.retained, MOST);
    assert_complete(p, MOST);
    for (unsigned i = 0; i < 60; i++) { /* one freed, one more comes */
        assert_true(pair_check(msgs[i % MOST], 10 + i, i));
        sluice_free(msgs[i % MOST]);
        if (i + MOST >= 60)
            continue;
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        sluice_keep(event.msg);
        msgs[i % MOST] = event.msg;
        pair_expect_nothing(p, &p->a);
    }
    quiesce(p);
    assert_int_equal(kept(&p->a), 0);
    assert_int_equal(p->a.loop->totals.retained, 0);
    assert_complete(p, 0);
}

/*
 * A session starts with few credits. What is kept of them is used, however slowly: the peer is never
 * left with the two alone while there is more to grant.
 */
TEST(keeping_slowly_reaches_all_the_credits) {
    EACH_KIND(flag) {
        for (unsigned each = 1; each <= 3; each++) { /* messages between two looks */
            struct pair p;
            sluice_msg *msgs[MOST];
            pair_without(WITHOUT_COALESCE);
            pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = CREDITS, .flags = flag));
            pair_connect(&p, PAIR_LINK());
            for (unsigned i = 0; i < MOST; i++) {
                if (i % each == 0) {
                    pair_clock += 2000000000ull; /* a look, or a new beginning */
                    quiesce(&p);
                }
                assert_int_equal(pair_send(&p.b, 100, i, NULL), 0);
                msgs[i] = pair_expect(&p, &p.a, SLUICE_MESSAGE).msg;
                sluice_keep(msgs[i]);
            }
            assert_int_equal(pair_send(&p.b, 100, MOST, NULL), 0);
            pair_expect_nothing(&p, &p.a);
            assert_complete(&p, MOST);
            for (unsigned i = 0; i < MOST; i++)
                sluice_free(msgs[i]);
            assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 100, MOST));
            quiesce(&p);
            assert_complete(&p, 0);
            pair_close(&p);
        }
    }
}

/*
 * One frame brings more messages than there are credits. The two that the peer keeps back stay with
 * it, so it can still return ours: all of what is kept is sent on to it, and more comes.
 */
TEST(more_kept_than_credits_leave_the_peer_two) {
    enum { COUNT = 500 };
    EACH_KIND(flag) {
        struct pair p;
        static sluice_msg *msgs[COUNT];
        pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 4, .flags = flag));
        pair_connect(&p, PAIR_LINK(.window_messages = 1000));
        unsigned sent = 0, back = 0;
        for (unsigned round = 0; round < 3; round++) {
            for (unsigned i = 0; i < COUNT; i++)
                assert_int_equal(pair_send(&p.b, 500, sent++, NULL), 0);
            unsigned first = back; /* frames of their own; what waits behind them is packed */
            sluice_event event;
            for (unsigned i = 0; i < 2; i++) {
                event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
                assert_true(pair_check(event.msg, 500, first + i));
            }
            back += 2;
            unsigned count = keep_all(&p, msgs, COUNT);
            struct session *r = pair_session(&p.a);
            assert_uint_in_range(count, r->connection->credits.granted + 1, COUNT);
            assert_int_equal(kept(&p.a), count);
            assert_int_equal(r->connection->credits.granted - (r->connection->credits.retained -
                                                               r->connection->credits.withheld_due),
                             CREDIT_RESERVE);
            assert_complete(&p, count);
            for (unsigned i = 0; i < count; i++)
                assert_int_equal(sluice_send(p.a.session, msgs[i], NULL), 0);
            for (unsigned rest = COUNT - 2 - count; back < sent;) {
                if (rest > 0 && sluice_poll(p.a.loop, &event, 1, 0) == 1) {
                    assert_int_equal(event.type, SLUICE_MESSAGE);
                    assert_int_equal(sluice_send(p.a.session, event.msg, NULL), 0);
                    rest--;
                }
                if (sluice_poll(p.b.loop, &event, 1, 0) == 1)
                    assert_true(pair_check(event.msg, 500, back++));
                else
                    pair_turn(&p);
            }
            quiesce(&p);
            assert_int_equal(kept(&p.a), 0);
            assert_int_equal(r->connection->credits.withheld_due, 0);
            assert_complete(&p, 0);
        }
        pair_close(&p);
    }
}

/* It brought no buffer of the queue, and holds a credit all the same: the next that would return. */
OF_BOTH_KINDS(a_large_kept_message_holds_one_credit_too) {
    struct pair *p = *state;
    sluice_msg *msgs[64];
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(pair_send(&p->b, 20000, i, NULL), 0);
    unsigned count = keep_all(p, msgs, 64);
    assert_int_equal(count, MOST);
    assert_int_equal(kept(&p->a), MOST);
    assert_complete(p, MOST);
    for (unsigned i = 0; i < count; i++)
        sluice_free(msgs[i]);
    for (unsigned i = count; i < 40; i++) {
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 20000, i));
    }
    quiesce(p);
    assert_int_equal(pair_session(&p->a)->connection->credits.withheld_due, 0);
    assert_complete(p, 0);
}

/*
 * Many are taken with one poll, announced or cut into frames, and all are kept: what announced or
 * ended each is not posted again before that is known.
 */
TEST(large_messages_of_one_poll_hold_a_credit_each) {
    enum { COUNT = 60, LARGE = 20000 };
    for (unsigned cut = 0; cut < 2; cut++) {
        EACH_KIND(flag) {
            struct pair p;
            sluice_msg *msgs[COUNT];
            pair_without(WITHOUT_COALESCE | (cut ? WITHOUT_RENDEZVOUS : 0));
            pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = CREDITS, .flags = flag));
            pair_connect(&p, PAIR_LINK(.window_messages = 1000));
            pair_grant_all(&p, pair_session(&p.b), pair_session(&p.a));
            for (unsigned i = 0; i < COUNT; i++)
                assert_int_equal(pair_send(&p.b, LARGE, i, NULL), 0);
            unsigned count = 0;
            for (unsigned quiet = 0; quiet < 500; quiet++) {
                sluice_event events[COUNT];
                for (unsigned i = 0; i < 20; i++) { /* what can arrive has */
                    cm_progress(p.b.node->cm, 0);
                    assert_true(sluice_poll(p.b.loop, NULL, 0, 0) >= 0);
                    assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
                }
                int n = sluice_poll(p.a.loop, events, COUNT, 0);
                for (int i = 0; i < n; i++, quiet = 0) {
                    assert_int_equal(events[i].type, SLUICE_MESSAGE);
                    sluice_keep(events[i].msg);
                    msgs[count++] = events[i].msg;
                }
            }
            assert_uint_in_range(count, MOST - cut * 2,
                                 MOST); /* frames of one that waits for its end */
            assert_complete(&p, count);
            assert_int_equal(pair_session(&p.a)->connection->credits.withheld_due, 0);
            for (unsigned i = 0; i < count; i++) {
                assert_true(pair_check(msgs[i], LARGE, i));
                sluice_free(msgs[i]);
            }
            for (unsigned i = count; i < COUNT; i++)
                assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, LARGE, i));
            quiesce(&p);
            assert_complete(&p, 0);
            pair_close(&p);
        }
    }
}

OF_BOTH_KINDS(kept_in_a_moment_and_freed_costs_nothing) {
    struct pair *p = *state;
    uint64_t before = 0;
    for (unsigned i = 0; i < 500; i++) {
        assert_int_equal(pair_send(&p->b, i & 1 ? 20000 : 100, i, NULL), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        sluice_keep(event.msg);
        sluice_free(event.msg); /* before the poll that would have taken it back */
        if (i == 100)
            before = pool_in_use(p->a.node->rx_pool);
    }
    quiesce(p);
    assert_complete(p, 0);
    assert_uint_in_range(pool_in_use(p->a.node->rx_pool), before - 4, before + 4);
}

/* A reply came in a place that was set aside for it: freed before the poll that takes it back, it brings no credit. */
OF_BOTH_KINDS(a_kept_reply_freed_at_once_is_no_credit) {
    struct pair *p = *state;
    const struct connection *c = pair_session(&p->b)->connection;
    pair_grant_all(p, pair_session(&p->a), pair_session(&p->b));
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(pair_request(&p->b, 100, i, NULL), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_REQUEST);
        assert_int_equal(pair_reply(&p->a, event.token, 100, i), 0);
        event = pair_expect(p, &p->b, SLUICE_REPLY);
        assert_true(pair_check(event.msg, 100, i));
        sluice_keep(event.msg);
        sluice_free(event.msg);
        assert_uint_in_range(c->rx.granted + c->rx.unreported, 0, c->credits.granted);
    }
    quiesce(p);
    assert_int_equal(c->credits.retained, 0);
    assert_int_equal(c->rx.granted + c->rx.unreported + c->rx.repost_count -
                         c->credits.withheld_due,
                     c->credits.granted);
}

OF_BOTH_KINDS(what_is_sent_on_is_replaced) {
    struct pair *p = *state;
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(pair_send(&p->b, 100, i, NULL), 0);
        sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        if (i & 1)
            sluice_keep(event.msg);
        if (i & 2)
            assert_int_equal(sluice_poll(p->a.loop, NULL, 0, 0) < 0, 0);
        if ((i & 3) == 2) { /* it went back with that poll */
            continue;
        }
        assert_int_equal(sluice_send(p->a.session, event.msg, NULL), 0);
        event = pair_expect(p, &p->b, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 100, i));
    }
    quiesce(p);
    assert_complete(p, 0);
}

/* Of messages that are not copied as they are sent. */
TEST(without_a_replacement_nothing_is_sent_on) {
    enum { BYTES = 1000 };
    EACH_KIND(flag) {
        struct pair p;
        struct pool_buffer *hoard[4096];
        unsigned count = 0;
        pair_open(&p, PAIR_NODE(.memory_bytes_max = 4 << 20), PAIR_LINK(.flags = flag));
        pair_connect(&p, PAIR_LINK());
        assert_int_equal(pair_send(&p.b, BYTES, 1, NULL), 0);
        assert_int_equal(pair_send(&p.b, BYTES, 2, NULL), 0);
        sluice_event event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        sluice_msg *mine = event.msg;
        sluice_keep(mine);
        event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        struct pool_buffer *buffer;
        while ((buffer = pool_get(p.a.node->rx_pool, p.a.loop->rx_cache, 8192)))
            hoard[count++] = buffer;
        assert_int_equal(sluice_send(p.a.session, mine, NULL), SLUICE_ENOMEM);
        assert_int_equal(sluice_send(p.a.session, event.msg, NULL), SLUICE_ENOMEM);
        assert_true(pair_check(mine, BYTES, 1));
        assert_true(pair_check(event.msg, BYTES, 2));
        while (count > 0)
            pool_put(p.a.node->rx_pool, p.a.loop->rx_cache, hoard[--count]);
        assert_int_equal(sluice_send(p.a.session, mine, NULL), 0);
        assert_int_equal(sluice_send(p.a.session, event.msg, NULL), 0);
        event = pair_expect(&p, &p.b, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, BYTES, 1));
        event = pair_expect(&p, &p.b, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, BYTES, 2));
        pair_close(&p);
    }
}

/* ---- other threads ------------------------------------------------------------------------------ */

struct freer {
    sluice_msg *msgs[MOST];
    unsigned count;
};

static void *free_them(void *arg) {
    struct freer *freer = arg;
    for (unsigned i = 0; i < freer->count; i++)
        sluice_free(freer->msgs[i]);
    return NULL;
}

OF_BOTH_KINDS(any_thread_may_free) {
    struct pair *p = *state;
    unsigned sent = 0, received = 0;
    while (received < 300) {
        struct freer freer;
        pthread_t thread;
        while (sent < 300 && pair_send(&p->b, 100, sent, NULL) == 0)
            sent++;
        freer.count = keep_all(p, freer.msgs, MOST);
        for (unsigned i = 0; i < freer.count; i++)
            assert_true(pair_check(freer.msgs[i], 100, received + i));
        received += freer.count;
        assert_true(freer.count > 0);
        assert_int_equal(pthread_create(&thread, NULL, free_them, &freer), 0);
        pair_turns(p, 100);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    quiesce(p);
    assert_complete(p, 0);
}

OF_BOTH_KINDS(after_the_session_it_just_goes_back) {
    struct pair *p = *state;
    struct freer freer;
    pthread_t thread;
    for (unsigned i = 0; i < MOST; i++)
        assert_int_equal(pair_send(&p->b, 100, i, NULL), 0);
    freer.count = keep_all(p, freer.msgs, MOST);
    assert_int_equal(freer.count, MOST);
    sluice_hangup(p->b.session, 0);
    pair_expect(p, &p->a, SLUICE_CLOSED);
    pair_expect(p, &p->b, SLUICE_CLOSED);
    assert_int_equal(p->a.loop->totals.retained, 0);
    pair_connect(p, PAIR_LINK()); /* perhaps in the same slot */
    quiesce(p);
    uint64_t before = pool_in_use(p->a.node->rx_pool);
    sluice_free(freer.msgs[--freer.count]);
    assert_int_equal(pthread_create(&thread, NULL, free_them, &freer), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    quiesce(p);
    assert_int_equal(pool_in_use(p->a.node->rx_pool), before - MOST);
    assert_int_equal(pair_session(&p->a)->connection->credits.retained, 0);
    assert_int_equal(pair_session(&p->a)->connection->credits.granted, CREDITS_INITIAL);
}

/* In a frame of its own, with others in one, and put together. */
TEST(a_kept_message_not_freed_is_told_with_its_session) {
    static const uint32_t sizes[] = {3000, 100, 101, 300000};
    struct pair p;
    char expected[160];
    setenv("SLUICE_POOL_DEBUG", "1", 1);
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    unsetenv("SLUICE_POOL_DEBUG");
    pair_connect(&p, PAIR_LINK());
    reports[0] = 0;
    reports_of(p.a.node->rx_pool);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pair_send(&p.b, sizes[i], i, NULL), 0);
    for (unsigned i = 0; i < 4; i++)
        sluice_keep(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg);
    uint64_t id = p.a.session.id;
    char peer[64];
    snprintf(peer, sizeof peer, "%s", pair_session(&p.a)->peer.address);
    assert_true(strlen(peer) > 0);
    pair_close(&p);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(expected, sizeof expected,
                 "of %u bytes was not returned, a message of session %llx with %s\n", sizes[i],
                 (unsigned long long)id, peer);
        assert_non_null(strstr(reports, expected));
    }
    assert_null(strstr(reports, "was written"));
}
