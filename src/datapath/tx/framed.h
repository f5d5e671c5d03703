/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * framed.h - the path of nearly every call: a small plain message of the thread that owns the loop, with nothing queued
 * before it. The device writes header and payload where the peer sees them (fabric.h: fabric_post_framed), so the
 * message is done with when the call returns: one that was allocated goes back to the pool, one that was received stays among the
 * loans and is posted again with the others.
 *
 * With SLUICE_MORE, or in a handler with more messages at hand, it is copied into a frame that lies open at the end of
 * the session's queue (coalesce_open()), and is done with as well. Any other message that is sent behind it is
 * queued behind the frame.
 *
 * The bytes of a sluice_send_copy() go the same ways from the caller's memory: no buffer is taken for them.
 *
 * Tokens. A session's `tokens` are messages for which there is a credit, room in the send queue and room in the window,
 * whatever their size below `framed_end`, while it is UP and nothing waits in its queue. They are counted when none
 * are left. Code that takes any of these without a token, or queues anything, sets them to 0. Credits and room that
 * come back are not added, so there are only ever too few.
 *
 * Owner: the loop's thread.
 */
#ifndef DATAPATH_TX_FRAMED_H
#define DATAPATH_TX_FRAMED_H

#include <endian.h>

#include "common/copy_short.h"
#include "core/context.h"
#include "core/wire/frame.h"
#include "datapath/loop/loop.h"
#include "datapath/tx/coalesce.h"
#include "datapath/tx/post.h"
#include "datapath/tx/unacked.h"
#include "pool/quick.h"

/* Counts them; false: there are none. */
bool framed_tokens(struct session *s);
/* Of a session that was agreed upon: its framed_end. */
uint16_t framed_end(const struct session *s);

/* Whether the caller may give it away, and its bytes may be copied. */
static inline bool framed_may_take(const struct sluice_loop *l, const struct sluice_msg *msg) {
    return (msg->pool == l->pool || msg->pool == l->rx_pool) &&
           (msg->state == MSG_LOANED ||
            (msg->state == MSG_APP && likely(!(msg->flags & MSG_RETAINED))));
}

/* Its bytes are copied. */
static inline void framed_done(struct sluice_loop *l, struct sluice_msg *msg) {
    if (msg->state == MSG_LOANED)
        msg->state = MSG_SENDING; /* the caller's no more, and back with the other loans */
    else
        msg_discard_quick(l, msg);
}

/* In a handler with more messages at hand: what several handlers send goes out together. */
static inline bool framed_may_share(const struct sluice_loop *l, bool nested) {
    return unlikely(nested) && (l->wc_next < l->wc_count || l->unpacking);
}

