/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool_stats.h - what a pool holds and has done, for tests: its counters, and those of its lists and caches. Any thread;
 * exact while no thread gets or puts.
 */
#ifndef TESTS_SUPPORT_POOL_STATS_H
#define TESTS_SUPPORT_POOL_STATS_H

#include "pool/pool.h"

struct pool_count {
    uint64_t gets, puts; /* so far: handed out, and returned by whichever thread */
    uint64_t cached;     /* free buffers in caches */
    uint64_t returned;   /* so far: taken over from other threads' returns */
    uint64_t refills;    /* so far: times the shared lists were asked */
};

struct pool_stats {
    uint64_t bytes, bytes_max;
    uint64_t pages_free;                   /* bytes of arenas that are in no buffer */
    uint64_t grown_ahead, grown_on_demand; /* arenas: by the helper, by a thread that had none */
    uint64_t kind[HUGEPAGES_KINDS],
        numa_bound;                      /* bytes: of which pages, on the NUMA node wished for */
    uint64_t huge_missed;                /* bytes so far: huge pages were not there */
    uint64_t alloc_waits, alloc_wakeups; /* calls of pool_wait(), of wake */
    uint64_t shared[POOL_CLASSES];       /* free buffers in the shared lists */
    struct pool_count count[POOL_CLASSES + 1]; /* last: mappings of their own */
};

void pool_get_stats(struct pool *pool, struct pool_stats *out);
/* One cache, all its classes together. */
void pool_cache_get_stats(const struct pool_cache *cache, struct pool_count *out);
uint64_t pool_bytes_max(const struct pool *pool);
/* Waits until the helper that adds arenas has nothing to do. */
void pool_grow_settle(struct pool *pool);
/* Buffers handed out and not returned. */
uint64_t pool_in_use(struct pool *pool);

#endif
