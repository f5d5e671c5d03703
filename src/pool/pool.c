/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool.c - opening and closing a pool and its caches.
 *
 * How many buffers of each class a cache may hold, and how many bytes may be on their way back to one, follow from the
 * pool's cap and are constant. A cache is not freed before its pool: see magazine.h.
 *
 * Locks: see internal.h. Any thread.
 */
#include "pool/pool.h"

#include <errno.h>
#include <stdlib.h>

#include "base/barrier.h"
#include "pool/internal.h"

#define CACHE_BYTES ((uint64_t)1 << 20) /* of one class, in one cache, at most */
#define CACHE_COUNT_MAX 256
#define RETURN_BYTES_MIN ((uint64_t)16 << 10)

/* ---- open and close -------------------------------------------------------------------------- */

int pool_open(struct pool **out, const struct pool_config *config) {
    uint64_t bytes_max = config->bytes_max;
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return -ENOMEM;
    barrier_init();
    pool->debug = debug_wanted();
    pool->budget = (struct budget){
        .fabric = config->fabric, .pd = config->pd, .bytes_max = bytes_max, .wish = config->wish};
    arenas_init(&pool->arenas, &pool->budget);
    larges_init(&pool->larges);
    uint64_t cache_bytes = bytes_max / 256 < CACHE_BYTES ? bytes_max / 256 : CACHE_BYTES;
    for (unsigned i = 0; i < POOL_CLASSES; i++) {
        uint64_t count = cache_bytes / class_slot(i, pool->debug);
        count = count < 2 ? 2 : count > CACHE_COUNT_MAX ? CACHE_COUNT_MAX : count;
        pool->magazine_max[i] = (uint16_t)(count / 2);
    }
    uint64_t return_bytes = bytes_max / 64;
    pool->return_bytes_max =
        (int64_t)(return_bytes < RETURN_BYTES_MIN ? RETURN_BYTES_MIN : return_bytes);
    /* A shortage of memory or of the right to lock it is told here, not at the first message. */
    int error = arenas_grow(&pool->arenas, &pool->budget, POOL_PAGE);
    if (error != 0) {
        free(pool);
        return error;
    }
    pthread_mutex_init(&pool->slow, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    grow_init(pool);
    *out = pool;
    return 0;
}

/* Runs as refill.c cuts them: long ones first, then shorter ones of what is left. */
static uint64_t arena_holds(uint64_t pages, unsigned size_class, bool marked) {
    static const enum span_size sizes[] = {SPAN_BEST, SPAN_USUAL, SPAN_SINGLE};
    uint64_t count = 0;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t run = span_pages(size_class, sizes[i], marked);
        count += pages / run * (run * POOL_PAGE / class_slot(size_class, marked));
        pages %= run;
    }
    return count;
}

uint64_t pool_holds(uint64_t bytes_max, size_t bytes) {
    uint64_t count = 0, left = bytes_max, step = ARENA_FIRST;
    for (; left >= POOL_PAGE; step = step < ARENA_LARGEST ? 2 * step : step) {
        uint64_t arena = step < left ? step : left;
        count += arena_holds(arena / POOL_PAGE, class_of(bytes), debug_wanted());
        left -= arena;
    }
    return count;
}

void pool_close(struct pool *pool) {
    grow_stop(pool);
    if (pool->debug)
        debug_leaks(pool);
    for (struct pool_cache *cache = pool->caches, *next; cache; cache = next) {
        next = cache->next;
        free(cache);
    }
    for (unsigned i = 0; i < POOL_CLASSES; i++)
        spans_free(&pool->spans[i]);
    larges_close(&pool->larges, &pool->budget);
    arenas_release(&pool->arenas, &pool->budget, true);
    pthread_mutex_destroy(&pool->lock);
    pthread_mutex_destroy(&pool->slow);
    free(pool);
}

void pool_detach(struct pool *pool) {
    pthread_mutex_lock(&pool->slow);
    atomic_store(&pool->budget.pd, NULL);
    grow_wait(pool); /* what it registers now belongs to that device still */
    arenas_detach(&pool->arenas, &pool->budget);
    for (struct large *large = pool->larges.all; large; large = large->all_next)
        block_detach(&large->block, &pool->budget);
    pthread_mutex_unlock(&pool->slow);
}

/* ---- caches ---------------------------------------------------------------------------------- */

static struct pool_cache *cache_new(struct pool *pool, uint16_t number) {
    struct pool_cache *cache = pool_cache_new(pool, number);
    if (!cache || pool->debug) /* which looks at every buffer */
        return cache;
    cache->quick_bytes = CLASS_BYTES_MAX;
    for (unsigned i = 0; i < POOL_CLASSES; i++)
        cache->bin[i].quick_max = pool->magazine_max[i];
    return cache;
}

struct pool_cache *pool_cache_open(struct pool *pool) {
    pthread_mutex_lock(&pool->lock);
    struct pool_cache *cache = pool->caches;
    while (cache && cache->open)
        cache = cache->next;
    if (!cache) {
        unsigned number = pool->cache_count + 1;
        cache = cache_new(pool, (uint16_t)(number < POOL_CACHES_MAX ? number : 0));
        if (cache) {
            pool->cache_count++;
            cache->next = pool->caches;
            pool->caches = cache;
            if (cache->number != 0)
                atomic_store_explicit(&pool->by_number[number], cache, memory_order_release);
        }
    }
    if (cache) {
        cache->open = true;
        atomic_store_explicit(&cache->home.closed, false, memory_order_relaxed);
    }
    pthread_mutex_unlock(&pool->lock);
    return cache;
}

void pool_cache_close(struct pool_cache *cache) {
    struct pool *pool = cache->pool;
    atomic_store_explicit(&cache->home.closed, true, memory_order_relaxed);
    pool_flush(cache);
    pthread_mutex_lock(&pool->lock);
    for (unsigned i = 0; i <= POOL_CLASSES; i++) {
        struct magazines *bin = &cache->bin[i];
        atomic_fetch_add(&pool->gets[i], atomic_exchange(&bin->gets, 0));
        atomic_fetch_add(&pool->puts[i], atomic_exchange(&bin->puts, 0));
        if (cache->seen >> i & 1)
            atomic_fetch_or(&pool->seen, (uint64_t)1 << i);
        atomic_store(&bin->brought, 0); /* both magazines are empty now */
        atomic_store(&bin->returned, 0);
        atomic_store(&bin->refills, 0);
    }
    cache->open = false;
    pthread_mutex_unlock(&pool->lock);
    pool_wake(pool);
}
