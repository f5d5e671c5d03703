/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rkey_reach.h - where the memory lies that a one-sided access names, and whether its key allows it: the requester's
 * look into the key table of the target.
 *
 * The requester says that it is inside, looks at the key, touches the memory, and says that it is out again. What the
 * target writes into its table is copied and checked, and only the copy is used.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_RKEY_REACH_H
#define SOFT_RC_RKEY_REACH_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/ipc/peer_internal.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"
#include "soft/rc/process_copy.h"
#include "soft/rc/rdma.h"

enum rkey_reach { REACH_MAPPED, REACH_PROCESS, REACH_RING, REACH_REFUSED };

static inline int rkey_reach_needs(unsigned opcode) {
    switch (opcode) {
    case IBV_WR_RDMA_READ:
        return IBV_ACCESS_REMOTE_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return IBV_ACCESS_REMOTE_ATOMIC;
    default:
        return IBV_ACCESS_REMOTE_WRITE;
    }
}

/* Entry of the key table, read once. False: the key is not (or no longer) in it. */
static inline bool rkey_reach_read(const struct soft_key *table, uint32_t rkey,
                                   struct soft_key *out) {
    const struct soft_key *at = &table[rkey >> 16];
    uint32_t version = atomic_load_explicit(&at->version, memory_order_acquire);
    if (atomic_load_explicit(&at->key, memory_order_acquire) != rkey || rkey == 0)
        return false;
    out->access = at->access;
    out->start = at->start;
    out->length = at->length;
    out->offset = at->offset;
    out->region = at->region;
    out->pd = at->pd;
    out->qpn = at->qpn;
    out->serial = at->serial;
    soft_fence_acquire(); /* partner: the release fence in mr.c, soft_key_publish() */
    out->version = version;
    return version % 2 == 0 && atomic_load_explicit(&at->version, memory_order_relaxed) == version;
}

/*
 * A window is invalidated without a system call: the thread that does it cannot make us see it, so this fence
 * stands between "I am inside" and the look that counts. Partner: rkey_fence.c, soft_rkey_fence_begin_window().
 */
static __attribute__((noinline)) bool rkey_reach_read_window(const struct soft_qp *qp,
                                                             const struct soft_key *table,
                                                             uint32_t rkey, struct soft_key *out) {
    soft_fence();
    return rkey_reach_read(table, rkey, out) && out->qpn == qp->attr.dest_qp_num;
}

/* Where the bytes an access names lie for us, and how they are reached. */
static inline enum rkey_reach rkey_reach(struct soft_qp *qp, unsigned opcode, uint64_t at,
                                         uint32_t rkey, uint32_t length, uint8_t **addr) {
    struct soft_peer *peer = qp->link_peer;
    const struct soft_key *keys =
        peer ? atomic_load_explicit(&peer->keys, memory_order_acquire) : NULL;
    struct soft_key key;
    int access = rkey_reach_needs(opcode);
    if (!keys)
        return REACH_RING;
    if (length == 0) {
        *addr = NULL;
        return REACH_MAPPED;
    }
    bool known = rkey_reach_read(keys, rkey, &key);
    if (__builtin_expect(known && (key.access & SOFT_KEY_WINDOW), 0))
        known = rkey_reach_read_window(qp, keys, rkey, &key);
    if (!known || key.pd != qp->remote_pd || ((int)key.access & access) != access ||
        at < key.start || length > key.length || at - key.start > key.length - length)
        return REACH_REFUSED;
    if (key.region < 0 && ld(peer->reach) != PROCESS_CLOSED && !is_atomic(opcode)) {
        *addr = (uint8_t *)(uintptr_t)(key.offset + (at - key.start));
        return REACH_PROCESS;
    }
    if (key.region < 0 || key.region >= SOFT_MAX_REGIONS)
        return REACH_RING;
    const struct soft_peer_region *region = &peer->regions[key.region];
    const uint8_t *base = atomic_load_explicit(&region->addr, memory_order_acquire);
    uint64_t offset = key.offset + (at - key.start);
    /* Not there yet, or still the one that had its index before: the target executes. */
    if (!base || ld(region->serial) != key.serial ||
        (access != IBV_ACCESS_REMOTE_READ && !ld(region->writable)))
        return REACH_RING;
    if (offset > region->bytes || length > region->bytes - offset)
        return REACH_REFUSED; /* the table lies: stay inside the mapping */
    *addr = (uint8_t *)(uintptr_t)base + offset;
    if (is_atomic(opcode) && (uintptr_t)*addr % 8 != 0)
        return REACH_REFUSED; /* no atomic operation there is atomic */
    return REACH_MAPPED;
}

/* Makes "I am inside" visible before the key is checked. Partner: rkey_fence.c, soft_rkey_fence_begin(). */
static inline void rkey_reach_begin(struct soft_qp *qp, struct soft_ring *ring) {
    st(ring->tx.touching, ld(ring->tx.touching) | 1);
    if (qp->fence_free)
        atomic_signal_fence(memory_order_seq_cst);
    else
        soft_fence();
}

/* Behind all that was read and written. Partner: the acquire in rkey_fence.c, word(). */
static inline void rkey_reach_end(struct soft_ring *ring) {
    atomic_store_explicit(&ring->tx.touching, (ld(ring->tx.touching) | 1) + 1,
                          memory_order_release);
}

#endif
