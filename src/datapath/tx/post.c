/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * post.c - work requests: building them, posting them; and control frames.
 *
 * A message that fits a frame is one work request with one sge: the header lies in front of
 * the payload. A larger one goes as fragments, each with two sges: a header from the session's ring
 * of headers (one place for every entry of the send queue, so a place is free when its entry is)
 * and a slice of the message (fragment.c). Up to LOOP_WR_BATCH requests are posted with one call.
 *
 * Signalling. One in signal_every is signalled, and always the last one whose completion is needed: a tagged
 * send, or a buffer the device still reads. It stands for all before it (send_completion.c).
 *
 * Credits. A data frame leaves tx.reserve untouched; CREDIT and BYE may use it. A CREDIT frame
 * is sent when half of the receives are owed and no data frame goes out that would carry them.
 * Every CREDIT frame returns at least one credit and arrives, so the two sides cannot both be
 * without: the one whose frame arrived last has some.
 *
 * Owner: the loop's thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "datapath/tx/post.h"
#include "core/context.h"
#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/loop/loop.h"
#include "datapath/tx/confirm.h"
#include "datapath/tx/send.h"
#include "datapath/tx/unacked.h"

/* ---- building -------------------------------------------------------------------------------- */

static inline void wr_batch_init(struct wr_batch *batch, bool waited_for) {
    batch->count = batch->done_count = batch->frameless = 0;
    batch->waited_for = waited_for;
}

struct sq_entry *wr_batch_entry(struct session *s, struct sluice_msg *msg, uint64_t bytes,
                                enum sq_what what) {
    struct connection *c = session_connection(s);
    struct sq_entry *entry = &c->sq.entries[c->sq.tail & c->sq.mask];
    entry->msg = msg;
    entry->bytes = bytes | (uint64_t)what << SQ_WHAT_SHIFT;
    c->sq.tail++;
    s->tokens = 0;
    return entry;
}

static struct sq_entry *push_entry(struct session *s, struct sluice_msg *msg, uint64_t bytes) {
    session_connection(s)->tx.credits--;
    return wr_batch_entry(s, msg, bytes, SQ_MESSAGE);
}

struct ibv_send_wr *wr_batch_add(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                 unsigned sges, unsigned flags) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    unsigned n = batch->count++;
    struct ibv_send_wr *wr = &l->send_wr[n];
    wr->wr_id = wr_send_id(c, c->sq.tail);
    wr->sg_list = l->send_sge[n];
    wr->num_sge = (int)sges;
    wr->opcode = IBV_WR_SEND;
    wr->send_flags = flags;
    wr->next = NULL;
    if (n > 0)
        l->send_wr[n - 1].next = wr;
    return wr;
}

void wr_batch_signal(struct session *s, struct wr_batch *batch, struct ibv_send_wr *wr) {
    struct connection *c = session_connection(s);
    if (++c->sq.unsignalled >= c->sq.signal_every) {
        wr->send_flags |= IBV_SEND_SIGNALED;
        c->sq.unsignalled = 0;
        batch->waited_for = false;
    }
}

uint64_t wr_batch_counted(const struct sluice_msg *msg) {
    return msg->size | SQ_COUNTED | (msg->foreign ? SQ_FOREIGN : 0);
}

void wr_batch_whole(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                    struct sluice_msg *msg) {
    loop_assert_inside(l);
    struct connection *c = session_connection(s);
    uint32_t size = (uint32_t)msg->size;
    uint8_t *at = msg->data - FRAME_BYTES;
    bool inlined = size + FRAME_BYTES <= c->sq.inline_max;
    bool keep = msg->tx.tag != 0 || !inlined;
    struct ibv_sge *sge = l->send_sge[batch->count];
    sge[0] = (struct ibv_sge){(uintptr_t)at, size + FRAME_BYTES, msg->lkey};
    struct ibv_send_wr *wr = wr_batch_add(l, s, batch, 1, inlined ? IBV_SEND_INLINE : 0);
    c->tx.sequence++;
    post_header(c, at, FRAME_DATA, 0, size, 0);
    push_entry(s, keep ? msg : NULL, wr_batch_counted(msg));
    if (keep)
        batch->waited_for = true;
    else
        batch->done[batch->done_count++] = msg;
    wr_batch_signal(s, batch, wr);
    l->totals.messages_sent++;
    l->totals.bytes_sent += size;
}

