/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mr.h - protection domains, memory regions, and the memory that peers can map.
 *
 * Owner: the control lock for what changes; a key is looked up by any thread, without a lock.
 */
#ifndef SOFT_OBJECT_MR_H
#define SOFT_OBJECT_MR_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/guarded_copy.h"
#include "soft/ipc/shm_layout.h"

struct soft_mw;
struct soft_qp;

#define SOFT_REMOTE_ACCESS                                                                         \
    (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

struct soft_pd {
    struct ibv_pd ibv;
    uint8_t zero[64];
    uint32_t generation;
    _Atomic int users; /* MRs, MWs, QPs, SRQs */
    uint32_t number;   /* shown with keys: a key is good for QPs of its own PD only */
};

/* Memory that peers of the same uid can map: a sealed memfd. Guarded by the control lock. */
struct soft_region {
    uint8_t *addr;
    size_t bytes;
    int fd;
    uint32_t serial;
    uid_t uid;     /* ours, when it was made: no other user gets it, even if ours changes */
    bool writable; /* some registration lets peers write: they map it so */
    /* A bit for each SOFT_MADE_BYTES whose pages were made here, by any thread; NULL: no memory for them. */
    _Atomic uint64_t *made;
};
#define SOFT_MADE_BYTES (64u << 10)

struct soft_mr {
    struct ibv_mr ibv;
    uint8_t zero[64];
    uint32_t generation;
    uint64_t start, end; /* iova range */
    int64_t shift;       /* address = iova + shift */
    int access;
    int32_t region;         /* index of the region it lies in, -1: private memory */
    uint64_t region_offset; /* of start */
    uint32_t index;
    _Atomic uint32_t key;   /* 0 when deregistered */
    _Atomic int windows;    /* bound to it */
    struct soft_mw *window; /* it is the inside of one */
};

#define soft_pd_of(p) ((struct soft_pd *)(p))
#define soft_mr_of(p) ((struct soft_mr *)(p))

extern struct soft_mr *_Atomic soft_mr_table[SOFT_MAX_MR]; /* changes: control lock */
/* Moves when a key stops to open what it did, before soft_mr_withdraw() waits for those that use it. */
extern _Atomic uint32_t soft_mr_epoch;
/* Any thread; NULL: no such key in this PD. */
static inline struct soft_mr *soft_mr_find(uint32_t key, const struct ibv_pd *pd) {
    struct soft_mr *mr = atomic_load_explicit(&soft_mr_table[key >> 16], memory_order_acquire);
    /* Acquire: its key may have been stored again, over what it stands for now. */
    return mr && atomic_load_explicit(&mr->key, memory_order_acquire) == key && mr->ibv.pd == pd
               ? mr
               : NULL;
}
/* The MR (or bound window) a peer's key names on this QP, or NULL. */
struct soft_mr *soft_mr_find_remote(uint32_t key, struct soft_qp *qp);
/* Address of [addr, addr+len) if mr covers it with these rights, else NULL. */
static inline uint8_t *soft_mr_range(const struct soft_mr *mr, uint64_t addr, uint64_t len,
                                     int access) {
    uint64_t offset = addr - mr->start,
             length = mr->end - mr->start; /* below start: a huge offset */
    if (offset > length || len > length - offset || (mr->access & access) != access)
        return NULL;
    return (uint8_t *)(uintptr_t)(addr + (uint64_t)mr->shift);
}
/* Copies into its memory. False: that is the program's own, and was unmapped. */
static inline bool soft_mr_store(const struct soft_mr *mr, void *to, const void *from,
                                 size_t bytes) {
    if (__builtin_expect(mr->region < 0, 0))
        return copy_guarded_to(to, from, bytes);
    memcpy(to, from, bytes);
    return true;
}
extern struct soft_region soft_regions[SOFT_MAX_REGIONS]; /* control lock */
/*
 * Makes the pages of what peers are to touch, where the program has not: a peer that finds one missing takes a longer way
 * (rc/region_pages.h). Any thread that uses the memory.
 */
void soft_region_make_part(struct soft_region *region, uint64_t part);
static inline void soft_region_make(int index, uint64_t offset, uint64_t bytes) {
    struct soft_region *region = &soft_regions[index];
    uint64_t part = offset / SOFT_MADE_BYTES;
    for (; region->made && part * SOFT_MADE_BYTES < offset + bytes; part++)
        if (__builtin_expect(
                !(atomic_load_explicit(&region->made[part / 64], memory_order_relaxed) >>
                      part % 64 &
                  1),
                0))
            soft_region_make_part(region, part);
}

#endif