/* The window has one more. */
static inline void framed_count(struct sluice_loop *l, struct session *s, uint64_t bytes) {
    atomic_store_explicit(&s->window.own_messages,
                          atomic_load_explicit(&s->window.own_messages, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_store_explicit(&s->window.own_bytes,
                          atomic_load_explicit(&s->window.own_bytes, memory_order_relaxed) + bytes,
                          memory_order_relaxed);
    l->totals_moved = true;
}

static inline void framed_account(struct sluice_loop *l, struct session *s, uint64_t bytes,
                                  uint32_t signalled) {
    struct connection *c = session_connection(s);
    struct sq_entry *entry = &c->sq.entries[c->sq.tail & c->sq.mask];
    entry->msg = NULL;
    entry->bytes = bytes | SQ_COUNTED;
    c->sq.tail++;
    c->sq.unsignalled = signalled ? 0 : c->sq.unsignalled + 1;
    c->tx.sequence++;
    c->tx.credits--;
    post_header_sent(c);
    s->tokens--;
    l->framed++;
    l->framed_bytes += bytes;
    framed_count(l, s, bytes);
}

/* False: nothing happened, and send_own() has to look. */
static inline __attribute__((always_inline)) bool framed_post(struct sluice_loop *l,
                                                              struct session *s, uint64_t id,
                                                              const uint8_t *data, uint64_t bytes) {
    struct connection *c = session_connection(s);
    if (unlikely(atomic_load_explicit(&s->id, memory_order_relaxed) != id ||
                 bytes >= s->framed_end || session_ref_count_open(&s->ref) != 0))
        return false;
    ASSERT(s->state == SESSION_UP && !s->tx.queue.head && c->tx.credits > c->tx.reserve &&
           sq_used(c) < c->sq.quick);
    uint32_t signalled = c->sq.unsignalled + 1 >= c->sq.signal_every ? FABRIC_FRAMED_SIGNALED : 0;
    uint64_t word0 = FRAME_DATA | (uint64_t)(uint16_t)c->rx.unreported << 16 |
                     (uint64_t)(c->tx.sequence + 1) << 32;
    if (unlikely(l->post_framed(c->qp, htole64(word0), htole64(c->rx.sequence | bytes << 32), data,
                                (uint32_t)bytes | signalled, wr_send_id(c, c->sq.tail)) != 0))
        return false;
    framed_account(l, s, bytes, signalled);
    return true;
}

/* ---- into a frame that lies open --------------------------------------------------------------- */

/* Whether a message of so many bytes is small, of a session that is up, and of this handle. */
static inline bool framed_fits(struct session *s, uint64_t id, uint64_t bytes) {
    return likely(atomic_load_explicit(&s->id, memory_order_relaxed) == id &&
                  s->state == SESSION_UP && bytes < s->tx.coalesce_bound &&
                  session_ref_count_open(&s->ref) == 0);
}

/* The frame at the end of a queue that is not empty, and where its next item begins; NULL: there is none with room. */
static inline struct sluice_msg *framed_last(const struct session *s, const struct msg_queue *queue,
                                             uint32_t bytes, uint32_t *at) {
    struct sluice_msg *last =
        (struct sluice_msg *)(void *)((char *)queue->tail - offsetof(struct sluice_msg, next));
    if (unlikely(last->kind != MSG_FRAME))
        return NULL;
    *at = coalesce_round(last->tx.end);
    return likely(*at + COALESCE_ITEM_BYTES + bytes <= s->tx.open_bytes) ? last : NULL;
}

/* Where the next item of the frame begins that takes one of so many bytes more; more: there is more to come. */
static inline struct sluice_msg *framed_place(struct sluice_loop *l, struct session *s,
                                              struct msg_queue *queue, uint32_t bytes, bool more,
                                              uint32_t *at) {
    struct sluice_msg *last = queue->head ? framed_last(s, queue, bytes, at) : NULL;
    if (likely(last))
        return last;
    *at = 0;
    return queue->head || more ? coalesce_open(l, s, queue) : NULL; /* or nothing shares it */
}

/* One more item of the frame. */
static inline void framed_put(struct sluice_msg *frame, uint32_t at, const uint8_t *data,
                              uint32_t bytes, unsigned type, uint64_t total) {
    uint64_t *word = (uint64_t *)(void *)(frame->data + at);
    word[0] = htole64(type | (uint64_t)bytes << 32);
    word[1] = htole64(total);
    if (bytes & 7)
        word[2 + bytes / 8] = 0; /* no old bytes of the buffer lie between two items */
    copy_short((uint8_t *)(word + 2), data, bytes);
    frame->tx.end = at + COALESCE_ITEM_BYTES + bytes;
    frame->tx.items++;
    if (type == FRAME_REQUEST)
        frame->tx.requests++;
    else
        frame->size += bytes;
}

static inline bool framed_has_room(struct session *s, uint64_t bytes) {
    return likely(atomic_load_explicit(&s->window.own_messages, memory_order_relaxed) <
                      s->window.messages &&
                  atomic_load_explicit(&s->window.own_bytes, memory_order_relaxed) + bytes <=
                      s->window.bytes);
}

/* Behind what is queued, or before what comes: false as above. */
static inline bool framed_append(struct sluice_loop *l, struct session *s, uint64_t id,
                                 const uint8_t *data, uint64_t bytes, bool more) {
    uint32_t at;
    if (unlikely(!framed_fits(s, id, bytes) || !framed_has_room(s, bytes)))
        return false;
    struct sluice_msg *frame = framed_place(l, s, &s->tx.queue, (uint32_t)bytes, more, &at);
    if (unlikely(!frame))
        return false;
    framed_put(frame, at, data, (uint32_t)bytes, FRAME_DATA, 0);
    framed_count(l, s, bytes);
    if (!more)
        send_flush(l, s);
    return true;
}

/* framed_append(), not inline. */
bool framed_behind(struct sluice_loop *l, struct session *s, uint64_t id, const uint8_t *data,
                   uint64_t bytes, bool more);

/*
 * Without a call, so that no register is saved: the frame that lies open and has room for a short message with more to
 * come, and where that begins. NULL: framed_append() has to look. The caller counts the message and puts it there.
 */
static inline struct sluice_msg *framed_open(struct session *s, uint64_t id, uint64_t bytes,
                                             uint32_t *at) {
    ASSERT(bytes <= COPY_SHORT_MAX);
    if (unlikely(!framed_fits(s, id, bytes) || !framed_has_room(s, bytes) || !s->tx.queue.head))
        return NULL;
    return framed_last(s, &s->tx.queue, (uint32_t)bytes, at);
}

static inline bool framed_has_tokens(struct session *s) {
    return likely(s->tokens > 0) || framed_tokens(s);
}

/* ---- from the public calls --------------------------------------------------------------------- */

/* Any thread: the session of the handle, and its loop, which the caller is in now; NULL: it is not this thread's. */
static inline __attribute__((always_inline)) struct session *
framed_enter(uint64_t id, struct sluice_loop **in, bool *nested) {
    struct session *s = loop_thread.session;
    if (unlikely(loop_thread.handle != id)) {
        loop_thread.session = s = session_table_find(id);
        loop_thread.handle = id;
    }
    struct sluice_loop *l = likely(s) ? atomic_load_explicit(&s->loop, memory_order_relaxed) : NULL;
    *in = l;
    return likely(l && loop_enter(l, nested)) ? s : NULL;
}

/* What options ask for, each field read once. */
struct framed_options {
    bool plain; /* nothing but to wait for more, and a tag */
    bool more;
    uint64_t tag;
};

static inline __attribute__((always_inline)) struct framed_options
framed_options(const sluice_send_options *o) {
    struct framed_options is = {.plain = true};
    if (!o)
        return is;
    is.plain = o->size == sizeof *o; /* or the other fields may not be there */
    if (unlikely(!is.plain))
        return is;
    is.plain = ((o->flags & ~SLUICE_MORE) | o->reserved | o->deadline_ns) == 0;
    is.more = o->flags & SLUICE_MORE;
    is.tag = o->tag;
    return is;
}

/* Any thread, whatever handle and message it was given; with more to come. False as above. */
static inline bool framed_submit_more(uint64_t id, struct sluice_msg *msg) {
    struct sluice_loop *l;
    bool nested;
    struct session *s = framed_enter(id, &l, &nested);
    if (unlikely(!s))
        return false;
    bool sent = framed_may_take(l, msg) && framed_behind(l, s, id, msg->data, msg->size, true);
    if (likely(sent))
        framed_done(l, msg);
    loop_leave(l, nested);
    return sent;
}

/* What framed_leave() leaves to a call: the message that was sent; NULL: to look whether memory is waited for. */
int framed_leave_slow(struct sluice_loop *l, struct sluice_msg *msg);

/* framed_done() and loop_leave(): how a public call ends, with no call of its own. */
static inline __attribute__((always_inline)) int framed_leave(struct sluice_loop *l,
                                                              struct sluice_msg *msg, bool nested) {
    if (unlikely(msg->state != MSG_APP || msg->pool != l->pool ||
                 !pool_put_quick(l->cache, buffer_of(msg))))
        return framed_leave_slow(l, msg);
    msg->state = MSG_FREE;
    if (pool_is_waited_for(l->pool))
        return framed_leave_slow(l, NULL);
    loop_leave(l, nested);
    return SLUICE_OK;
}

static inline __attribute__((always_inline)) bool framed_submit(uint64_t id,
                                                                struct sluice_msg *msg) {
    struct sluice_loop *l;
    bool nested;
    struct session *s = framed_enter(id, &l, &nested);
    if (unlikely(!s))
        return false;
    bool sent = false;
    if (likely(framed_may_take(l, msg))) {
        if (likely(!framed_may_share(l, nested) && framed_has_tokens(s)))
            sent = framed_post(l, s, id, msg->data, msg->size);
        else
            sent = framed_behind(l, s, id, msg->data, msg->size, framed_may_share(l, nested));
    }
    if (likely(sent))
        framed_done(l, msg);
    else if (connection_keeps(session_connection(s)) && framed_may_take(l, msg))
        sent = unacked_framed(l, s, id, msg, msg->data, msg->size, nested);
    loop_leave(l, nested);
    return sent;
}

/* Bytes that stay the caller's: no message is made of them. */
static inline bool framed_submit_copy(uint64_t id, const uint8_t *data, uint64_t bytes) {
    struct sluice_loop *l;
    bool nested;
    struct session *s = framed_enter(id, &l, &nested);
    if (unlikely(!s))
        return false;
    bool more = framed_may_share(l, nested);
    bool sent = likely(!more && framed_has_tokens(s)) ? framed_post(l, s, id, data, bytes)
                                                      : framed_behind(l, s, id, data, bytes, more);
    if (unlikely(!sent) && connection_keeps(session_connection(s)))
        sent = unacked_framed(l, s, id, NULL, data, bytes, nested);
    loop_leave(l, nested);
    return sent;
}

static inline bool framed_submit_copy_more(uint64_t id, const uint8_t *data, uint64_t bytes) {
    struct sluice_loop *l;
    bool nested;
    struct session *s = framed_enter(id, &l, &nested);
    bool sent = likely(s) && framed_behind(l, s, id, data, bytes, true);
    if (likely(s))
        loop_leave(l, nested);
    return sent;
}

#endif
