/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rkey_cache.h - where the memory lies that a QP's WRITEs went to last.
 *
 * A key that is used again is not looked up again: it is enough that its entry in the target's table has
 * the same version, and that the region is mapped at the same address. All else was checked and copied when the
 * entry of the cache was made. Not for windows, whose entry must be read anew behind a fence.
 *
 * Owner: the QP's lock. The code that changes the link clears it.
 */
#ifndef SOFT_RC_RKEY_CACHE_H
#define SOFT_RC_RKEY_CACHE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/ipc/peer_internal.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"

/* The place for these bytes, NULL: look it up. The requester has said that it is inside. */
static inline uint8_t *rkey_cache_hit(const struct soft_qp *qp, uint64_t at, uint32_t rkey,
                                      uint32_t length) {
    const struct soft_rkey_cache *cache = &qp->rkey_cache;
    uint64_t offset = at - cache->start;
    if (!cache->entry || cache->rkey != rkey || offset > cache->length ||
        length > cache->length - offset ||
        atomic_load_explicit(&cache->entry->version, memory_order_acquire) != cache->version ||
        atomic_load_explicit(&cache->region->addr, memory_order_relaxed) != cache->mapped ||
        ld(cache->region->serial) != cache->serial)
        return NULL;
    return cache->base + offset;
}

static inline void rkey_cache_clear(struct soft_qp *qp) {
    qp->rkey_cache.entry = NULL;
    qp->rkey_cache.rkey = 0;
}

#endif
