/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Packs: small messages that wait share a frame, and nobody can tell but by the figures. What comes
 * out is what went in, in order; the window, outcomes, credits and memory are exact.
 */
#include "support/pair.h"
#include "support/pool_stats.h"

#include <pthread.h>

#include "datapath/rx/message.h"
#include "datapath/session/close.h"
#include "datapath/tx/coalesce.h"
#include "datapath/tx/post.h"

#define MORE SLUICE_SEND(.flags = SLUICE_MORE)

/* So many messages of this size, waiting together, and then posted. */
static void send_together(struct side *from, unsigned count, size_t bytes, unsigned seed) {
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pair_send(from, bytes, seed + i, i + 1 < count ? MORE : NULL), 0);
}

static void expect_all(struct pair *p, struct side *to, unsigned count, size_t bytes,
                       unsigned seed) {
    for (unsigned i = 0; i < count; i++) {
        sluice_event event = pair_expect(p, to, SLUICE_MESSAGE);
        assert_int_equal(event.bytes, bytes);
        assert_true(pair_check(event.msg, bytes, seed + i));
    }
}

/* One message each way whose outcome is told: then everything before it is through as well. */
static void settle(struct pair *p) {
    for (unsigned k = 0; k < 2; k++) {
        struct side *from = k ? &p->a : &p->b, *to = k ? &p->b : &p->a;
        assert_int_equal(pair_send(from, 1, 0, SLUICE_SEND(.tag = 99999)), 0);
        pair_expect(p, to, SLUICE_MESSAGE);
        must_data_equal(pair_expect(p, from, SLUICE_SENT).tag, 99999);
    }
    pair_turn(p);
    for (unsigned k = 0; k < 2; k++) { /* and every frame that came is posted, or about to be */
        const struct session *s = pair_session(k ? &p->a : &p->b);
        assert_int_equal(s->connection->rx.queue->posted + s->connection->rx.repost_count,
                         s->connection->credits.granted);
        assert_null(s->rx.held.head);
    }
}

static void expect_window_empty(const struct side *side) {
    struct session *s = pair_session((struct side *)(uintptr_t)side);
    assert_int_equal(atomic_load(&s->window.own_messages), 0);
    assert_int_equal(atomic_load(&s->window.own_bytes), 0);
    assert_int_equal(atomic_load(&s->foreign.bytes), 0);
    assert_int_equal(session_ref_count(&s->ref), 0);
    assert_int_equal(s->window.foreign_taken, 0);
}

/* ---- what goes into a frame ------------------------------------------------------------------ */

PAIR_WITH(pair_connected, a_pack_is_one_frame_and_one_credit) {
    struct pair *p = *state;
    struct session *a = pair_session(&p->a), *b = pair_session(&p->b);
    uint64_t frames = loop_totals(p->b.loop)->frames_sent, posts = loop_totals(p->b.loop)->posts;
    uint32_t credits = b->connection->tx.credits, granted = a->connection->rx.granted;
    send_together(&p->b, 50, 64, 1);
    assert_int_equal(loop_totals(p->b.loop)->frames_sent, frames + 1);
    assert_int_equal(loop_totals(p->b.loop)->posts, posts + 1);
    assert_int_equal(b->connection->tx.credits, credits - 1);
    expect_all(p, &p->a, 50, 64, 1);
    assert_int_equal(a->connection->rx.granted, granted - 1);
    assert_int_equal(p->a.loop->totals.frames_received, 1);
    assert_int_equal(p->a.loop->totals.messages_received, 50);
    assert_int_equal(p->a.loop->totals.bytes_received, 50 * 64);
    assert_int_equal(loop_totals(p->b.loop)->messages_sent, 50);
    settle(p);
    expect_window_empty(&p->b);
}

