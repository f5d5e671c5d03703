/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * refill.c - where buffers come from when the lists have none, and large ones.
 *
 * A thread here holds the slow lock, except while the helper grows the pool for it (grow.h). No request is
 * refused before every kind of free memory was tried.
 *
 * Locks: see internal.h. Any thread.
 */
#include "common/sanitize.h"
#include "common/uncancelled.h"
#include "pool/internal.h"

#define GROW_TRIES 8

/* ---- getting more: slow lock held ------------------------------------------------------------ */

static bool reclaim_spans(struct pool *pool, struct pool_cache *cache) {
    if (cache)
        pool_flush(cache);
    depot_collect(pool);
    bool any = false;
    pthread_mutex_lock(&pool->lock);
    for (unsigned i = 0; i < POOL_CLASSES; i++)
        any |= spans_reclaim(&pool->spans[i]);
    pthread_mutex_unlock(&pool->lock);
    return any;
}

/* Closes the oldest kept mapping while more than these are kept. True if there was one. */
static bool evict_large(struct pool *pool, unsigned keep_count, uint64_t keep_bytes) {
    pthread_mutex_lock(&pool->lock);
    struct large *large = larges_evict(&pool->larges, keep_count, keep_bytes);
    pthread_mutex_unlock(&pool->lock);
    if (!large)
        return false;
    large_close(large, &pool->budget);
    return true;
}

/* Cuts a new span and takes from it before any other thread can. Returns how many. */
static unsigned cut(struct pool *pool, unsigned size_class, uint32_t pages, unsigned max,
                    struct pool_buffer **chain) {
    struct arena *arena;
    uint8_t *addr = arenas_take(&pool->arenas, pages, &arena);
    if (!addr)
        return 0;
    SANITIZE_UNPOISON(addr, pages * POOL_PAGE); /* buffers of another class lay here */
    pthread_mutex_lock(&pool->lock);
    struct spans *spans = &pool->spans[size_class];
    unsigned count = 0;
    if (span_open(spans, pool, size_class, arena, addr, pages, pool->debug))
        count = spans_take(spans, max, chain);
    else
        arena_give(arena, addr, pages);
    pool->out += count;
    pthread_mutex_unlock(&pool->lock);
    return count;
}

static unsigned cut_or_grow(struct pool *pool, unsigned size_class, uint32_t pages, unsigned max,
                            struct pool_buffer **chain) {
    unsigned count = cut(pool, size_class, pages, max, chain);
    if (count == 0 && grow_wait(pool))
        count = cut(pool, size_class, pages, max, chain);
    /* Others may be quicker to take what was added for this thread. */
    for (int i = 0; count == 0 && i < GROW_TRIES && grow_arena(pool, pages * POOL_PAGE); i++)
        count = cut(pool, size_class, pages, max, chain);
    grow_check(pool);
    return count;
}

/*
 * The shared list of a class is empty. In this order: what is on its way back to caches; free pages or
 * a new arena; the empty spans of other classes; the kept large mappings; and the same for a
 * shorter run of pages, down to that of a single buffer.
 */
unsigned refill_more(struct pool *pool, struct pool_cache *cache, unsigned size_class, unsigned max,
                     struct pool_buffer **chain) {
    UNCANCELLED;
    uint32_t pages = span_pages(size_class, SPAN_BEST, pool->debug);
    uint32_t usual = span_pages(size_class, SPAN_USUAL, pool->debug);
    uint32_t least = span_pages(size_class, SPAN_SINGLE, pool->debug);
    pthread_mutex_lock(&pool->slow);
    /* Another thread may have fetched more while this thread waited. */
    unsigned count = depot_take(pool, size_class, max, chain);
    if (count == 0) {
        depot_collect(pool);
        count = depot_take(pool, size_class, max, chain);
    }
    if (count == 0)
        count = cut_or_grow(pool, size_class, pages, max, chain);
    if (count == 0 && reclaim_spans(pool, cache))
        count = cut(pool, size_class, pages, max, chain);
    while (count == 0 && evict_large(pool, 0, 0))
        count = cut_or_grow(pool, size_class, pages, max, chain);
    if (count == 0 && usual < pages)
        count = cut_or_grow(pool, size_class, usual, max, chain);
    if (count == 0)
        count = cut_or_grow(pool, size_class, least, max, chain);
    if (count == 0 && arenas_release(&pool->arenas, &pool->budget, false))
        count = cut_or_grow(pool, size_class, least, max, chain); /* a longer one in their place */
    pthread_mutex_unlock(&pool->slow);
    return count;
}

/* ---- large buffers --------------------------------------------------------------------------- */

static struct large *take_kept(struct pool *pool, size_t bytes) {
    pthread_mutex_lock(&pool->lock);
    struct large *large = larges_take(&pool->larges, bytes);
    pool->out += large != NULL;
    pthread_mutex_unlock(&pool->lock);
    return large;
}

/* Slow lock held: a new mapping, at the cost of whatever is free elsewhere. */
static struct large *map_large(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    struct large *large = take_kept(pool, bytes);
    if (large)
        return large;
    large = grow_large(pool, bytes);
    if (!large && grow_wait(pool))
        large = grow_large(pool, bytes);
    while (!large && evict_large(pool, 0, 0))
        large = grow_large(pool, bytes);
    if (!large) {
        reclaim_spans(pool, cache);
        if (arenas_release(&pool->arenas, &pool->budget, false))
            large = grow_large(pool, bytes);
    }
    pthread_mutex_lock(&pool->lock);
    pool->out += large != NULL;
    pthread_mutex_unlock(&pool->lock);
    return large;
}

struct pool_buffer *refill_large(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    struct large *large = take_kept(pool, bytes);
    if (!large) {
        UNCANCELLED;
        pthread_mutex_lock(&pool->slow);
        large = map_large(pool, cache, bytes);
        pthread_mutex_unlock(&pool->slow);
    }
    return large ? &large->buffer : NULL;
}

void refill_put_large(struct pool *pool, struct pool_buffer *buffer) {
    uint64_t keep_bytes = pool->budget.bytes_max / 2;
    pthread_mutex_lock(&pool->lock);
    larges_keep(&pool->larges, buffer->home);
    pool->out--;
    pool->came_back++;
    pool->waits_for.news = true;
    bool many = pool->larges.kept_count > LARGE_KEPT_MAX || pool->larges.kept_bytes > keep_bytes;
    pthread_mutex_unlock(&pool->lock);
    if (!many)
        return;
    UNCANCELLED;
    pthread_mutex_lock(&pool->slow);
    while (evict_large(pool, LARGE_KEPT_MAX, keep_bytes))
        ;
    pthread_mutex_unlock(&pool->slow);
}
