/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * magazine.h - the buffers one thread keeps at hand, and the stack on which other threads return them.
 *
 * A cache holds two stacks ("magazines") a class: it works on one and swaps before it asks the
 * shared list, so that a thread at the edge of empty or full does not take the lock every time,
 * and it hands over the stack that it has not touched for longest.
 *
 * A buffer carries the number of the cache it was got from. Returned with another cache, or with
 * none, it is pushed onto the home cache's return stack: one exchange. The owner splices the stack
 * when it runs out. Any thread may empty it, under the pool's lock, before the pool reports that there is
 * no memory. Bytes on their way back are bounded; above the bound the buffer stays with the thread that
 * returned it.
 *
 * What the active magazine holds is not counted for itself: each message would pay for that. It follows from how many
 * buffers were handed out and returned, which are counted anyway, and from what came and went by other ways.
 *
 * A cache is never freed before its pool, since another thread may be about to push onto it; a closed one
 * is used again by the next that is opened.
 *
 * Owner: one thread at a time, but for `home`, where any thread pushes, and the counters, which any thread
 * reads.
 */
#ifndef POOL_MAGAZINE_H
#define POOL_MAGAZINE_H

#include "pool/pool.h"

#define POOL_CACHES_MAX 512 /* numbers; caches above that have none, and get no returns */

struct magazines {
    struct pool_buffer *active, *spare;
    /* one writer, the owner; read for figures */
    _Atomic uint64_t gets, puts, returned, refills;
    _Atomic uint32_t brought; /* into the active one by other ways, less what left it so */
    _Atomic uint32_t spare_count;
    uint32_t quick_max; /* constant: pool_put_quick() adds to fewer; debugging, large ones: 0 */
} __attribute__((aligned(64)));
_Static_assert(sizeof(struct magazines) == 64, "a cache line");

struct pool_cache {
    struct pool *pool;
    struct pool_cache *next; /* all there ever were: constant once it is in the list */
    uint32_t quick_bytes;    /* constant: sizes from 1 up to that have a quick way; debugging: 0 */
    uint16_t number;
    bool open;                    /* under the pool's lock */
    uint64_t seen;                /* bit: buffers of that class went through this cache */
    struct cds_wfs_node *pending; /* spliced and not looked at yet */
    struct magazines bin[POOL_CLASSES + 1];
    struct {
        struct __cds_wfs_stack returns;
        _Atomic int64_t bytes; /* about what is on it */
        _Atomic bool closed;
        struct cds_wfs_node *half_way; /* under the pool's lock: left by another thread */
    } home __attribute__((aligned(128)));
} __attribute__((aligned(128)));

struct pool_cache *pool_cache_new(struct pool *pool, uint16_t number);

/* Counters with one writer. */
static inline void count_add(_Atomic uint64_t *counter, uint64_t n) {
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    /* Release: a reader that sees a return counted also sees its hand-out counted. */
    atomic_store_explicit(counter, value + n, memory_order_release);
}

static inline uint32_t count_of(const _Atomic uint32_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline void count_set(_Atomic uint32_t *counter, uint32_t value) {
    atomic_store_explicit(counter, value, memory_order_release);
}

/* Its active one, after so many puts. The owner. */
static inline uint32_t magazine_count_at(const struct magazines *bin, uint64_t puts) {
    return count_of(&bin->brought) + (uint32_t)puts -
           (uint32_t)atomic_load_explicit(&bin->gets, memory_order_relaxed);
}

static inline uint32_t magazine_count(const struct magazines *bin) {
    return magazine_count_at(bin, atomic_load_explicit(&bin->puts, memory_order_relaxed));
}

/*
 * The number for any thread. Read in this order it is no less than it was at some moment meanwhile, so never below 0:
 * what comes is counted before what goes.
 */
static inline uint32_t magazine_count_seen(const struct magazines *bin) {
    uint32_t gets = (uint32_t)atomic_load_explicit(&bin->gets, memory_order_acquire);
    uint32_t brought = atomic_load_explicit(&bin->brought, memory_order_acquire);
    uint32_t puts = (uint32_t)atomic_load_explicit(&bin->puts, memory_order_acquire);
    return brought + puts - gets;
}

/* One is handed out. NULL: there is none. */
static inline struct pool_buffer *magazine_take(struct magazines *bin) {
    struct pool_buffer *buffer = bin->active;
    if (buffer) {
        bin->active = buffer->next;
        count_add(&bin->gets, 1);
    }
    return buffer;
}

/* One was returned. False: there are as many as are quick. */
static inline bool magazine_add(struct magazines *bin, struct pool_buffer *buffer) {
    uint64_t puts = atomic_load_explicit(&bin->puts, memory_order_relaxed);
    if (__builtin_expect(magazine_count_at(bin, puts) >= bin->quick_max, 0))
        return false;
    buffer->next = bin->active;
    bin->active = buffer;
    atomic_store_explicit(&bin->puts, puts + 1, memory_order_release);
    return true;
}

/* So many more are in the active one, or (modulo 2^32) fewer, that were neither handed out nor returned. */
static inline void magazine_brought(struct magazines *bin, uint32_t count) {
    count_set(&bin->brought, count_of(&bin->brought) + count);
}

/* One is handed out, or was returned, that does not come from a magazine, or does not go into one. */
static inline void magazine_passed_out(struct magazines *bin) {
    magazine_brought(bin, 1);
    count_add(&bin->gets, 1);
}

static inline void magazine_passed_in(struct magazines *bin) {
    count_add(&bin->puts, 1);
    magazine_brought(bin, UINT32_MAX);
}

/* The full active magazine becomes the spare one; returns the former spare, a chain or NULL. */
struct pool_buffer *magazine_rotate(struct magazines *bin);
/* The active magazine is empty: the spare one takes its place. False: that is empty too. */
bool magazine_swap(struct magazines *bin);
/* Takes everything out, chained. */
struct pool_buffer *magazine_empty(struct magazines *bin);

/* Any thread: gives a buffer back to its home. False: it is closed, or has enough. */
bool pool_cache_return(struct pool_cache *home, struct pool_buffer *buffer, int64_t bytes,
                       int64_t bytes_max);
/* The next returned buffer, NULL: none, or the thread that returns it is half way. Owner. */
struct pool_buffer *pool_cache_next_returned(struct pool_cache *cache);
/* One for threads that are not the owner; the pool's lock. */
struct pool_buffer *pool_cache_next_foreign(struct pool_cache *cache);
/* A buffer left the return stack. */
void pool_cache_returned(struct pool_cache *cache, int64_t bytes);

#endif
