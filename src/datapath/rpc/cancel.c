/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cancel.c - giving requests up, and telling the peer.
 *
 * A request that is not posted leaves the queue. One that is posted has its outcome at once, and CANCEL goes to the
 * peer as soon as a credit can be spared; if the reply is faster, CANCEL does not go.
 *
 * Giving up from another thread. The tag goes into a list under a lock, and one message tells the loop
 * that the list is not empty. The loop looks at a tag only when the message has come round once
 * more: then everything that was accepted before the call has left the mailbox.
 *
 * Owner: the loop's thread; sluice_cancel() is for any thread.
 */
#include <string.h>

#include "datapath/rpc/cancel.h"
#include "core/context.h"
#include "core/wire/frame.h"
#include "datapath/loop/loop.h"
#include "datapath/rpc/internal.h"
#include "datapath/tx/post.h"
#include "core/forked.h"

void rpc_cancel_flush(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    struct rpc_client *r = rpc_client_of(s);
    for (uint32_t i = 0; i < r->limit && s->rpc.cancels > 0; i++) {
        struct rpc_pending *pending = &r->pending[i];
        if (!pending->cancel_due)
            continue;
        /* It may return no credit, so unlike CREDIT it must leave some. */
        if (c->tx.credits <= c->tx.reserve || sq_used(c) >= c->sq.limit)
            return;
        pending->cancel_due = false;
        s->rpc.cancels--;
        if (!send_control_total(l, s, FRAME_CANCEL, pending->id))
            return;
    }
}

/* Not posted yet: they leave the queue. */
static void cancel_queued(struct sluice_loop *l, struct session *s, uint64_t tag) {
    struct msg_queue left;
    struct sluice_msg *msg;
    msg_queue_init(&left);
    while ((msg = msg_queue_pop(&s->tx.queue)))
        if (msg->kind == MSG_REQUEST && msg->tx.tag == tag && msg->tx.sent == 0)
            finish_unsent(l, s, msg, SLUICE_ECANCELLED);
        else
            msg_queue_push(&left, msg);
    if (left.head)
        s->tx.queue = left;
}

static void cancel(struct sluice_loop *l, struct session *s, uint64_t tag) {
    struct rpc_client *r = rpc_client_of(s);
    if (!r || s->state < SESSION_DOWN || s->state > SESSION_FLUSHING)
        return;
    cancel_queued(l, s, tag);
    for (uint32_t i = 0; i < r->limit && r->waiting > 0; i++) {
        struct rpc_pending *pending = &r->pending[i];
        if (pending->state != RPC_PENDING_WAITING || pending->msg->tx.tag != tag)
            continue;
        pending->cancel_due = true;
        s->rpc.cancels++;
        session_disturb(s);
        rpc_client_give_up(l, s, r, pending, SLUICE_ECANCELLED);
    }
    loop_dirty(l, s);
}

void rpc_cancel_take_msg(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct rpc_client *r = rpc_client_of(s);
    uint64_t tags[CANCELS_MAX];
    uint32_t due = 0, left = 0;
    if (r) {
        /* Tags in the list now may be looked at when this message has come round again. */
        pthread_mutex_lock(&r->lock);
        due = r->cancel_ripe;
        memcpy(tags, r->cancel, due * sizeof *tags);
        r->cancel_count -= due;
        memmove(r->cancel, r->cancel + due, r->cancel_count * sizeof *tags);
        left = r->cancel_ripe = r->cancel_count;
        pthread_mutex_unlock(&r->lock);
    }
    session_ref_clear(&s->ref, SESSION_REF_REQUESTS);
    if (r && left == 0) { /* or came since, from a thread that found the bit set */
        pthread_mutex_lock(&r->lock);
        left = r->cancel_count;
        pthread_mutex_unlock(&r->lock);
    }
    if (left > 0 && session_ref_set(&s->ref, SESSION_REF_REQUESTS))
        loop_post(l, s, LOOP_MSG_REQUESTS);
    for (uint32_t i = 0; i < due; i++)
        cancel(l, s, tags[i]);
    s->rpc.answers = rpc_server_due(s);
    loop_dirty(l, s);
}

static void cancel_foreign(struct session *s, uint64_t tag) {
    struct rpc_client *r = rpc_client_of(s);
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    bool noted = r->cancel_count < CANCELS_MAX;
    if (noted)
        r->cancel[r->cancel_count++] = tag;
    pthread_mutex_unlock(&r->lock);
    if (noted && session_ref_set(&s->ref, SESSION_REF_REQUESTS))
        loop_post(session_mail(s), s, LOOP_MSG_REQUESTS);
}

void sluice_cancel(sluice_session handle, uint64_t tag) {
    struct session *s = forked_id(handle.id) ? NULL : session_table_find(handle.id);
    if (!s || !session_ref_tryget(&s->ref, (uint32_t)handle.id, 0, 0))
        return;
    struct sluice_loop *l = atomic_load_explicit(&s->loop, memory_order_relaxed);
    bool nested;
    if (l && loop_enter(l, &nested)) {
        cancel(l, s, tag);
        if (!nested) /* the thread that next sleeps on the descriptor must see the outcome */
            wakeup_signal_flag(&l->mailbox.wakeup);
        loop_leave(l, nested);
    } else {
        cancel_foreign(s, tag);
    }
    session_ref_put(&s->ref);
}
