/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mr.c - the table of memory regions, and the pages of memory that peers can map.
 *
 * Owner: the control lock for what changes in the table; lookups are lock-free.
 */
#define _GNU_SOURCE
#include "soft/object/mr.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "soft/ipc/spinlock.h"
#include "soft/object/mw.h"
#include "soft/object/qp.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

struct soft_region soft_regions[SOFT_MAX_REGIONS];
struct soft_mr *_Atomic soft_mr_table[SOFT_MAX_MR];
_Atomic uint32_t soft_mr_epoch;

/* A window's inside has no PD, so that its key never passes for an lkey. */
struct soft_mr *soft_mr_find_remote(uint32_t key, struct soft_qp *qp) {
    struct soft_mr *mr = atomic_load_explicit(&soft_mr_table[key >> 16], memory_order_acquire);
    if (!mr || atomic_load_explicit(&mr->key, memory_order_acquire) != key)
        return NULL;
    if (mr->window)
        return ld(mr->window->qp) == qp ? mr : NULL;
    return mr->ibv.pd == qp->ibv.pd ? mr : NULL;
}

/* On kernels before 5.14. What else of it the program uses, or must not use now, is not looked at. */
static __attribute__((no_sanitize("address"), no_sanitize("thread"))) void
touch(const volatile uint8_t *at, const uint8_t *end) {
    for (; at < end; at += 4096)
        (void)*at;
}

void soft_region_make_part(struct soft_region *region, uint64_t part) {
    uint64_t at = part * SOFT_MADE_BYTES, left = region->bytes - at;
    uint64_t bytes = left < SOFT_MADE_BYTES ? left : SOFT_MADE_BYTES;
    if (madvise(region->addr + at, bytes, MADV_POPULATE_READ) != 0)
        touch(region->addr + at, region->addr + at + bytes);
    atomic_fetch_or_explicit(&region->made[part / 64], 1ull << part % 64, memory_order_relaxed);
}
