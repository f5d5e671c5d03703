/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * flush.c - posts what a session has queued: each message by the code that knows its kind, as far as credits and room go.
 *
 * Owner: the loop's thread.
 */
#include "core/context.h"
#include "datapath/loop/events.h"
#include "datapath/rma/one_sided.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rndv/rts.h"
#include "datapath/rpc/cancel.h"
#include "datapath/rpc/client.h"
#include "datapath/rpc/server.h"
#include "datapath/rx/credits.h"
#include "datapath/tx/coalesce.h"
#include "datapath/tx/confirm.h"
#include "datapath/tx/fragment.h"
#include "datapath/tx/iov.h"
#include "datapath/tx/post.h"
#include "datapath/tx/send.h"
#include "datapath/tx/unacked.h"

void finish_unsent(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   sluice_status status) {
    loop_assert_inside(l);
    uint32_t count = msg->kind == MSG_FRAME ? (uint32_t)msg->tx.items - msg->tx.requests : 1;
    window_release(s, count, msg->size, msg->foreign);
    msg->flags &= (uint16_t)~MSG_BEHIND;
    if (msg->kind == MSG_FRAME)
        coalesce_unsent(l, s, msg);
    if (msg->kind == MSG_REQUEST)
        rpc_client_unsent(l, s, msg);
    if (msg->kind == MSG_IOV || msg->kind == MSG_ONE_SIDED)
        iov_regions_done(msg);
    if (msg->kind == MSG_ONE_SIDED)
        msg->outcome.value = 0;
    if (msg->tx.tag || msg->kind == MSG_REQUEST)
        event_outcome(l, s, msg, status);
    else
        msg_discard(l, msg);
}

static enum build_result build_frames(struct sluice_loop *l, struct session *s,
                                      struct wr_batch *batch, struct sluice_msg *msg) {
    if (msg->size <= s->tx.frame_payload) {
        wr_batch_whole(l, s, batch, msg);
        return BUILD_DONE;
    }
    if (rndv_wanted(s, msg))
        return rndv_build(l, s, batch, msg);
    return fragment_build(l, s, batch, msg, msg->size);
}

enum build_result wr_batch_message(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                   struct sluice_msg *msg) {
    loop_assert_inside(l);
    switch ((enum msg_kind)msg->kind) {
    case MSG_PLAIN:
        return build_frames(l, s, batch, msg);
    case MSG_REQUEST:
    case MSG_REPLY:
        return rpc_client_build(l, s, batch, msg);
    case MSG_IOV:
        return iov_build(l, s, batch, msg);
    case MSG_ONE_SIDED:
        return one_sided_build(l, s, batch, msg);
    case MSG_FRAME: /* coalesce_build() */
        break;
    }
    return BUILD_NONE; /* cannot be */
}

/* Whether a coalesced frame begins with this message: it and the next are small, and nothing else is in the way. */
static inline bool may_coalesce(const struct session *s, const struct sluice_msg *msg) {
    return msg->kind == MSG_FRAME ||
           (msg->next && coalesce_accepts(s, msg) && coalesce_accepts(s, msg->next));
}

/* Replies: no credit is needed, so nothing but room holds them up. */
static void build_replies(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    struct connection *c = session_connection(s);
    struct sluice_msg *msg;
    if (unlikely(s->rpc.answers))
        rpc_server_flush(l, s, batch);
    while (batch->count < l->wr_batch_max && (msg = s->tx.replies.head) &&
           sq_used(c) < c->sq.limit) {
        enum build_result built = may_coalesce(s, msg) ? coalesce_build(l, s, batch, &s->tx.replies)
                                                       : wr_batch_message(l, s, batch, msg);
        if (built == BUILD_NONE)
            return;
        if (built == BUILD_DONE)
            msg_queue_pop(&s->tx.replies);
    }
}

/* Replies first: what stops the fragments of one stops those of other messages too, so they do not mix. */
static void build(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    struct connection *c = session_connection(s);
    struct sluice_msg *msg;
    if (s->tx.replies.head || s->rpc.answers)
        build_replies(l, s, batch);
    while (batch->count < l->wr_batch_max && (msg = s->tx.queue.head)) {
        if (msg->tx.deadline_ns && msg->tx.sent == 0 && l->now_ns >= msg->tx.deadline_ns) {
            finish_unsent(l, s, msg_queue_pop(&s->tx.queue), SLUICE_ETIMEDOUT);
            continue;
        }
        if (c->tx.credits <= c->tx.reserve && msg->kind != MSG_ONE_SIDED) {
            l->totals.credit_stalls += !c->tx.stalled;
            c->tx.stalled = true;
            return;
        }
        if (sq_used(c) >= c->sq.limit)
            return;
        c->tx.stalled = c->tx.credits <= c->tx.reserve && c->tx.stalled;
        enum build_result built = may_coalesce(s, msg) ? coalesce_build(l, s, batch, &s->tx.queue)
                                                       : wr_batch_message(l, s, batch, msg);
        if (built == BUILD_NONE)
            return;
        if (built == BUILD_DONE)
            msg_queue_pop(&s->tx.queue);
    }
}

/* ---- posting --------------------------------------------------------------------------------- */

void send_flush(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if (s->state == SESSION_UP || s->state == SESSION_FLUSHING) {
        if (s->rndv)
            rndv_flush(l, s);
        while (s->tx.queue.head || s->tx.replies.head || s->rpc.answers) {
            struct wr_batch batch;
            wr_batch_begin(&batch);
            build(l, s, &batch);
            unsigned built = batch.count;
            if (built == 0)
                break;
            wr_batch_post(l, s, &batch);
            if (built < l->wr_batch_max || s->state > SESSION_FLUSHING)
                break;
        }
        /* An entry is a message or more: more of them than unsignalled messages have a signalled one among them. */
        if (unlikely(s->window.wants_signal) && c->sq.unsignalled > 0 &&
            c->sq.tail - unacked_done(c) <= c->sq.unsignalled)
            send_nothing(l, s);
        s->window.wants_signal = false;
    }
    if (unlikely(s->rpc.cancels) && (s->state == SESSION_UP || s->state == SESSION_FLUSHING))
        rpc_cancel_flush(l, s);
    if (s->state < SESSION_UP || s->state > SESSION_LEAVING || s->close.bye_posted)
        return;
    if (unlikely(c->credits.returned))
        credits_return(l, s);
    if (credits_update_due(c))
        send_control(l, s, FRAME_CREDIT);
}
