/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * slot.h - filling slots of the peer's ring, and making them visible.
 *
 * A slot is filled, then gets its head, then is published: the peer sees none of it before its sequence word is
 * stored, so a list of work requests is filled first and published at once.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_SLOT_H
#define SOFT_RC_SLOT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/copy_short.h"
#include "soft/ipc/shm_page.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"

struct soft_writer {
    struct soft_ring *ring;
    unsigned index; /* slot being filled */
    unsigned used;  /* payload bytes in it */
};

static inline void slot_write(struct soft_writer *w, const void *data, size_t bytes) {
    const uint8_t *from = data;
    while (bytes) {
        if (w->used == SOFT_SLOT_PAYLOAD) {
            w->index = soft_slot_next(w->index);
            w->used = 0;
        }
        size_t n = SOFT_SLOT_PAYLOAD - w->used;
        n = n < bytes ? n : bytes;
        memcpy(w->ring->slot[w->index].data + w->used, from, n);
        w->used += (unsigned)n;
        from += n;
        bytes -= n;
    }
}

/* Fetches the slot that is written next into this core's cache, alone: a hint, not an order. */
static inline void slot_fetch_to_write(const uint8_t *at) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*at)); /* for which compilers must be told of the CPU */
#else
    __builtin_prefetch(at, 1);
#endif
}

static inline unsigned slot_room(const struct soft_qp *qp) {
    return SOFT_RING_SLOTS - (qp->tx_pos - ld(qp->tx_acked));
}

/* Behind what it speaks of: a poller that sees this finds that. Partner: cq_arrivals.h, word_of(). */
static inline void slot_tell(struct soft_qp *qp, uint32_t pos) {
    atomic_store_explicit(&qp->told->pos, (uint8_t)pos, memory_order_release);
    soft_told_changed(qp->told);
}

/* Heads the span of slots that was just filled. */
static inline void slot_head(struct soft_qp *qp, struct soft_ring *ring, unsigned span, unsigned op,
                             unsigned flags, unsigned len, uint32_t imm) {
    struct soft_slot *slot = &ring->slot[qp->tx_index];
    st(slot->word_imm, soft_word(op, flags, len) | (uint64_t)imm << 32);
    qp->tx_pos += span;
    qp->tx_index += span;
    if (qp->tx_index >= SOFT_RING_SLOTS)
        qp->tx_index -= SOFT_RING_SLOTS;
}

/* Heads and publishes one slot, just filled, of a queue that has nothing unpublished. */
static inline void slot_send(struct soft_qp *qp, struct soft_ring *ring, unsigned bytes,
                             unsigned flags, uint32_t imm) {
    unsigned index = qp->tx_index;
    uint32_t ack = ld(qp->rx_pos), pos = qp->tx_pos + 1;
    struct soft_slot *slot = &ring->slot[index];
    st(slot->word_imm, soft_word(SOFT_OP_SEND, flags, bytes) | (uint64_t)imm << 32);
    soft_tsan_publish(qp->attr.dest_qp_num);
    atomic_store_explicit(&slot->seq_ack, pos | (uint64_t)ack << 32, memory_order_release);
    slot_tell(qp, pos);
    st(qp->rx_told, ack);
    qp->tx_pos = pos;
    st(qp->tx_published, pos);
    qp->tx_index = soft_slot_next(index);
    if (__builtin_expect(ld(qp->arrival) == 0,
                         1)) /* of one of many the cache has lost it by then */
        slot_fetch_to_write(&ring->slot[qp->tx_index].data[48]);
}

/*
 * Fills one, too. The receiver is polling the slot's first line: it is written last and in one go, else the line would go
 * back and forth in between.
 */
static inline void slot_fill_and_send(struct soft_qp *qp, struct soft_ring *ring,
                                      const uint8_t *from, unsigned bytes, unsigned flags,
                                      uint32_t imm) {
    const unsigned first = 64 - (unsigned)offsetof(struct soft_slot, data);
    struct soft_slot *slot = &ring->slot[qp->tx_index];
    if (bytes > first) {
        copy_short(slot->data + first, from + first, bytes - first);
        memcpy(slot->data, from, first);
    } else {
        copy_short(slot->data, from, bytes);
    }
    slot_send(qp, ring, bytes, flags, imm);
}

/*
 * Stores the sequence words of everything headed and not yet visible, oldest first. Partners of these and of the one
 * above: the acquires in progress.h, arrived(), and receive_short.h, receive_one().
 */
static inline void slot_publish(struct soft_qp *qp, struct soft_ring *ring) {
    uint32_t pos = ld(qp->tx_published);
    if (pos == qp->tx_pos)
        return;
    unsigned behind = qp->tx_pos - pos;
    unsigned index =
        qp->tx_index >= behind ? qp->tx_index - behind : qp->tx_index + SOFT_RING_SLOTS - behind;
    uint32_t ack = ld(qp->rx_pos);
    soft_tsan_publish(qp->attr.dest_qp_num);
    for (; pos != qp->tx_pos; pos++, index = soft_slot_next(index)) {
        uint64_t seq_ack = (pos + 1) | (uint64_t)ack << 32;
        atomic_store_explicit(&ring->slot[index].seq_ack, seq_ack, memory_order_release);
    }
    slot_tell(qp, pos);
    st(qp->rx_told, ack);
    st(qp->tx_published, pos);
}

#endif
