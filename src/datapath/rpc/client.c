/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * client.c - requests of this side: their entries, their outcomes, and what ends them.
 *
 * A request goes through the send queue like a message. When it is posted it takes an entry, and with
 * it room for the reply: a receive that the peer may use without a credit. Its message stays in the
 * entry until the outcome is known: it holds its share of the window, and it is the control block in which
 * an outcome without a reply waits to be delivered. So no outcome needs memory, with one exception:
 * a request given up while the device still reads it moves its outcome to another control block; if there is
 * no memory for that, the outcome comes when the device is done.
 *
 * A request whose outcome was told leaves its entry only when the reply comes, so that a reply can
 * never be taken for that of another request.
 *
 * Counts. Requests that were accepted and have no free entry again are counted apart for the loop's thread and
 * for other threads, like the window (send.c), and bounded by `limit`: so a request that is accepted finds an
 * entry, unless several threads took the last one at once; then it waits in the queue for the next.
 *
 * Owner: the loop's thread, unless a function says otherwise.
 */
#include "datapath/rpc/client.h"

#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/rx/loans.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rndv/rts.h"
#include "datapath/rpc/internal.h"
#include "datapath/rx/credits.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/tx/fragment.h"
#include "datapath/tx/post.h"
#include "datapath/tx/send.h"

/* Any thread that owns the session or holds a reference. NULL: no memory. */
static struct rpc_client *rpc_client_make(struct session *s) {
    struct rpc_client *r = rpc_client_of(s), *expected = NULL;
    if (likely(r != NULL))
        return r;
    r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->limit = r->free_count = s->link_config.requests;
    for (uint32_t i = 0; i < r->limit; i++) {
        r->free[i] = (uint8_t)(r->limit - 1 - i);
        r->pending[i].id = i;
    }
    pthread_mutex_init(&r->lock, NULL);
    if (atomic_compare_exchange_strong(&s->rpc.client, &expected, r))
        return r;
    pthread_mutex_destroy(&r->lock);
    free(r);
    return expected;
}

void rpc_client_forget(struct session *s) {
    struct rpc_client *r = rpc_client_of(s);
    if (r) {
        pthread_mutex_destroy(&r->lock);
        free(r);
    }
    atomic_store_explicit(&s->rpc.client, NULL, memory_order_relaxed);
    free(atomic_load_explicit(&s->rpc.server, memory_order_relaxed));
    atomic_store_explicit(&s->rpc.server, NULL, memory_order_relaxed);
}

/* ---- being accepted -------------------------------------------------------------------------- */

uint32_t rpc_client_count(struct session *s) {
    struct rpc_client *r = rpc_client_of(s);
    return r ? rpc_client_accepted(r) : 0;
}

int rpc_client_admit(struct session *s, const struct send_args *args, bool foreign) {
    if (args->kind == MSG_REPLY)
        return rpc_server_claim(s, args->request_id) ? SLUICE_OK : SLUICE_EINVAL;
    struct rpc_client *r = rpc_client_make(s);
    if (!r)
        return SLUICE_ENOMEM;
    if (foreign) {
        atomic_fetch_add_explicit(&r->foreign, 1, memory_order_relaxed);
        if (likely(rpc_client_accepted(r) <= r->limit))
            return SLUICE_OK;
        atomic_fetch_sub_explicit(&r->foreign, 1, memory_order_relaxed);
        session_waits(s, WAIT_REQUEST_ID);
        atomic_fetch_or_explicit(&s->foreign.waits, WAIT_REQUEST_ID, memory_order_relaxed);
        return SLUICE_EAGAIN;
    }
    if (unlikely(rpc_client_accepted(r) >= r->limit)) {
        r->want = true;
        session_waits(s, WAIT_REQUEST_ID);
        return SLUICE_EAGAIN;
    }
    /* One writer: a plain load and store that others may read. */
    uint32_t own = atomic_load_explicit(&r->own, memory_order_relaxed);
    atomic_store_explicit(&r->own, own + 1, memory_order_relaxed);
    return SLUICE_OK;
}

