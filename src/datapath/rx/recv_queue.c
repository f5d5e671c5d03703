/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * recv_queue.c - receive buffers: taken from the reserve, posted, given back, posted again.
 *
 * A queue of receives is a connection's own, or shared by connections of the loop. These rules hold
 * for both. Every receive the device has is one of three: a credit (of rx.granted or rx.unreported of some
 * connection), reserved for the reply of a request (recv.reserved), or spare. So the peers together can
 * never use more than is posted.
 *
 * A buffer on its way back says by its owner and flags what it becomes once it is posted: a credit
 * of its connection; with MSG_RESERVED a spare receive; and without an owner nothing, because what it
 * took was never given out (srq.c).
 *
 * Owner: the loop's thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "datapath/rx/recv_queue.h"
#include "core/wire/frame.h"
#include "datapath/loop/discard.h"
#include "core/context.h"
#include "datapath/loop/loop.h"
#include "datapath/rx/landing.h"
#include "datapath/rpc/client.h"
#include "datapath/rx/credits.h"
#include "datapath/rx/retain.h"
#include "datapath/rx/srq.h"
#include "datapath/loop/upward.h"

#define ASSERTED_SESSIONS 16 /* of loops with more, nothing is counted */

_Static_assert(FRAME_BYTES <= POOL_HEADER, "the header fits in front");

void recv_buffer_put(struct sluice_loop *l, struct sluice_msg *msg) {
    loop_assert_inside(l);
    if (msg->flags & MSG_SHARED)
        srq_forget(l, msg->rx.srq_slot);
    if (msg->flags & MSG_RX)
        atomic_fetch_sub_explicit(pool_note(msg->pool), 1, memory_order_relaxed);
    msg->owner = NULL;
    msg->flags = 0;
    msg_discard(l, msg);
}

struct sluice_msg *recv_buffer_get(struct pool *pool, struct pool_cache *cache, uint32_t bytes) {
    struct sluice_msg *msg = message_of(pool_get(pool, cache, bytes));
    if (!msg)
        return NULL;
    atomic_fetch_add_explicit(pool_note(pool), 1, memory_order_relaxed);
    msg->state = MSG_RECEIVE;
    msg->flags = MSG_RX;
    msg->foreign = false;
    return msg;
}

/* Into the queue of this connection; NULL: no memory, or no place. */
static struct sluice_msg *fresh(struct sluice_loop *l, struct connection *c) {
    struct sluice_msg *msg = recv_buffer_get(l->rx_pool, l->rx_cache, c->recv.frame_bytes);
    if (!msg)
        return NULL;
    if (c->rx.queue->srq && !srq_enter(l, msg)) {
        recv_buffer_put(l, msg);
        return NULL;
    }
    msg->owner = c;
    return msg;
}

void recv_queue_retry(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    l->totals.alloc_stalls++;
    l->totals_moved = true;
    (void)loop_retry(l, s);
}

/* ---- posting --------------------------------------------------------------------------------- */

/*
 * True: not to be posted, because its credit is withheld, or comes from what is spare; or because it was
 * reserved for a reply and took part of no count since: where a session has its own receives, others may have
 * been posted in its place meanwhile, and the queue has room for what was counted only. `spares`: reserved
 * ones of the same list that are not counted yet.
 */
static inline bool is_excess(struct sluice_loop *l, struct recv_queue *q, struct sluice_msg *msg,
                             unsigned spares) {
    struct connection *c = msg->owner;
    if (!c)
        return false;
    c->rx.repost_count--;
    bool credit = !(msg->flags & MSG_RESERVED);
    if (likely(credit && (int32_t)c->credits.withheld_due <= 0 && q->spare <= q->spare_max))
        return false;
    if (credit && unlikely((int32_t)c->credits.withheld_due > 0) && retain_may_withhold(c)) {
        c->credits.withheld_due--;
    } else if (unlikely(q->spare > q->spare_max)) {
        q->spare -= credit;
        c->rx.unreported += credit;
    } else if (credit || q->srq ||
               c->credits.granted + c->recv.reserved + q->spare + spares < q->depth) {
        return false;
    }
    recv_buffer_put(l, msg);
    return true;
}