static bool have_headers(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    if (!c->sq.headers) {
        c->sq.headers = message_of(pool_get(l->pool, l->cache, (size_t)c->sq.depth * HEADER_BYTES));
        if (c->sq
                .headers) /* it will not come back while the session lives: see pool_may_return() */
            pool_noted(l->pool, l->cache);
    }
    if (!c->sq
             .headers) /* what is received has to be answered, though nothing is left to send with */
        c->sq.headers =
            message_of(pool_get(l->rx_pool, l->rx_cache, (size_t)c->sq.depth * HEADER_BYTES));
    if (c->sq.headers) {
        c->sq.headers->foreign = false;
        return true;
    }
    if (loop_retry(l, s))
        l->totals.alloc_stalls++;
    return false;
}

uint8_t *wr_batch_header(struct sluice_loop *l, struct session *s, uint32_t *lkey) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if (!have_headers(l, s))
        return NULL;
    *lkey = c->sq.headers->lkey;
    return c->sq.headers->data + (c->sq.tail & c->sq.mask) * HEADER_BYTES;
}

/* ---- posting --------------------------------------------------------------------------------- */

void post_failed(struct sluice_loop *l, struct session *s, uint32_t from, int error) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if (error < 0) /* some providers say it as system calls do */
        error = errno;
    for (uint32_t i = from; i != c->sq.tail; i++)
        c->sq.entries[i & c->sq.mask].bytes |= SQ_FAILED;
    session_post_refused(l, s, error, "send");
}

static inline __attribute__((always_inline)) void
post_as_built(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    struct connection *c = session_connection(s);
    struct ibv_send_wr *last = &l->send_wr[batch->count - 1], *bad = NULL;
    /* An application that waits for the window waits for all of them. */
    if ((batch->waited_for || s->window.waits_writable) &&
        !(last->send_flags & IBV_SEND_SIGNALED)) {
        last->send_flags |= IBV_SEND_SIGNALED;
        c->sq.unsignalled = 0;
    }
    uint32_t first = c->sq.tail - batch->count;
    int error = post_wrs(c, l->send_wr, &bad);
    l->totals.posts++;
    l->totals.send_wrs += batch->count;
    l->totals.frames_sent += batch->count - batch->frameless;
    c->sq.frameless += batch->frameless;
    l->totals_moved = true;
    if (unlikely(error != 0)) {
        uint32_t posted =
            bad >= l->send_wr && bad < l->send_wr + batch->count ? (uint32_t)(bad - l->send_wr) : 0;
        post_failed(l, s, first + posted, error);
    }
    for (unsigned i = 0; i < batch->done_count; i++)
        msg_discard(l, batch->done[i]);
}

/* Where what is posted is looked at before and after. */
static __attribute__((noinline)) void post_followed(struct sluice_loop *l, struct session *s,
                                                    struct wr_batch *batch) {
    struct connection *c = session_connection(s);
    if (connection_keeps(c))
        unacked_batch(l, s, batch->count);
    post_as_built(l, s, batch);
    if (c->confirm.on && s->state < SESSION_RELEASED && session_connection(s) == c)
        confirm_batch(l, s, batch->count); /* else the device refused, and it was lost */
}

static void post_batch(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    if (unlikely(session_connection(s)->sq.follow))
        post_followed(l, s, batch);
    else
        post_as_built(l, s, batch);
}

void wr_batch_begin(struct wr_batch *batch) {
    wr_batch_init(batch, false);
}

void wr_batch_post(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    loop_assert_inside(l);
    if (batch->count > 0)
        post_batch(l, s, batch);
    wr_batch_init(batch, false);
}

bool send_control(struct sluice_loop *l, struct session *s, enum frame_type type) {
    loop_assert_inside(l);
    return send_control_total(l, s, type, 0);
}