PAIR_WITH(pair_connected, a_frame_never_waits_to_fill) {
    struct pair *p = *state;
    uint64_t frames = loop_totals(p->b.loop)->frames_sent;
    assert_int_equal(pair_send(&p->b, 64, 1, NULL), 0); /* posted at once, alone */
    assert_int_equal(loop_totals(p->b.loop)->frames_sent, ++frames);
    assert_int_equal(pair_send(&p->b, 64, 2, MORE), 0);
    assert_int_equal(pair_send(&p->b, 64, 3, MORE), 0);
    assert_int_equal(loop_totals(p->b.loop)->frames_sent, frames);
    assert_int_equal(sluice_poll(p->b.loop, NULL, 0, 0), 0); /* no third one came: no matter */
    assert_int_equal(loop_totals(p->b.loop)->frames_sent, frames + 1);
    expect_all(p, &p->a, 3, 64, 1);
}

static void keep_order(uint32_t without) {
    enum { COUNT = 4000 };
    static const size_t sizes[] = {0, 8, 64, 65, 1, 512, 513, 300, 8168, 8169, 7, 30000, 63};
    const unsigned kinds = sizeof sizes / sizeof *sizes;
    struct pair p;
    unsigned sent[2] = {0}, received[2] = {0};
    pair_without(without);
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 9));
    pair_connect(&p, PAIR_LINK(.credits = 12));
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while ((received[0] < COUNT || received[1] < COUNT) && env_now(&env_default) < limit) {
        for (unsigned k = 0; k < 2; k++) {
            struct side *side = k ? &p.b : &p.a;
            sluice_event events[16];
            for (unsigned i = 0; i < 24 && sent[k] < COUNT; i++, sent[k]++)
                if (pair_send(side, sizes[(sent[k] * 7 + sent[k] / 50) % kinds], sent[k],
                              sent[k] % 9 ? MORE : NULL) != 0)
                    break;
            int n = sluice_poll(side->loop, events, 1 + (int)(received[k] % 16), 0);
            for (int i = 0; i < n; i++) {
                if (events[i].type == SLUICE_WRITABLE)
                    continue;
                unsigned at = received[k]++;
                assert_int_equal(events[i].type, SLUICE_MESSAGE);
                assert_true(pair_check(events[i].msg, sizes[(at * 7 + at / 50) % kinds], at));
            }
        }
    }
    must_data_equal(received[0], COUNT);
    must_data_equal(received[1], COUNT);
    if (without & WITHOUT_RENDEZVOUS) /* which has frames of its own */
        assert_true(loop_totals(p.a.loop)->frames_sent < loop_totals(p.a.loop)->messages_sent);
    pair_close(&p);
}

TEST(messages_keep_their_order_among_other_frames) {
    keep_order(0);
    keep_order(WITHOUT_RENDEZVOUS);
}

TEST(every_small_size_is_packed_whole_and_aligned) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 1024));
    pair_connect(&p, PAIR_LINK(.window_messages = 4096));
    struct session *b = pair_session(&p.b);
    assert_true(b->tx.coalesce_bound >= 66 && b->tx.coalesce_bound <= b->tx.frame_payload / 4 + 1);
    for (unsigned size = 0; size < b->tx.coalesce_bound; size += 2) {
        settle(&p);
        uint64_t frames = loop_totals(p.b.loop)->frames_sent;
        assert_int_equal(pair_send(&p.b, size, size, MORE), 0);
        assert_int_equal(pair_send(&p.b, size + 1, size, MORE), 0);
        assert_int_equal(pair_send(&p.b, 3, size, NULL), 0);
        if (size + 1 < b->tx.coalesce_bound)
            assert_int_equal(loop_totals(p.b.loop)->frames_sent, frames + 1);
        for (unsigned i = 0; i < 3; i++) {
            sluice_event event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
            assert_true(pair_check(event.msg, i < 2 ? size + i : 3, size));
            assert_int_equal((uintptr_t)sluice_data(event.msg) % 8, 0);
        }
    }
    uint64_t frames = loop_totals(p.b.loop)->frames_sent;
    send_together(&p.b, 3, b->tx.coalesce_bound, 5); /* too large: each by itself */
    assert_int_equal(loop_totals(p.b.loop)->frames_sent, frames + 3);
    expect_all(&p, &p.a, 3, b->tx.coalesce_bound, 5);
    pair_close(&p);
}