/* Records the receives that the device may lose: it uses them in the order in which they are posted. */
static void leave_trail(const struct sluice_loop *l, struct recv_queue *q, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        q->trail[q->trail_next] = (struct sluice_msg *)(uintptr_t)l->recv_wr[i].wr_id;
        q->trail_next = q->trail_next + 1 < q->depth ? q->trail_next + 1 : 0;
    }
}

/* It is posted. Connections other than `self` are told that they may have to tell. */
static inline void count_posted(struct sluice_loop *l, struct recv_queue *q, struct sluice_msg *msg,
                                const struct connection *self) {
    struct connection *c = msg->owner;
    if (unlikely(msg->flags & MSG_RESERVED)) {
        msg->flags &= (uint16_t)~MSG_RESERVED;
        q->spare++;
    } else if (likely(c != NULL)) {
        c->rx.unreported++;
        if (c != self && credits_update_due(c))
            loop_dirty(l, c->session);
    }
    if (q->srq)
        msg->owner = NULL; /* whose it is, is known when a frame arrives */
}

static inline int post_own(struct sluice_loop *l, struct recv_queue *q, unsigned count,
                           struct ibv_recv_wr **bad) {
    if (unlikely(q->trail != NULL))
        leave_trail(l, q, count);
    return ibv_post_recv(q->qp, l->recv_wr, bad);
}

/* How many of them were posted. */
static unsigned post_failed_at(const struct sluice_loop *l, struct recv_queue *q, unsigned count,
                               const struct ibv_recv_wr *bad) {
    bool known = bad >= l->recv_wr && bad < l->recv_wr + count;
    unsigned posted = known ? (unsigned)(bad - l->recv_wr) : 0;
    if (q->trail)
        q->trail_next = (q->trail_next + q->depth - (count - posted)) % q->depth;
    return posted;
}

/* Posts some of the repost list; false and errno when the device refused. */
static bool post_some(struct sluice_loop *l, struct recv_queue *q, const struct connection *self) {
    unsigned n = 0, spares = 0;
    struct sluice_msg *msg;
    while (n < l->recv_max && (msg = q->repost)) {
        q->repost = msg->next;
        if (is_excess(l, q, msg, spares))
            continue;
        spares += (msg->flags & MSG_RESERVED) != 0;
        l->recv_sge[n].addr = (uintptr_t)(msg->data - FRAME_BYTES);
        l->recv_sge[n].lkey = msg->lkey;
        l->recv_wr[n].wr_id = (uintptr_t)msg;
        n++;
    }
    if (n == 0)
        return true;
    struct ibv_recv_wr *bad = NULL, *last = &l->recv_wr[n - 1];
    last->next = NULL;
    int error = q->srq ? ibv_post_srq_recv(q->srq, l->recv_wr, &bad) : post_own(l, q, n, &bad);
    int why = error < 0 ? errno : error; /* some providers say it as system calls do */
    if (n < LOOP_WR_BATCH)
        last->next = last + 1;
    l->totals.receive_posts++;
    l->totals.receive_wrs += n;
    unsigned posted = n;
    if (unlikely(error != 0))
        posted = post_failed_at(l, q, n, bad);
    q->posted += posted;
    for (unsigned i = 0; i < posted; i++)
        count_posted(l, q, (struct sluice_msg *)(uintptr_t)l->recv_wr[i].wr_id, self);
    for (unsigned i = posted; i < n; i++)
        recv_buffer_put(l, (struct sluice_msg *)(uintptr_t)l->recv_wr[i].wr_id);
    if (unlikely(error != 0))
        errno = why;
    return error == 0;
}

void recv_queue_prepare(struct sluice_loop *l) {
    loop_assert_inside(l);
    for (unsigned i = 0; i < LOOP_WR_BATCH; i++) {
        l->recv_sge[i].length = 1u << l->node->options.eager_log2;
        l->recv_wr[i] =
            (struct ibv_recv_wr){.sg_list = &l->recv_sge[i],
                                 .num_sge = 1,
                                 .next = i + 1 < LOOP_WR_BATCH ? &l->recv_wr[i + 1] : NULL};
    }
}