void rpc_client_admit_undo(struct session *s, const struct send_args *args, bool foreign) {
    if (args->kind == MSG_REPLY) {
        rpc_server_unclaim(s, args->request_id);
        return;
    }
    struct rpc_client *r = rpc_client_of(s);
    if (foreign)
        atomic_fetch_sub_explicit(&r->foreign, 1, memory_order_relaxed);
    else
        atomic_store_explicit(&r->own, atomic_load_explicit(&r->own, memory_order_relaxed) - 1,
                              memory_order_relaxed);
}

static void rpc_client_check_writable(struct sluice_loop *l, struct session *s);

void rpc_client_want(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct rpc_client *r = rpc_client_of(s);
    if (!r)
        return;
    r->want = true;
    rpc_client_check_writable(l, s);
}

static void rpc_client_check_writable(struct sluice_loop *l, struct session *s) {
    struct rpc_client *r = rpc_client_of(s);
    uint32_t count = rpc_client_accepted(r);
    if (!r->want || !session_accepts(s) || (count > 0 && count > r->limit - (r->limit + 3) / 4))
        return;
    r->want = false;
    session_waits_no_more(s, WAIT_REQUEST_ID);
    event_notice(l, s, NOTICE_WRITABLE);
}

/* One that was accepted is through, wholly. */
static void uncount(struct sluice_loop *l, struct session *s, struct rpc_client *r, bool foreign) {
    if (foreign) {
        atomic_fetch_sub_explicit(&r->foreign, 1, memory_order_relaxed);
    } else {
        uint32_t own = atomic_load_explicit(&r->own, memory_order_relaxed);
        atomic_store_explicit(&r->own, own - 1, memory_order_relaxed);
    }
    if (unlikely(r->want))
        rpc_client_check_writable(l, s);
}

