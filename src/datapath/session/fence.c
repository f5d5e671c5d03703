/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fence.c - operations on memory that were on their way when the connection was lost, and what was accepted behind them.
 *
 * An operation is never repeated. Whether the peer's device has done it is not known before the peer says which frames it has
 * received: a queue pair does in order what it is given, so a frame that was posted behind the operation and has arrived says that
 * it was done. The entries of operations are therefore kept with those of the frames (acknowledged.c, replay.c). Then
 *
 *   a put with such a frame behind it     ends with OK
 *   any other                             ends EUNKNOWN: it was done or not, or what it brought back is lost
 *   what is behind one that does not end
 *   with OK, and has not arrived          ends EFENCED: it may rely on the operation, so it must not arrive
 *
 * What is behind an operation is all that was accepted before the application was told of the loss, sent or not: it cannot tell one
 * from the other. A message of which the peer has the first frame goes on. Frames that are fenced off leave no gap: those
 * that are sent again, or for the first time, have the numbers behind the last one that has arrived.
 *
 * A reply has no outcome here. Its requester, which waits, is told that the request has none (EUNKNOWN there).
 *
 * Owner: the loop's thread.
 */
#include "datapath/session/fence.h"

#include "core/wire/frame.h"
#include "datapath/loop/upward.h"
#include "datapath/rma/one_sided.h"
#include "datapath/rndv/again.h"
#include "datapath/rpc/client.h"
#include "datapath/rpc/server.h"
#include "datapath/session/acknowledged.h"
#include "datapath/session/replay.h"
#include "datapath/tx/coalesce.h"

struct fence {
    uint32_t arrived; /* kept frames still to be looked at that it has */
    uint32_t left;    /* kept frames that are to be sent again */
    bool up;          /* an operation has not ended with OK: what comes now is behind it */
    bool begun;       /* and so is the first frame of the message whose frames come now */
};

static struct sq_entry *entry_at(const struct connection *c, uint32_t at) {
    return &c->sq.entries[at & c->sq.mask];
}

/* ---- the loss ---------------------------------------------------------------------------------- */

static bool is_begun(const struct sluice_msg *msg) {
    return msg && msg->kind == MSG_ONE_SIDED && msg->tx.sent > 0;
}

static void mark(const struct msg_queue *queue) {
    for (struct sluice_msg *msg = queue->head; msg; msg = msg->next)
        msg->flags |= MSG_BEHIND;
}

static void mark_all(struct session *s) {
    mark(&s->tx.queue);
    mark(&s->tx.replies);
    s->resume.fences = false;
}

void fence_begin(struct session *s) {
    const struct connection *c = session_connection(s);
    if (c->rma.posted == 0 && !c->unacked.failed && !is_begun(s->tx.queue.head))
        return;
    s->resume.fences = true;
}

void fence_told(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (!s->resume.fences)
        return;
    mark_all(s);
    if (!mpsc_queue_empty(&l->mailbox.queue))
        s->resume.behind = (uint32_t)session_ref_count(&s->ref) - s->window.foreign_taken;
}

static void unmark(const struct msg_queue *queue) {
    for (struct sluice_msg *msg = queue->head; msg; msg = msg->next)
        msg->flags &= (uint16_t)~MSG_BEHIND;
}

void fence_forget(struct session *s) {
    unmark(&s->tx.queue);
    unmark(&s->tx.replies);
    s->resume.behind = 0;
    s->resume.fences = false;
}

/* ---- what was sent ----------------------------------------------------------------------------- */

/* A request, or the answer to one, that does not reach the peer. */
static void fence_call(struct sluice_loop *l, struct session *s, unsigned type, uint64_t total) {
    if (type == FRAME_REQUEST)
        rpc_client_fenced(l, s, (uint32_t)total);
    else if (type == FRAME_REPLY)
        rpc_server_fenced(l, s, (uint32_t)total, (uint32_t)(total >> 32));
}

static void fence_items(struct sluice_loop *l, struct session *s, const uint8_t *payload,
                        uint32_t bytes) {
    struct coalesce_item item = {0};
    while (item.next < bytes && !coalesce_item_get(&item, payload, bytes, item.next, false))
        fence_call(l, s, item.type, item.total);
}

/* The peer has the first frame of the message that this one is a part of. */
static bool goes_on(struct fence *f, const struct frame *is) {
    bool first = is->flags & FRAME_FIRST;
    if (is->type == FRAME_FRAG && !first)
        return !f->begun;
    f->begun |= first;
    return false;
}

/* A numbered frame is fenced off. */
static void fence_frame(struct sluice_loop *l, struct connection *c, struct sq_entry *entry,
                        const struct frame *is, const uint8_t *payload) {
    struct session *s = c->session;
    const struct sq_entry was = *entry;
    bool last_of_request = (was.bytes >> SQ_WHAT_SHIFT & SQ_WHAT_MASK) == SQ_REQUEST;
    bool first_of_request = is->type == FRAME_REQUEST && (is->flags & FRAME_FIRST);
    if (is->type == FRAME_RTS)
        rndv_again_fenced(l, s, payload);
    else if (is->type == FRAME_COALESCED)
        fence_items(l, s, payload, is->length);
    entry->bytes &= ~SQ_FAILED;
    acknowledged_end(l, c, entry, SLUICE_EFENCED);
    if (last_of_request)
        rpc_client_fenced(l, s, (uint32_t)was.bytes);
    else if (!first_of_request)
        fence_call(l, s, is->type, is->total);
}