TEST(the_smallest_frames_carry_packs_too) {
    struct pair p;
    pair_open(&p, PAIR_NODE(.eager_bytes = 512), PAIR_LINK());
    pair_connect(&p, PAIR_LINK(.window_messages = 200));
    size_t bytes = pair_session(&p.b)->tx.coalesce_bound - 1;
    send_together(&p.b, 30, bytes, 1);
    assert_true(loop_totals(p.b.loop)->frames_sent < 30);
    expect_all(&p, &p.a, 30, bytes, 1);
    send_together(&p.b, 100, 0, 1);
    expect_all(&p, &p.a, 100, 0, 1);
    pair_close(&p);
}

PAIR_WITH(pair_connected, nothing_of_earlier_messages_lies_between_items) {
    struct pair *p = *state;
    sluice_event events[2];
    pair_grant_all(p, pair_session(&p->b), pair_session(&p->a));
    for (unsigned i = 0; i < 64; i++) { /* the buffers have been used */
        sluice_msg *msg;
        assert_int_equal(sluice_alloc(p->b.node, 200, &msg), 0);
        memset(sluice_data(msg), 0xff, 200);
        assert_int_equal(sluice_send(p->b.session, msg, MORE), 0);
    }
    for (unsigned i = 0; i < 64; i++)
        pair_expect(p, &p->a, SLUICE_MESSAGE);
    settle(p);
    for (unsigned size = 1; size < 9; size++) {
        send_together(&p->b, 2, size, 1);
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
        while (sluice_poll(p->a.loop, events, 2, 0) == 0)
            assert_true(env_now(&env_default) < limit);
        const uint8_t *data = sluice_data(events[0].msg);
        for (unsigned i = size; i < 8; i++)
            assert_int_equal(data[i], 0);
        expect_all(p, &p->a, 0, size, 1);
    }
}

/* ---- outcomes and the window ----------------------------------------------------------------- */

struct foreign {
    struct side *side;
    unsigned count, tag;
};

static void *send_from_a_thread(void *arg) {
    struct foreign *f = arg;
    for (unsigned i = 0; i < f->count; i++) {
        unsigned tag = i % 2 ? f->tag + i : 0;
        if (pair_send(f->side, 16 + i, i, SLUICE_SEND(.tag = tag)) != 0)
            return f;
    }
    return NULL;
}

TEST(outcomes_and_window_are_exact) {
    enum { ROUNDS = 40, OWN = 20, FOREIGN = 30 };
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 8));
    pair_connect(&p, PAIR_LINK(.window_messages = OWN + FOREIGN));
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct foreign f = {&p.b, FOREIGN, 1000};
        bool seen[2000] = {false};
        unsigned outcomes = 0, messages = 0;
        pthread_t thread;
        void *failed = NULL;
        for (unsigned i = 0; i < OWN; i++) {
            if (i == OWN / 2) { /* in between, and at work while the own ones go on */
                assert_int_equal(pthread_create(&thread, NULL, send_from_a_thread, &f), 0);
                pthread_join(thread, &failed);
                assert_null(failed);
                assert_int_equal(sluice_poll(p.b.loop, NULL, 0, 0), 0);
            }
            assert_int_equal(
                pair_send(&p.b, 40 + i, i,
                          SLUICE_SEND(.tag = i % 3 ? i : 0, .flags = i % 7 ? SLUICE_MORE : 0)),
                0);
        }
        unsigned tagged = FOREIGN / 2;
        for (unsigned i = 0; i < OWN; i++)
            tagged += i % 3 != 0;
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
        while ((outcomes < tagged || messages < OWN + FOREIGN) && env_now(&env_default) < limit) {
            sluice_event events[8];
            int n = sluice_poll(p.b.loop, events, 3, 0);
            for (int i = 0; i < n; i++) {
                assert_int_equal(events[i].type, SLUICE_SENT);
                assert_int_equal(events[i].status, 0);
                must_data(events[i].tag < 2000 && !seen[events[i].tag]);
                seen[events[i].tag] = true;
                outcomes++;
            }
            messages += (unsigned)sluice_poll(p.a.loop, events, 8, 0);
        }
        must_data_equal(outcomes, tagged);
        must_data_equal(messages, OWN + FOREIGN);
        settle(&p);
        expect_window_empty(&p.b);
    }
    assert_true(loop_totals(p.b.loop)->frames_sent < loop_totals(p.b.loop)->messages_sent);
    pair_close(&p);
}