void rpc_client_unsent(struct sluice_loop *l, struct session *s, const struct sluice_msg *msg) {
    loop_assert_inside(l);
    uncount(l, s, rpc_client_of(s), msg->foreign);
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Microseconds left, as they travel: RPC_LEFT_LATER is what 32 bits do not hold. */
static uint64_t time_left(struct sluice_loop *l, const struct sluice_msg *msg) {
    if (likely(msg->tx.deadline_ns == 0))
        return 0;
    uint64_t now = loop_clock(l);
    uint64_t left = msg->tx.deadline_ns > now ? (msg->tx.deadline_ns - now + 999) / 1000 : 1;
    loop_deadline(l, msg->tx.deadline_ns);
    return left < RPC_LEFT_LATER ? left : RPC_LEFT_LATER;
}

bool rpc_client_assign(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                       uint64_t *total) {
    loop_assert_inside(l);
    if (msg->kind == MSG_REPLY) {
        rpc_server_assign(s, msg, total);
        return true;
    }
    struct rpc_client *r = rpc_client_of(s);
    if (r->free_count == 0 || !credits_reserve(l, s))
        return false;
    msg->flags |= MSG_BUSY;
    *total = rpc_pending_take(r, msg)->id | time_left(l, msg) << 32;
    return true;
}

/* The reply has come, or never will. */
static inline __attribute__((always_inline)) void pending_free(struct sluice_loop *l,
                                                               struct session *s,
                                                               struct rpc_client *r,
                                                               struct rpc_pending *pending) {
    bool took = r->reserved > 0;
    r->reserved -= took;
    r->taken--;
    r->waiting -= pending->state == RPC_PENDING_WAITING;
    if (unlikely(pending->cancel_due)) {
        s->rpc.cancels--;
        pending->cancel_due = false;
    }
    pending->state = RPC_PENDING_FREE;
    pending->msg = NULL;
    r->free[r->free_count++] = (uint8_t)(pending->id & (RPC_IDS_MAX - 1));
    credits_unreserve(s, took);
    uncount(l, s, r, pending->foreign);
    if (s->tx.queue.head || s->state == SESSION_FLUSHING)
        loop_dirty(l, s);
}

/* The application does not wait for this message any more. */
static void rpc_client_drop(struct sluice_loop *l, struct sluice_msg *msg) {
    if (unlikely(msg->flags & MSG_BUSY))
        msg->flags |= MSG_ORPHAN;
    else
        msg_discard_quick(l, msg);
}

static inline void window_back(struct sluice_loop *l, struct session *s,
                               const struct sluice_msg *msg) {
    window_release(s, 1, msg->size, msg->foreign);
    if (unlikely(s->window.waits_writable))
        send_check_writable(l, s);
}

/* ---- posting --------------------------------------------------------------------------------- */

/* A fragment of one that does not fit a frame. A reply began only with the credits for all of it. */
static enum build_result build_fragment(struct sluice_loop *l, struct session *s,
                                        struct wr_batch *batch, struct sluice_msg *msg) {
    struct connection *c = session_connection(s);
    uint64_t total = 0;
    uint32_t lkey;
    if (msg->kind == MSG_REPLY && c->tx.credits <= c->tx.reserve) {
        session_block(s);
        return BUILD_NONE;
    }
    if (msg->tx.sent == 0 &&
        (!wr_batch_header(l, s, &lkey) || !rpc_client_assign(l, s, msg, &total)))
        return BUILD_NONE;
    return fragment_build(l, s, batch, msg, total);
}

enum build_result rpc_client_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                   struct sluice_msg *msg) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    uint64_t total;
    if (unlikely(msg->size > s->tx.frame_payload))
        return rndv_wanted(s, msg) ? rndv_build(l, s, batch, msg)
                                   : build_fragment(l, s, batch, msg);
    if (!rpc_client_assign(l, s, msg, &total))
        return BUILD_NONE;
    bool reply = msg->kind == MSG_REPLY;
    uint32_t size = (uint32_t)msg->size, bytes = size + FRAME_BYTES;
    uint8_t *at = msg->data - FRAME_BYTES;
    bool inlined = bytes <= c->sq.inline_max;
    l->send_sge[batch->count][0] = (struct ibv_sge){(uintptr_t)at, bytes, msg->lkey};
    struct ibv_send_wr *wr = wr_batch_add(l, s, batch, 1, inlined ? IBV_SEND_INLINE : 0);
    c->tx.sequence++;
    if (reply) {
        post_header(c, at, FRAME_REPLY, FRAME_RESERVED, size, total);
        wr_batch_entry(s, inlined ? NULL : msg, wr_batch_counted(msg), SQ_MESSAGE);
        if (inlined)
            batch->done[batch->done_count++] = msg;
    } else {
        post_header(c, at, FRAME_REQUEST, 0, size, total);
        c->tx.credits--;
        wr_batch_entry(s, inlined ? NULL : msg, msg->tx.id, SQ_REQUEST);
        if (inlined)
            msg->flags &= (uint16_t)~MSG_BUSY;
    }
    if (!inlined)
        batch->waited_for = true;
    wr_batch_signal(s, batch, wr);
    l->totals.messages_sent++;
    l->totals.bytes_sent += size;
    return BUILD_DONE;
}

void rpc_client_copied(struct sluice_msg *msg) {
    msg->flags &= (uint16_t)~MSG_BUSY;
}

void rpc_client_completed(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                          sluice_status status) {
    loop_assert_inside(l);
    msg->flags &= (uint16_t)~MSG_BUSY;
    if (msg->flags & MSG_ORPHAN)
        msg_discard(l, msg);
    else if (msg->flags & MSG_LATE)
        event_outcome(l, s, msg, (sluice_status)msg->outcome.late);
    else if (status == SLUICE_ECLOSED)
        rpc_client_unposted(s, msg->tx.id);
}

void rpc_client_refused(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                        sluice_status status) {
    loop_assert_inside(l);
    struct rpc_client *r = rpc_client_of(s);
    struct rpc_pending *pending = &r->pending[msg->tx.id & (RPC_IDS_MAX - 1)];
    bool taken = pending->state != RPC_PENDING_FREE && pending->id == msg->tx.id;
    bool waited_for = taken && pending->state == RPC_PENDING_WAITING;
    if (waited_for)
        window_back(l, s, msg);
    if (taken)
        pending_free(l, s, r, pending);
    if (!waited_for) {
        rpc_client_completed(l, s, msg, status);
        return;
    }
    msg->flags &= (uint16_t)~MSG_BUSY;
    event_outcome(l, s, msg, status);
}