static void settle_frame(struct sluice_loop *l, struct connection *c, uint32_t at,
                         struct fence *f) {
    struct sq_entry *entry = entry_at(c, at);
    if (f->arrived > 0) {
        f->arrived--;
        c->unacked.next++;
        acknowledged_end(l, c, entry, SLUICE_OK);
        return;
    }
    const uint8_t *header = replay_header(c, at);
    struct frame is = frame_get(header);
    if (f->up && !goes_on(f, &is))
        fence_frame(l, c, entry, &is, header + FRAME_BYTES);
    else
        f->left++;
}

static void settle_operation(struct sluice_loop *l, struct connection *c, uint32_t at,
                             struct fence *f) {
    struct sq_entry *entry = entry_at(c, at);
    bool refused = entry->bytes & SQ_FAILED; /* the device has never had it */
    bool passed = f->arrived > 0 || (int32_t)(c->unacked.had - at) > 0;
    bool done = passed && one_sided_is_put(entry->msg);
    f->up |= !done;
    entry->bytes &= ~SQ_FAILED;
    acknowledged_end(l, c, entry, done ? SLUICE_OK : refused ? SLUICE_EFENCED : SLUICE_EUNKNOWN);
}

static void settle_sent(struct sluice_loop *l, struct connection *c, struct fence *f) {
    for (uint32_t i = c->sq.head; i != c->sq.tail; i++) {
        f->up |= c->unacked.failed && (int32_t)(i - c->unacked.failed_at) > 0;
        if (entry_at(c, i)->bytes & SQ_NUMBERED)
            settle_frame(l, c, i, f);
        else if (fence_is_operation(entry_at(c, i)))
            settle_operation(l, c, i, f);
    }
    c->unacked.done = c->sq.tail;
}

/* Of the frames that are kept of this connection, how many the peer has. */
static uint32_t arrived_of(const struct connection *c, uint32_t received) {
    uint32_t numbered = 0;
    for (uint32_t i = c->sq.head; i != c->sq.tail; i++)
        numbered += (entry_at(c, i)->bytes & SQ_NUMBERED) != 0;
    uint32_t had = received - (c->unacked.next - 1);
    return (int32_t)had < 0 ? 0 : had < numbered ? had : numbered;
}

/* ---- what was not ------------------------------------------------------------------------------ */

/* Some of its frames were posted, and fenced off. */
static void fence_begun(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    sluice_status status = SLUICE_EFENCED;
    if (msg->kind == MSG_REQUEST) {
        uint32_t id = msg->tx.id;
        rpc_client_completed(l, s, msg, status); /* it ends here, if it was given up */
        rpc_client_fenced(l, s, id);
        return;
    }
    if (msg->kind == MSG_IOV && transfer_cut(msg, &status))
        return;
    finish_unsent(l, s, msg, status); /* a reply: its first frame has said so to the requester */
}

/* Nothing of it was posted. */
static void fence_unsent(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    if (msg->kind == MSG_FRAME)
        fence_items(l, s, msg->data, msg->tx.end);
    else if (msg->kind == MSG_REPLY)
        rpc_server_fenced(l, s, msg->tx.id, 0);
    finish_unsent(l, s, msg, SLUICE_EFENCED);
}

static void settle_queue(struct sluice_loop *l, struct session *s, struct msg_queue *queue,
                         const struct fence *f) {
    struct msg_queue left;
    struct sluice_msg *msg;
    msg_queue_init(&left);
    while ((msg = msg_queue_pop(queue))) {
        bool begun = msg->kind != MSG_FRAME && msg->tx.sent > 0;
        bool behind = msg->flags & MSG_BEHIND;
        msg->flags &= (uint16_t)~MSG_BEHIND;
        if (!f->up || !behind || (begun && !f->begun))
            msg_queue_push(&left, msg);
        else if (begun)
            fence_begun(l, s, msg);
        else
            fence_unsent(l, s, msg);
    }
    if (left.head)
        *queue = left;
}

/* An operation of which some was posted, and the rest is not. */
static void settle_begun(struct sluice_loop *l, struct session *s, struct fence *f) {
    struct sluice_msg *msg = s->tx.queue.head;
    sluice_status status = SLUICE_EUNKNOWN;
    if (!is_begun(msg))
        return;
    msg_queue_pop(&s->tx.queue);
    f->up = true;
    if (!transfer_cut(msg, &status))
        finish_unsent(l, s, msg, status);
}

void fence_settle(struct sluice_loop *l, struct session *s, uint32_t received) {
    struct fence f = {0};
    loop_assert_inside(l);
    for (struct connection *c = s->resume.kept; c; c = c->kept_next) {
        c->tx.acked = received;
        f.arrived += arrived_of(c, received);
    }
    for (struct connection *c = s->resume.kept; c; c = c->kept_next)
        settle_sent(l, c, &f);
    f.up |= s->resume.failed;
    settle_begun(l, s, &f);
    settle_queue(l, s, &s->tx.queue, &f);
    settle_queue(l, s, &s->tx.replies, &f);
    s->resume.behind = 0;
    s->resume.failed = false;
    s->resume.sent = received + f.left;
}