bool recv_queue_post(struct sluice_loop *l, struct recv_queue *q, const struct connection *self) {
    loop_assert_inside(l);
    q->waiting = 0;
    while (q->repost)
        if (!post_some(l, q, self))
            return false;
    if (q->srq)
        srq_arm(l);
    return true;
}

/* Behind recv_queue_post(): errno says why. */
static void refused(struct sluice_loop *l, const struct recv_queue *q) {
    int error = errno;
    for (struct session *s = l->sessions; s; s = s->next)
        if (session_connection(s)->rx.queue == q)
            session_post_refused(l, s, error, "receive");
}

void recv_queue_repost(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    if (!connection_takes_receives(c))
        return;
    while (c->recv.missing > 0) {
        struct sluice_msg *msg = fresh(l, c);
        if (!msg) {
            recv_queue_retry(l, c->session);
            break;
        }
        c->recv.missing--;
        c->rx.repost_count++;
        msg->next = c->rx.queue->repost;
        c->rx.queue->repost = msg;
    }
    if (c->rx.queue->repost && !recv_queue_post(l, c->rx.queue, c)) {
        refused(l, c->rx.queue);
        return;
    }
    if (c->credits.low > 0 && (c->rx.granted < c->credits.low || credits_are_used(c)))
        credits_grow(l, c);
    credits_publish(c);
}

/* ---- spare receives -------------------------------------------------------------------------- */

/* What receives may take of the reserve, in sixteenths. */
static const uint8_t sixteenths[] = {
    [RECV_FIRST] = 16, [RECV_REPLY] = 12, [RECV_NEEDED] = 8, [RECV_SPEED] = 8};

/*
 * How many more receives the reserve allows for that. What each of sessions_max sessions needs for its first ones is not for speed, nor
 * are those that lie spare in this queue, as they may be of sessions that are over.
 */
static uint32_t reserve_allows(const struct sluice_loop *l, const struct recv_queue *q,
                               enum recv_purpose purpose) {
    const sluice_node *n = l->node;
    uint64_t max = n->frames_max, most = max * sixteenths[purpose] / 16;
    uint64_t now = atomic_load_explicit(pool_note(l->rx_pool), memory_order_relaxed);
    uint64_t sessions = n->options.sessions_max;
    uint64_t primed = atomic_load_explicit(&n->primed, memory_order_relaxed);
    uint64_t promised = sessions > primed ? (sessions - primed) * CREDITS_INITIAL : 0;
    if (purpose == RECV_SPEED && most > max - (promised < max ? promised : max))
        most = max - (promised < max ? promised : max);
    now -= purpose == RECV_SPEED && q->spare <= now ? q->spare : 0;
    return now < most ? (uint32_t)(most - now) : 0;
}

static uint32_t own_room(const struct connection *c) {
    const struct recv_queue *q = c->rx.queue;
    uint32_t used = c->credits.granted + c->recv.reserved + q->spare;
    return q->depth > used ? q->depth - used : 0;
}

uint32_t recv_queue_spare(struct sluice_loop *l, struct connection *c, uint32_t want,
                          enum recv_purpose purpose) {
    loop_assert_inside(l);
    struct recv_queue *q = c->rx.queue;
    uint32_t spare_max = q->spare_max;
    uint32_t allowed = purpose == RECV_SPEED ? reserve_allows(l, q, purpose) : want;
    want = want < allowed ? want
                          : allowed; /* other loops take from the reserve, and return, meanwhile */
    if (q->spare >= want)
        return want;
    q->spare_max = UINT32_MAX; /* just now they are wanted */
    if (q->repost && !recv_queue_post(l, q, c))
        refused(l, q);
    uint32_t more = q->spare < want ? want - q->spare : 0;
    if (!q->srq && more > own_room(c))
        more = own_room(c);
    while (more > 0 && reserve_allows(l, q, purpose) > 0 && connection_takes_receives(c)) {
        struct sluice_msg *msg = fresh(l, c);
        if (!msg)
            break;
        msg->flags |= MSG_RESERVED;
        c->rx.repost_count++;
        msg->next = q->repost;
        q->repost = msg;
        more--;
    }
    if (q->repost && !recv_queue_post(l, q, c))
        refused(l, q);
    q->spare_max = spare_max;
    return q->spare < want ? q->spare : want;
}

