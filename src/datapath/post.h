/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * post.h - the pieces of posting that sending one message and flushing a queue share.
 *
 * Owner: the loop's thread.
 */
#ifndef DATAPATH_POST_H
#define DATAPATH_POST_H

#include "datapath/datapath.h"

#define MSG_FOREIGN (1u << 31) /* in msg->send_flags: accepted from another thread */

static inline uint32_t sq_used(const struct session *s) {
    return s->sq_tail - s->sq_head;
}

/* Writes a header and with it gives the peer back what it is owed. */
static inline void post_header(struct session *s, uint8_t *at, unsigned type, unsigned flags,
                               uint32_t length, uint64_t total) {
    struct frame f = {
        .type = (uint8_t)type,
        .flags = (uint8_t)flags,
        .credits = (uint16_t)s->rx_owed,
        .sequence = s->tx_sequence,
        .ack = s->rx_sequence,
        .length = length,
        .total = total,
    };
    s->rx_granted += s->rx_owed;
    s->rx_owed = 0;
    frame_put(at, &f);
}

/* A message's share of the window is free again. */
static inline void window_release(struct session *s, uint64_t bytes, bool foreign) {
    if (foreign) {
        atomic_fetch_sub_explicit(&s->foreign_bytes, bytes, memory_order_relaxed);
        s->foreign_taken--;
        atomic_fetch_sub_explicit(&s->gate, 1, memory_order_release);
        return;
    }
    /* One writer: plain loads and stores that others may read. */
    atomic_store_explicit(&s->own_messages,
                          atomic_load_explicit(&s->own_messages, memory_order_relaxed) - 1,
                          memory_order_relaxed);
    atomic_store_explicit(&s->own_bytes,
                          atomic_load_explicit(&s->own_bytes, memory_order_relaxed) - bytes,
                          memory_order_relaxed);
}

/* A message the data path is done with, and nobody wants to hear of. */
static inline void msg_discard(struct sluice_loop *l, struct sluice_msg *msg) {
    msg->state = MSG_FREE;
    pool_put(l->pool, l->cache, msg);
}

/* Entries from `from` on never reached the device. */
void post_failed(struct sluice_loop *l, struct session *s, uint32_t from, int error);

#endif