/* A window smaller than what inline packs hold before one of them would be signalled. */
PAIR_WITH(pair_opened, a_full_window_of_packs_opens_again) {
    struct pair *p = *state;
    unsigned received = 0, sent = 0;
    pair_connect(p, PAIR_LINK(.window_messages = 16));
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (received < 3000 && env_now(&env_default) < limit) {
        sluice_event events[32];
        while (sent < 3000 && pair_send(&p->b, 0, 0, sent % 8 == 7 ? NULL : MORE) == 0)
            sent++;
        sluice_poll(p->b.loop, events, 1, 0);
        received += (unsigned)sluice_poll(p->a.loop, events, 32, 0);
    }
    must_data_equal(received, 3000);
}

PAIR_WITH(pair_connected, a_deadline_leaves_a_message_out_of_its_pack) {
    struct pair *p = *state;
    unsigned late = 0, good = 0;
    sluice_event event;
    struct session *b = pair_session(&p->b);
    uint32_t credits = b->connection->tx.credits;
    b->connection->tx.credits = CREDIT_RESERVE; /* as if the peer had returned none yet */
    uint64_t deadline = pair_now(NULL) + 100000000000ull;
    for (unsigned i = 0; i < 12; i++)
        assert_int_equal(
            pair_send(&p->b, 24, i, SLUICE_SEND(.tag = i + 1, .deadline_ns = i % 3 ? deadline : 0)),
            0);
    pair_clock += 200000000000ull;
    loop_clock(p->b.loop);
    b->connection->tx.credits = credits;
    uint64_t frames = loop_totals(p->b.loop)->frames_sent;
    send_flush(p->b.loop, b);
    assert_int_equal(loop_totals(p->b.loop)->frames_sent, frames + 1);
    for (unsigned i = 0; i < 12; i += 3) {
        event = pair_expect(p, &p->a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 24, i));
    }
    while (late + good < 12) {
        event = pair_expect(p, &p->b, SLUICE_SENT);
        bool timed = (event.tag - 1) % 3 != 0;
        assert_int_equal(event.status, timed ? SLUICE_ETIMEDOUT : 0);
        *(timed ? &late : &good) += 1;
    }
    assert_int_equal(late, 8);
    settle(p);
    expect_window_empty(&p->b);
}

static void echo(const sluice_event *event, void *arg) {
    struct side *side = arg;
    if (event->type == SLUICE_UP)
        side->session = event->session;
    else if (event->type == SLUICE_MESSAGE)
        assert_int_equal(sluice_send(event->session, event->msg, NULL), 0);
}

TEST(answers_to_a_pack_share_a_frame) {
    struct pair p;
    unsigned received = 0;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.handler = echo, .handler_arg = &p.a));
    pair_dial(&p, PAIR_LINK());
    pair_expect(&p, &p.b, SLUICE_UP);
    send_together(&p.b, 40, 64, 7);
    while (received < 40) {
        sluice_event event = pair_expect(&p, &p.b, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 64, 7 + received++));
    }
    assert_int_equal(loop_totals(p.a.loop)->messages_sent, 40);
    assert_int_equal(loop_totals(p.a.loop)->frames_sent, 1);
    pair_close(&p);
}

/* ---- what becomes of the frame ---------------------------------------------------------------- */

PAIR_WITH(pair_connected, an_array_smaller_than_a_pack_gets_the_rest_later) {
    struct pair *p = *state;
    sluice_event events[7];
    unsigned received = 0;
    send_together(&p->b, 60, 33, 1);
    assert_int_equal(pair_send(&p->b, 3000, 61, NULL), 0);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (received < 61 && env_now(&env_default) < limit) {
        int n = sluice_poll(p->a.loop, events, 7, 0);
        for (int i = 0; i < n; i++, received++)
            assert_true(pair_check(events[i].msg, received < 60 ? 33 : 3000, 1 + received));
        if (received > 0 && received < 56)
            assert_int_equal(n, 7);
    }
    must_data_equal(received, 61);
    settle(p);
}