bool send_control_total(struct sluice_loop *l, struct session *s, enum frame_type type,
                        uint64_t total) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if (c->tx.credits == 0 || sq_used(c) >= c->sq.depth - 1 || !c->qp)
        return false;
    /* The last place is for an acknowledgement: with all others full on both sides, it is what lets the peer go on. */
    if (unlikely(sq_used(c) >= c->sq.depth - 2) && connection_keeps(c) &&
        c->rx.sequence == c->rx.updated)
        return false;
    struct wr_batch batch;
    uint64_t local[FRAME_BYTES / sizeof(uint64_t)];
    bool inlined = c->sq.inline_max >= FRAME_BYTES;
    bool last = type == FRAME_BYE || type == FRAME_SWITCH; /* whose arrival is awaited */
    wr_batch_init(&batch, last);
    if (!inlined && !have_headers(l, s))
        return false;
    uint8_t *at =
        inlined ? (uint8_t *)local : c->sq.headers->data + (c->sq.tail & c->sq.mask) * HEADER_BYTES;
    l->send_sge[0][0] =
        (struct ibv_sge){(uintptr_t)at, FRAME_BYTES, inlined ? 0 : c->sq.headers->lkey};
    struct ibv_send_wr *wr = wr_batch_add(l, s, &batch, 1, inlined ? IBV_SEND_INLINE : 0);
    post_header(c, at, type, 0, 0, total);
    struct sq_entry *entry = push_entry(s, NULL, 0);
    if (!last)
        wr_batch_signal(s, &batch, wr);
    else if (unlikely(c->confirm.probe_known))
        entry->bytes |= SQ_BEHIND; /* a connection that is closed may take it along */
    s->close.bye_index = c->sq.tail - 1;
    post_batch(l, s, &batch);
    return s->state <= SESSION_LEAVING && session_connection(s) == c;
}

bool send_control_with(struct sluice_loop *l, struct session *s, enum frame_type type,
                       const void *payload, uint32_t bytes) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if (c->tx.credits == 0 || sq_used(c) >= c->sq.depth - 1 || !c->qp ||
        bytes > s->tx.frame_payload)
        return false;
    struct sluice_msg *msg = message_of(pool_get(l->pool, l->cache, bytes));
    if (!msg) /* sessions open and are refused, though nothing is left to send with */
        msg = message_of(pool_get(l->rx_pool, l->rx_cache, bytes));
    if (!msg)
        return false;
    struct wr_batch batch;
    uint8_t *at = msg->data - FRAME_BYTES;
    msg->state = MSG_SENDING;
    msg->tx.tag = 0;
    msg->foreign = false;
    memcpy(msg->data, payload, bytes);
    wr_batch_init(&batch, true); /* the buffer is read until it completes */
    l->send_sge[0][0] = (struct ibv_sge){(uintptr_t)at, bytes + FRAME_BYTES, msg->lkey};
    wr_batch_add(l, s, &batch, 1, 0);
    post_header(c, at, type, 0, bytes, 0);
    struct sq_entry *entry = push_entry(s, msg, 0);
    if (type == FRAME_REFUSE && unlikely(c->confirm.probe_known))
        entry->bytes |= SQ_BEHIND;
    s->close.bye_index = c->sq.tail - 1;
    post_batch(l, s, &batch);
    return s->state <= SESSION_LEAVING && session_connection(s) == c;
}

void send_nothing(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    struct wr_batch batch;
    if (sq_used(c) >= c->sq.limit)
        return; /* there is more on its way already */
    wr_batch_init(&batch, true);
    struct ibv_send_wr *wr = wr_batch_add(l, s, &batch, 0, 0);
    wr->sg_list = NULL;
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->wr.rdma.remote_addr = 0;
    wr->wr.rdma.rkey = 0;
    wr_batch_entry(s, NULL, 0, SQ_MESSAGE);
    batch.frameless++;
    post_batch(l, s, &batch);
}

bool send_marker(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    if (sq_used(c) >= c->sq.depth)
        return false;
    /* An empty inline-less send: in ERR it is never executed, only flushed, after all others. */
    struct ibv_send_wr *bad, wr = {.wr_id = wr_send_id(c, c->sq.tail),
                                   .opcode = IBV_WR_SEND,
                                   .send_flags = IBV_SEND_SIGNALED};
    c->sq.entries[c->sq.tail & c->sq.mask] =
        (struct sq_entry){.bytes = (uint64_t)SQ_MESSAGE << SQ_WHAT_SHIFT};
    l->totals.posts++;
    l->totals.send_wrs++;
    if (post_wrs(c, &wr, &bad) != 0)
        return false;
    c->sq.tail++;
    c->session->tokens = 0;
    return true;
}
