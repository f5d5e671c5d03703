/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * inside.h - what the files of the pool share and nobody else includes.
 *
 * Two locks. `lock` guards the lists of free buffers and is held for a few list operations. `slow`
 * guards arenas and the large mappings, is held across system calls, and is taken first. A thread
 * whose cache has a buffer takes neither.
 */
#ifndef POOL_INSIDE_H
#define POOL_INSIDE_H

#include <pthread.h>
#include <stdbool.h>

#include "pool/arena.h"
#include "pool/cache.h"
#include "pool/debug.h"
#include "pool/grow.h"
#include "pool/large.h"
#include "pool/pool.h"
#include "pool/span.h"

#define POOL_AWAITING 1u /* set, and not every thread has passed a barrier since */
#define POOL_AWAITED 2u

struct pool {
    /* read at every get and put */
    _Atomic uint32_t waiting; /* not 0: somebody waits for memory; see POOL_AWAITING */
    bool debug;               /* constant: see debug.h */
    uint16_t magazine_max[POOL_CLASSES];
    int64_t return_bytes_max; /* on the return stack of one cache */
    struct pool_cache *_Atomic by_number[CACHES_MAX];

    struct budget budget;
    pthread_mutex_t slow, lock;
    struct arenas arenas; /* slow */
    struct grower grower; /* slow */
    struct spans spans[POOL_CLASSES];
    struct larges larges;
    struct pool_cache *caches; /* lock */
    unsigned cache_count;
    _Atomic uint64_t gets[POOL_CLASSES + 1]; /* of everybody without a cache, and of closed ones */
    _Atomic uint64_t puts[POOL_CLASSES + 1];

    void (*wake)(void *arg);
    void *wake_arg;
    _Atomic uint64_t waits, wakes;
    _Atomic uint64_t note; /* the user's */
    void (*report)(const char *text, void *arg);
    void *report_arg;
    void (*shortage)(const char *text, void *arg); /* slow */
    void *shortage_arg;
    bool shortage_locks;
    _Atomic uint64_t seen; /* bit: somebody without a cache got or returned buffers of the class */
};

/* Returns what a cache holds to the shared lists. Its owner; the lock is free. */
void pool_flush(struct pool_cache *cache);
/* Memory came back and somebody waits: calls wake once. No lock is held. */
void pool_wake(struct pool *pool);

#endif