TEST(what_is_kept_or_sent_on_pins_no_frame) {
    enum { COUNT = 30 };
    struct pair p;
    sluice_msg *kept[COUNT];
    unsigned keeps = 0, back = 0;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 64));
    pair_connect(&p, PAIR_LINK(.credits = 64));
    struct session *a = pair_session(&p.a);
    pair_grant_all(&p, pair_session(&p.b), a);
    send_together(&p.b, COUNT * 3, 77, 0);
    for (unsigned i = 0; i < COUNT * 3; i++) {
        sluice_event event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 77, i));
        if (i % 3 == 0) {
            sluice_keep(event.msg);
            kept[keeps++] = event.msg;
        } else if (i % 3 == 1) {
            assert_int_equal(sluice_send(p.a.session, event.msg, MORE), 0);
        }
    }
    assert_int_equal(sluice_poll(p.a.loop, NULL, 0, 0), 0);
    assert_null(a->rx.held.head);
    /* But for the credits that are withheld. */
    assert_int_equal(a->connection->credits.retained, COUNT);
    assert_int_equal(a->connection->rx.queue->posted + a->connection->rx.repost_count +
                         a->connection->credits.retained - a->connection->credits.withheld_due,
                     a->connection->credits.granted + a->connection->rx.queue->spare);
    while (back < COUNT) {
        sluice_event event = pair_expect(&p, &p.b, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 77, 1 + 3 * back++));
    }
    send_together(&p.b, 20, 500, 9); /* the frame is used again, what was kept stays as it was */
    expect_all(&p, &p.a, 20, 500, 9);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_true(pair_check(kept[i], 77, 3 * i));
        sluice_trim(kept[i], 50);
        assert_int_equal(sluice_send(p.a.session, kept[i], NULL), 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        sluice_event event = pair_expect(&p, &p.b, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 50, 3 * i));
    }
    settle(&p);
    expect_window_empty(&p.a);
    pair_close(&p);
}

TEST(without_memory_the_rest_of_a_pack_waits) {
    enum { MAX = 20000 };
    static struct pool_buffer *hoard[MAX];
    struct pair p;
    sluice_msg *kept[20];
    unsigned count = 0, received = 0;
    sluice_event event;
    memset(&p, 0, sizeof p);
    pair_clock = 0;
    pair_open_side(&p.a, PAIR_NODE(.memory_bytes_max = 2 << 20, .message_bytes_max = 65536));
    pair_open_side(&p.b, PAIR_NODE());
    pair_listen(&p, PAIR_LINK(.credits = 4));
    pair_connect(&p, PAIR_LINK(.credits = 4));
    struct pool *pool = p.a.node->rx_pool;
    while (count < MAX && (hoard[count] = pool_get(pool, p.a.loop->rx_cache, 200)))
        count++;
    assert_true(count < MAX);
    send_together(&p.b, 20, 64, 1);
    struct session *a = pair_session(&p.a);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (!a->retry && env_now(&env_default) < limit)
        assert_int_equal(sluice_poll(p.a.loop, &event, 1, 0), 0);
    assert_true(a->retry);
    assert_true(p.a.loop->totals.alloc_stalls > 0);
    while (received < 20 && env_now(&env_default) < limit) {
        if (count > 0)
            pool_put(pool, p.a.loop->rx_cache, hoard[--count]);
        if (sluice_poll(p.a.loop, &event, 1, 0) == 1) {
            assert_true(pair_check(event.msg, 64, 1 + received++));
            sluice_keep(event.msg);
            kept[received - 1] = event.msg;
        }
        pair_turn(&p);
    }
    must_data_equal(received, 20);
    while (count > 0)
        pool_put(pool, p.a.loop->rx_cache, hoard[--count]);
    for (unsigned i = 0; i < 20; i++)
        sluice_free(kept[i]);
    settle(&p);
    pair_close(&p);
}

