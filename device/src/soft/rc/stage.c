/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stage.c - see stage.h.
 *
 * Free blocks are bits of a few words, which any thread takes with one atomic instruction. The blocks of a queue pair are
 * a list in the order in which they were sent, and come back in that order.
 */
#include "soft/rc/stage.h"

#include <stdatomic.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/attention.h"
#include "soft/object/mr.h"
#include "soft/rc/region_memory.h"

#define WORDS (SOFT_STAGE_BLOCKS / 64)

enum { UNUSED, WANTED, READY, REFUSED };

static struct {
    _Atomic uint32_t state;
    int region;
    uint8_t *base;
    _Atomic uint64_t free[WORDS];
    /* of blocks that are taken; their queue pair's lock */
    uint16_t next[SOFT_STAGE_BLOCKS];
    uint32_t end[SOFT_STAGE_BLOCKS];
} stage;

/* ---- the region --------------------------------------------------------------------------------- */

static void want(void) {
    uint32_t unused = UNUSED;
    if (atomic_load_explicit(&stage.state, memory_order_relaxed) == UNUSED &&
        atomic_compare_exchange_strong(&stage.state, &unused, WANTED))
        soft_engine_wake();
}

void soft_stage_if_wanted(void) {
    soft_assert_locked();
    if (atomic_load_explicit(&stage.state, memory_order_relaxed) != WANTED)
        return;
    stage.region = soft_region_memory((size_t)SOFT_STAGE_BLOCKS * SOFT_STAGE_BYTES);
    if (stage.region < 0) { /* no memory, or no descriptor: not asked for again at every message */
        atomic_store(&stage.state, REFUSED);
        return;
    }
    stage.base = soft_regions[stage.region].addr;
    for (unsigned i = 0; i < WORDS; i++)
        atomic_store(&stage.free[i], UINT64_MAX);
    atomic_store_explicit(&stage.state, READY, memory_order_release);
}

void soft_stage_stop(void) {
    soft_assert_locked();
    if (atomic_load(&stage.state) == READY)
        soft_region_memory_end(stage.region);
    atomic_store(&stage.state, UNUSED);
}

/* The region is the parent's. */
void soft_stage_forked(void) {
    atomic_store(&stage.state, UNUSED);
}

/* ---- blocks ------------------------------------------------------------------------------------- */

static int block_take(void) {
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t free = ld(stage.free[i]);
        while (free) {
            uint64_t bit = free & -free;
            uint64_t before = atomic_fetch_and_explicit(&stage.free[i], ~bit, memory_order_acquire);
            if (before & bit)
                return (int)(i * 64 + (unsigned)__builtin_ctzll(bit));
            free = before & ~bit;
        }
    }
    return SOFT_STAGE_NONE;
}

static void block_free(struct soft_qp *qp, unsigned block) {
    atomic_fetch_or_explicit(&stage.free[block / 64], (uint64_t)1 << block % 64,
                             memory_order_release);
    atomic_fetch_sub_explicit(&qp->peer->staged, 1, memory_order_relaxed);
}

int soft_stage_take(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    if (atomic_load_explicit(&stage.state, memory_order_acquire) != READY) {
        want();
        return SOFT_STAGE_NONE;
    }
    soft_stage_reclaim(qp);
    if (!qp->peer || atomic_load_explicit(&qp->peer->region_sent[stage.region],
                                          memory_order_acquire) != REGION_READY)
        return SOFT_STAGE_NONE;
    if (qp->staged == SOFT_STAGE_QP)
        return SOFT_STAGE_WAIT;
    int block = SOFT_STAGE_NONE;
    if (atomic_fetch_add_explicit(&qp->peer->staged, 1, memory_order_relaxed) < SOFT_STAGE_PEER)
        block = block_take();
    if (block >= 0)
        return block;
    atomic_fetch_sub_explicit(&qp->peer->staged, 1, memory_order_relaxed);
    return qp->staged ? SOFT_STAGE_WAIT : SOFT_STAGE_NONE;
}

uint8_t *soft_stage_memory(int block) {
    return stage.base + (size_t)block * SOFT_STAGE_BYTES;
}

struct soft_desc soft_stage_describe(struct soft_qp *qp, int block, uint32_t bytes, uint32_t end) {
    spin_assert_held(&qp->lock);
    struct soft_desc desc = {.region = (uint32_t)stage.region,
                             .length = bytes,
                             .offset = (uint64_t)block * SOFT_STAGE_BYTES};
    soft_region_make(stage.region, desc.offset, bytes);
    stage.end[block] = end;
    if (qp->staged++ == 0) {
        qp->stage_first = (uint16_t)block;
        st(qp->need_tick, true); /* which finds what is free, where nothing more is sent */
        soft_qp_timer_want();
    } else {
        stage.next[qp->stage_last] = (uint16_t)block;
    }
    qp->stage_last = (uint16_t)block;
    return desc;
}

void soft_stage_give_back(struct soft_qp *qp, int block) {
    spin_assert_held(&qp->lock);
    block_free(qp, (unsigned)block);
}

static void free_first(struct soft_qp *qp) {
    unsigned block = qp->stage_first;
    qp->stage_first = stage.next[block];
    qp->staged--;
    block_free(qp, block);
}

void soft_stage_reclaim(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    while (qp->staged && (int32_t)(ld(qp->tx_acked) - stage.end[qp->stage_first]) >= 0)
        free_first(qp);
}

void soft_stage_release(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    while (qp->staged)
        free_first(qp);
}
