/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * framed.h - what nearly every call sends: a small plain message of the thread that owns the loop, with nothing in its
 * way. The device writes header and payload where the peer sees them (fabric.h: post_framed), so the message is done
 * with when the call returns: one that was allocated goes back to the pool, one that was received stays among the
 * loans and is posted again with the others.
 *
 * Tokens. A session's `tokens` are messages for which there is a credit, room in the send queue and room in the window,
 * whatever their size below `framed_end`, while it is UP and nothing waits in its queue. They are counted when there are
 * none left. Whoever takes of these but a message that has a token, or queues anything, sets them to 0. What comes back
 * only makes them too few.
 *
 * Owner: the loop's thread.
 */
#ifndef DATAPATH_TX_FRAMED_H
#define DATAPATH_TX_FRAMED_H

#include <endian.h>

#include "core/context.h"
#include "core/wire/frame.h"
#include "datapath/loop/loop.h"
#include "datapath/tx/post.h"

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

/* In a handler with more messages at hand: what several handlers send goes out together. */
static inline bool framed_may_share(const struct sluice_loop *l, bool nested) {
    return unlikely(nested) && (l->wc_next < l->wc_count || l->unpacking);
}

static inline void framed_account(struct sluice_loop *l, struct session *s, uint64_t bytes,
                                  uint32_t signalled) {
    struct connection *c = &s->connection;
    struct sq_entry *entry = &c->sq.entries[c->sq.tail & c->sq.mask];
    entry->msg = NULL;
    entry->bytes = bytes | SQ_COUNTED;
    c->sq.tail++;
    c->sq.unsignalled = signalled ? 0 : c->sq.unsignalled + 1;
    c->tx.sequence++;
    c->tx.credits--;
    c->rx.granted += c->rx.unreported;
    c->rx.unreported = 0;
    c->rx.updated = c->rx.sequence;
    c->credits.update_due = false;
    s->tokens--;
    atomic_store_explicit(&s->window.own_messages,
                          atomic_load_explicit(&s->window.own_messages, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    atomic_store_explicit(&s->window.own_bytes,
                          atomic_load_explicit(&s->window.own_bytes, memory_order_relaxed) + bytes,
                          memory_order_relaxed);
    l->framed++;
    l->framed_bytes += bytes;
    l->totals_moved = true;
}

/* False: nothing happened, and send_own() has to look. */
static inline __attribute__((always_inline)) bool framed_send(struct sluice_loop *l,
                                                              struct session *s, uint64_t id,
                                                              struct sluice_msg *msg, bool nested) {
    struct connection *c = &s->connection;
    uint64_t bytes = msg->size;
    if (unlikely(atomic_load_explicit(&s->id, memory_order_relaxed) != id ||
                 bytes >= s->framed_end || session_ref_count_open(&s->ref) != 0 ||
                 !framed_may_take(l, msg) || framed_may_share(l, nested) ||
                 (s->tokens == 0 && !framed_tokens(s))))
        return false;
    ASSERT(s->state == SESSION_UP && !s->tx.queue.head && c->tx.credits > CREDIT_RESERVE &&
           sq_used(s) < c->sq.quick);
    uint32_t signalled = c->sq.unsignalled + 1 >= c->sq.signal_every ? FABRIC_FRAMED_SIGNALED : 0;
    uint64_t word0 = FRAME_DATA | (uint64_t)(uint16_t)c->rx.unreported << 16 |
                     (uint64_t)(c->tx.sequence + 1) << 32;
    if (unlikely(l->post_framed(c->qp, htole64(word0), htole64(c->rx.sequence | bytes << 32),
                                msg->data, (uint32_t)bytes | signalled,
                                wr_send_id(s->slot, c->sq.tail)) != 0))
        return false;
    framed_account(l, s, bytes, signalled);
    if (msg->state == MSG_LOANED)
        msg->state = MSG_SENDING; /* the caller's no more, and back with the other loans */
    else
        msg_discard(l, msg);
    return true;
}

/* The same for any thread and whatever handle and message it was given. */
static inline __attribute__((always_inline)) bool framed_submit(uint64_t id,
                                                                struct sluice_msg *msg) {
    struct session *s = loop_thread.session;
    if (unlikely(loop_thread.handle != id)) {
        loop_thread.session = s = session_table_find(id);
        loop_thread.handle = id;
    }
    struct sluice_loop *l = likely(s) ? atomic_load_explicit(&s->loop, memory_order_relaxed) : NULL;
    bool nested;
    if (unlikely(!l || !loop_enter(l, &nested)))
        return false;
    bool sent = framed_send(l, s, id, msg, nested);
    loop_leave(l, nested);
    return sent;
}

#endif