TEST(without_memory_for_a_pack_each_goes_by_itself) {
    enum { MAX = 20000 };
    static sluice_msg *hoard[MAX];
    struct pair p;
    unsigned count = 0;
    memset(&p, 0, sizeof p);
    pair_clock = 0;
    pair_open_side(&p.a, PAIR_NODE());
    pair_open_side(&p.b, PAIR_NODE(.memory_bytes_max = 2 << 20, .message_bytes_max = 65536));
    pair_listen(&p, PAIR_LINK(.credits = 32));
    pair_connect(&p, PAIR_LINK(.credits = 4));
    struct pool *pool = p.b.node->pool; /* not by sluice_alloc(), that nobody waits for more */
    while (count < MAX && (hoard[count] = message_get(pool, 200)))
        count++;
    assert_true(count > 20 && count < MAX);
    for (size_t bytes = 65000; bytes > 100; bytes /= 2) { /* nor of another class */
        sluice_msg *more;
        while (count < MAX && (more = message_get(pool, bytes)))
            hoard[count++] = more;
    }
    for (unsigned i = 0; i < 10; i++) {
        sluice_msg *msg = hoard[i];
        sluice_trim(msg, 100);
        pair_fill(msg, i);
        assert_int_equal(
            sluice_send(p.b.session, msg, SLUICE_SEND(.tag = i + 1, .flags = SLUICE_MORE)), 0);
    }
    expect_all(&p, &p.a, 10, 100, 0);
    for (unsigned i = 0; i < 10; i++)
        must_data_equal(pair_expect(&p, &p.b, SLUICE_SENT).tag, i + 1);
    for (unsigned i = 10; i < count; i++)
        sluice_free(hoard[i]);
    pair_close(&p);
}

/* Whatever ends while messages of a pack are lent, or wait: all memory comes back, once. */
TEST(a_session_ends_while_its_packs_are_lent) {
    for (unsigned way = 0; way < 6; way++) {
        struct pair p;
        sluice_event events[8];
        sluice_msg *kept = NULL;
        pair_open(&p, PAIR_NODE(), PAIR_LINK());
        pair_connect(&p, PAIR_LINK());
        const struct loop_srq *shared = &p.a.loop->srq;
        assert_true(pool_in_use(p.a.node->rx_pool) > 0);
        send_together(&p.b, 40, 64, 1);
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
        while (sluice_poll(p.a.loop, events, 8, 0) < 8)
            assert_true(env_now(&env_default) < limit);
        if (way & 1)
            sluice_keep(kept = events[3].msg);
        if (way / 2 == 0)
            sluice_hangup(p.a.session, 0);
        else if (way / 2 == 1)
            sluice_hangup(p.b.session, 0);
        else
            session_close(p.a.loop, pair_session(&p.a), SLUICE_REASON_DEVICE_ERROR, 0, "test");
        assert_true(pair_check(events[7].msg, 64, 8)); /* until the next poll */
        while (p.a.closed == 0 && env_now(&env_default) < limit) {
            cm_progress(p.a.node->cm, 0);
            cm_progress(p.b.node->cm, 0);
            int n = sluice_poll(p.a.loop, events, 2, 0);
            for (int i = 0; i < n; i++)
                pair_note(&p.a, &events[i]);
            assert_true(sluice_poll(p.b.loop, NULL, 0, 0) >= 0);
        }
        assert_int_equal(p.a.closed, 1);
        assert_int_equal(sluice_poll(p.a.loop, events, 2, 0), 0);
        assert_int_equal(pool_in_use(p.a.node->pool), 0);
        /* What the loop's shared queue has stays there. */
        assert_int_equal(pool_in_use(p.a.node->rx_pool),
                         shared->next_slot - shared->free_count + (kept ? 1 : 0));
        if (kept)
            assert_true(pair_check(kept, 64, 4));
        sluice_free(kept);
        pair_close(&p);
    }
}