bool recv_queue_prime(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    if (recv_queue_spare(l, c, CREDITS_INITIAL, RECV_FIRST) < CREDITS_INITIAL)
        return false;
    c->recv.primed = true;
    atomic_fetch_add_explicit(&l->node->primed, 1, memory_order_relaxed);
    c->rx.queue->spare -= CREDITS_INITIAL;
    c->rx.granted = c->credits.granted = CREDITS_INITIAL;
    return true;
}

void recv_queue_unprime(struct connection *c) {
    if (c->recv.primed)
        atomic_fetch_sub_explicit(&c->session->node->primed, 1, memory_order_relaxed);
    c->recv.primed = false;
}

bool recv_queue_is_out(struct connection *c, const struct sluice_msg *msg) {
    struct recv_queue *q = &c->recv.own;
    if (!q->trail)
        return false;
    uint32_t oldest = (q->trail_next + q->depth - q->posted % q->depth) % q->depth;
    for (uint32_t i = 0, at = oldest; i < q->posted; i++, at = at + 1 < q->depth ? at + 1 : 0) {
        if (q->trail[at] != msg)
            continue;
        q->trail[at] = q->trail[oldest]; /* mostly itself: receives complete in order */
        q->trail[oldest] = (struct sluice_msg *)(uintptr_t)msg;
        return true;
    }
    return false;
}

void recv_queue_swallowed(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    struct recv_queue *q = &c->recv.own;
    while (q->trail && q->posted > 0) {
        q->trail_next = (q->trail_next ? q->trail_next : q->depth) - 1;
        q->posted--;
        recv_buffer_put(l, q->trail[q->trail_next]);
    }
}

void recv_queue_forget(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    struct sluice_msg *msg;
    while ((msg = c->recv.own.repost)) {
        c->recv.own.repost = msg->next;
        recv_buffer_put(l, msg);
    }
    c->rx.repost_count = 0;
}

/* ---- what adds up ---------------------------------------------------------------------------- */

uint32_t recv_queue_reserved(const struct connection *c) {
    struct session *s = c->session;
    if (session_connection(s) != c || s->state == SESSION_DOWN)
        return c->recv.reserved; /* those that arrived were never among them, or are not any more */
    return c->recv.reserved - rpc_client_arrived(s);
}

/* The posted receives that the connections of this queue count as theirs. */
static uint32_t claimed(const struct sluice_loop *l, const struct recv_queue *q) {
    uint32_t sum = q->spare;
    for (struct session *s = l->sessions; s; s = s->next)
        for (const struct connection *c = session_connection(s); c; c = c->next)
            if (c->rx.queue == q && c->qp)
                sum += c->rx.granted + c->rx.unreported + recv_queue_reserved(c) - c->early_count;
    return sum;
}

/* While it connects the device may end its queue pair (session_wc_error): with the next try it has a new one. */
static bool may_be_flushed(const struct connection *c) {
    const struct session *s = c->session;
    return s->state == SESSION_OPENING && !s->adopted && !c->rx.queue->srq;
}

void recv_queue_assert_conserved(struct sluice_loop *l) {
    loop_assert_inside(l);
    unsigned count = 0;
    if (!ASSERTIONS || l->lost)
        return;
    for (struct session *s = l->sessions; s; s = s->next)
        if (++count > ASSERTED_SESSIONS || s->state > SESSION_UP)
            return;
    for (struct session *s = l->sessions; s; s = s->next)
        for (const struct connection *c = session_connection(s); c; c = c->next)
            if (c->qp && !c->drain.began && !c->drain.asked && !may_be_flushed(c))
                ASSERT(c->rx.queue->posted == claimed(l, c->rx.queue));
}