void rpc_client_fenced(struct sluice_loop *l, struct session *s, uint32_t id) {
    loop_assert_inside(l);
    struct rpc_client *r = rpc_client_of(s);
    struct rpc_pending *pending = &r->pending[id & (RPC_IDS_MAX - 1)];
    struct sluice_msg *msg = pending->msg;
    bool waited_for = pending->state == RPC_PENDING_WAITING;
    if (pending->state == RPC_PENDING_FREE || pending->id != id)
        return;
    if (waited_for)
        window_back(l, s, msg);
    pending_free(l, s, r, pending);
    if (!waited_for)
        return;
    msg->flags &= (uint16_t)~MSG_BUSY;
    event_outcome(l, s, msg, SLUICE_EFENCED);
}

void rpc_client_unposted(struct session *s, uint32_t id) {
    struct rpc_client *r = rpc_client_of(s);
    struct rpc_pending *pending = &r->pending[id & (RPC_IDS_MAX - 1)];
    if (pending->state == RPC_PENDING_WAITING && pending->id == id)
        pending->unposted = true;
}

/* ---- outcomes -------------------------------------------------------------------------------- */

static sluice_status code_status(uint32_t code) {
    if (code == CODE_EXPIRED)
        return SLUICE_ETIMEDOUT;
    if (code == CODE_CANCELLED)
        return SLUICE_ECANCELLED;
    if (code == CODE_ENDED)
        return SLUICE_EUNKNOWN;
    return code == CODE_FAILED ? SLUICE_ENOMEM : SLUICE_EREJECTED;
}

static __attribute__((noinline)) void tell_reply(struct sluice_loop *l, struct session *s,
                                                 struct sluice_msg *msg, uint64_t tag) {
    event_loan(l, s, msg, &(sluice_event){.type = SLUICE_REPLY, .tag = tag});
}

/* An answer without a message. */
static __attribute__((noinline)) void tell_refused(struct sluice_loop *l, struct session *s,
                                                   uint64_t tag, uint32_t code) {
    sluice_event event = {.type = SLUICE_REPLY, .tag = tag, .status = code_status(code)};
    event.vendor = code >= CODE_APPLICATION ? code - CODE_APPLICATION : 0;
    event_plain(l, s, &event);
}

enum recv_result rpc_client_reply_deliver(struct sluice_loop *l, struct session *s,
                                          struct sluice_msg *msg, uint64_t total) {
    loop_assert_inside(l);
    struct rpc_client *r = rpc_client_of(s);
    uint32_t id = (uint32_t)total, code = (uint32_t)(total >> 32);
    struct rpc_pending *pending = r ? &r->pending[id & (RPC_IDS_MAX - 1)] : NULL;
    if (unlikely(!pending || pending->state == RPC_PENDING_FREE || pending->id != id))
        return rpc_broken(l, s, msg, "a reply to no request");
    if (unlikely(code != CODE_REPLY &&
                 (msg->size > 0 || (code > CODE_ENDED && code < CODE_APPLICATION))))
        return rpc_broken(l, s, msg, "a reply with an unknown code, or with a code and more");
    struct sluice_msg *request = pending->msg;
    bool waited_for = pending->state == RPC_PENDING_WAITING;
    uint64_t tag = 0;
    if (likely(waited_for)) {
        tag = request->tx.tag;
        window_back(l, s, request);
        rpc_client_drop(l, request);
    }
    pending_free(l, s, r, pending);
    if (likely(waited_for && code == CODE_REPLY && event_is_polled(l, s))) {
        event_lend(l, s, msg, SLUICE_REPLY)->tag = tag;
        return RECV_DONE;
    }
    if (waited_for && code == CODE_REPLY) {
        tell_reply(l, s, msg, tag);
        return RECV_DONE;
    }
    event_return(l, msg);
    if (waited_for)
        tell_refused(l, s, tag, code);
    return RECV_DONE;
}

