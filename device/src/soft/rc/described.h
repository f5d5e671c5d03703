/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * described.h - bytes that are named and not sent: where they lie in a region of the sender's that the peer has mapped.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_DESCRIBED_H
#define SOFT_RC_DESCRIBED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "soft/ipc/peer_internal.h"
#include "soft/object/mr.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"

/* The sender: names bytes of this MR, which were checked. False: the peer has not mapped them. */
static inline bool described_put(const struct soft_qp *qp, const struct soft_mr *mr,
                                 const struct ibv_sge *sge, struct soft_desc *desc) {
    if (mr->region < 0 || !qp->peer ||
        atomic_load_explicit(&qp->peer->region_sent[mr->region], memory_order_acquire) !=
            REGION_READY)
        return false;
    *desc = (struct soft_desc){.region = (uint32_t)mr->region,
                               .length = sge->length,
                               .offset = mr->region_offset + (sge->addr - mr->start)};
    soft_region_make(mr->region, desc->offset, sge->length);
    return true;
}

/* The receiver: its own copy of what a peer wrote there, each word read once. */
static inline struct soft_desc described_read(const uint8_t *from) {
    const uint64_t *word =
        (const uint64_t *)(const void *)from; /* slots are aligned, and so is their payload */
    uint64_t first = __atomic_load_n(&word[0], __ATOMIC_RELAXED),
             offset = __atomic_load_n(&word[1], __ATOMIC_RELAXED);
    struct soft_desc desc = {.offset = offset};
    memcpy(&desc, &first, sizeof first); /* region and length, in the order of this machine */
    return desc;
}

/* The receiver: where they lie for it. NULL: its peer shares no such bytes. */
static inline const uint8_t *described_get(const struct soft_qp *qp, uint32_t region,
                                           uint64_t offset, uint64_t length) {
    if (region >= SOFT_MAX_REGIONS || !qp->link_peer)
        return NULL;
    const struct soft_peer_region *mapped = &qp->link_peer->regions[region];
    const uint8_t *at = atomic_load_explicit(&mapped->addr, memory_order_acquire);
    if (!at || length > mapped->bytes || offset > mapped->bytes - length)
        return NULL;
    return at + offset;
}

/*
 * They are the sender's again once its queue pair is down: what was not acknowledged is flushed then. Asked before the
 * copy, it spares that; asked behind it, no means that every byte was read in time. Partner: the fence in completer.c,
 * soft_qp_fail().
 */
static inline bool described_withdrawn(const struct soft_ring *ring) {
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&ring->tx.down, memory_order_relaxed) != 0;
}

#endif
