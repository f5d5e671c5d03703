/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * internal.h - what the files of the pool share; no file outside this folder includes it.
 *
 * Two locks. `lock` guards the lists of free buffers and is held for a few list operations. `slow`
 * guards arenas and the large mappings, is held across system calls, and is taken first. A thread
 * whose cache has a buffer takes neither.
 */
#ifndef POOL_INTERNAL_H
#define POOL_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "pool/arena.h"
#include "pool/magazine.h"
#include "pool/debug.h"
#include "pool/grow.h"
#include "pool/large.h"
#include "pool/pool.h"
#include "pool/quick.h"
#include "pool/span.h"

struct pool {
    struct pool_head head;
    bool debug; /* constant: see debug.h */
    uint16_t magazine_max[POOL_CLASSES];
    int64_t return_bytes_max; /* on the return stack of one cache */
    struct pool_cache *_Atomic by_number[POOL_CACHES_MAX];

    struct budget budget;
    pthread_mutex_t slow, lock;
    struct arenas arenas; /* slow */
    struct grower grower; /* slow */
    struct spans spans[POOL_CLASSES];
    struct larges larges;
    struct pool_cache *caches; /* lock */
    unsigned cache_count;
    _Atomic uint64_t gets[POOL_CLASSES + 1]; /* of threads without a cache, and of closed caches */
    _Atomic uint64_t puts[POOL_CLASSES + 1];

    struct {             /* lock; see waiters.c */
        uint64_t wanted; /* bit: a thread waits for a buffer of this class */
        bool news;       /* something came back that one of them may be able to use */
        bool everywhere; /* every thread has seen the flag since it was set */
        uint32_t round;  /* how often it was set */
    } waits_for;
    uint64_t out;       /* lock: buffers, and mappings of their own, that are in no list */
    uint64_t came_back; /* lock: how many came into a list again, ever */
    void (*wake)(void *arg);
    void *wake_arg;
    _Atomic uint64_t alloc_waits, alloc_wakeups;
    _Atomic uint64_t note; /* the user's */
    void (*on_return)(const struct pool_buffer *buffer, uint16_t account, void *arg); /* constant */
    void *on_return_arg;
    /* Takes what SLUICE_POOL_DEBUG finds, a line at a time, any thread; NULL: standard error. Tests set it, before use. */
    void (*report)(const char *text, void *arg);
    void *report_arg;
    void (*shortage)(const char *text, void *arg); /* slow */
    void *shortage_arg;
    bool shortage_locks;
    _Atomic uint64_t seen; /* bit: threads without a cache used buffers of the class */
};

_Static_assert(offsetof(struct pool, head) == 0, "quick.h knows no more of it");

/* The bytes that a buffer takes. */
static inline int64_t slot_bytes(const struct pool_buffer *buffer) {
    return (int64_t)(buffer->capacity + POOL_HEADROOM);
}

/* ---- depot.c -------------------------------------------------------------------------------- */

/* Returns buffers, chained by `next`, to their lists. */
void depot_give(struct pool *pool, struct pool_buffer *chain);
/* Up to max free buffers of the class, chained. Returns how many. */
unsigned depot_take(struct pool *pool, unsigned size_class, unsigned max,
                    struct pool_buffer **chain);
/* Takes over what is on its way back to caches, whose owners may never ask for it. */
void depot_collect(struct pool *pool);
/* Returns what a cache holds to the shared lists. Its owner. */
void pool_flush(struct pool_cache *cache);
/*
 * Both, with the lock held; no cache if NULL. False: something is still in the cache, because another thread is
 * half way in returning a buffer.
 */
bool depot_gather(struct pool *pool, struct pool_cache *cache);

/* ---- refill.c: no lock is held --------------------------------------------------------------- */

/* The shared list of a class was empty: up to max buffers from elsewhere, chained. Returns how many. */
unsigned refill_more(struct pool *pool, struct pool_cache *cache, unsigned size_class, unsigned max,
                     struct pool_buffer **chain);
/* A mapping of its own, kept or new. NULL: no memory. */
struct pool_buffer *refill_large(struct pool *pool, struct pool_cache *cache, size_t bytes);
void refill_put_large(struct pool *pool, struct pool_buffer *buffer);

/* ---- waiters.c: no lock is held -------------------------------------------------------------- */

/* A thread waits: calls wake once. */
void pool_wake(struct pool *pool);
#endif