enum recv_result rpc_client_reply_take(struct sluice_loop *l, struct session *s,
                                       struct sluice_msg *msg) {
    loop_assert_inside(l);
    if (unlikely(!(msg->rx.frame_flags & FRAME_RESERVED)))
        return rpc_broken(l, s, msg, "a reply that takes a credit");
    return rpc_client_reply_deliver(l, s, msg, msg->rx.total);
}

bool rpc_client_reserved(struct session *s) {
    struct rpc_client *r = rpc_client_of(s);
    if (unlikely(!r || r->reserved >= r->taken))
        return false;
    r->reserved++;
    return true;
}

bool rpc_client_reserve_again(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    struct rpc_client *r = rpc_client_of(s);
    loop_assert_inside(l);
    uint32_t awaited = r ? r->taken - r->reserved : 0;
    if (awaited > 0 && recv_queue_spare(l, c, awaited, RECV_REPLY) < awaited)
        return false;
    c->rx.queue->spare -= awaited;
    c->recv.reserved = r ? r->taken : 0;
    return true;
}

uint32_t rpc_client_arrived(struct session *s) {
    struct rpc_client *r = rpc_client_of(s);
    return r ? r->reserved : 0;
}

void rpc_client_give_up(struct sluice_loop *l, struct session *s, struct rpc_client *r,
                        struct rpc_pending *pending, sluice_status status) {
    loop_assert_inside(l);
    struct sluice_msg *msg = pending->msg, *carrier = msg;
    pending->state = RPC_PENDING_DEAD;
    pending->msg = NULL;
    r->waiting--;
    window_back(l, s, msg);
    if (s->state == SESSION_FLUSHING)
        loop_dirty(l, s);
    if (msg->flags & MSG_BUSY) {
        carrier = message_of(pool_get(l->pool, l->cache, 0));
        if (!carrier) {
            msg->flags |= MSG_LATE;
            msg->outcome.late = status;
            return;
        }
        msg->flags |= MSG_ORPHAN;
        carrier->state = MSG_SENDING;
        carrier->kind = MSG_REQUEST;
        carrier->tx.tag = msg->tx.tag;
        carrier->tx.session_id = msg->tx.session_id;
    }
    event_outcome(l, s, carrier, status);
}

void rpc_client_expire(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct rpc_client *r = rpc_client_of(s);
    for (uint32_t i = 0; i < r->limit && r->waiting > 0; i++) {
        struct rpc_pending *pending = &r->pending[i];
        if (pending->state != RPC_PENDING_WAITING || pending->deadline_ns == 0)
            continue;
        if (l->now_ns >= pending->deadline_ns)
            rpc_client_give_up(l, s, r, pending, SLUICE_ETIMEDOUT);
        else
            loop_deadline(l, pending->deadline_ns);
    }
}

bool rpc_client_pending(struct session *s) {
    struct rpc_client *r = rpc_client_of(s);
    return (r && r->waiting > 0) || rpc_server_due(s) ||
           (atomic_load_explicit(&s->ref, memory_order_acquire) & SESSION_REF_REQUESTS);
}

void rpc_client_end(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct rpc_client *r = rpc_client_of(s);
    for (uint32_t i = 0; r && i < r->limit; i++) {
        struct rpc_pending *pending = &r->pending[i];
        if (pending->state == RPC_PENDING_WAITING) {
            pending->msg->flags = 0; /* there is no queue pair that could read it */
            window_release(s, 1, pending->msg->size, pending->foreign);
            event_outcome(l, s, pending->msg, pending->unposted ? SLUICE_ECLOSED : SLUICE_EUNKNOWN);
        }
        pending->msg = NULL;
        pending->state = RPC_PENDING_DEAD;
    }
    if (r)
        r->waiting = 0;
    s->rpc.cancels = 0;
}
