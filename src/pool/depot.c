/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * depot.c - the lists of free buffers that every thread may take from.
 *
 * A free buffer is in a magazine, on the return stack of a cache, or in the list of its class
 * here. A buffer here belongs to no cache, and only buffers here make a span empty.
 *
 * Locks: see internal.h; every function takes the lock itself, where it does not say otherwise.
 */
#include "pool/internal.h"

/* The lock. News for waiting threads: a buffer of the class they want, or pages for any buffer. */
static void add(struct pool *pool, struct pool_buffer *buffer) {
    unsigned size_class = buffer->size_class;
    pool->out--;
    pool->came_back++;
    if (spans_give(&pool->spans[size_class], buffer) || (pool->waits_for.wanted >> size_class & 1))
        pool->waits_for.news = true;
}

static void add_chain(struct pool *pool, struct pool_buffer *chain) {
    for (struct pool_buffer *buffer = chain, *next; buffer; buffer = next) {
        next = buffer->next;
        add(pool, buffer);
    }
}

void depot_give(struct pool *pool, struct pool_buffer *chain) {
    if (!chain)
        return;
    pthread_mutex_lock(&pool->lock);
    add_chain(pool, chain);
    pthread_mutex_unlock(&pool->lock);
}

/* The lock. Only the classes that the cache used: each return does this while a thread waits. */
static bool flush(struct pool *pool, struct pool_cache *cache) {
    struct pool_buffer *buffer;
    for (uint64_t left = cache->seen; left != 0; left &= left - 1) {
        struct magazines *bin = &cache->bin[__builtin_ctzll(left)];
        if (bin->active || bin->spare)
            add_chain(pool, magazine_empty(bin));
    }
    while ((buffer = pool_cache_next_returned(cache)) != NULL ||
           (buffer = pool_cache_next_foreign(cache)) != NULL) {
        pool_cache_returned(cache, slot_bytes(buffer));
        count_add(&cache->bin[buffer->size_class].returned, 1);
        add(pool, buffer);
    }
    return !cache->pending;
}

/* The lock. */
static void collect(struct pool *pool) {
    struct pool_buffer *buffer;
    for (struct pool_cache *cache = pool->caches; cache; cache = cache->next)
        while ((buffer = pool_cache_next_foreign(cache)) != NULL ||
               (!cache->open && (buffer = pool_cache_next_returned(cache)) != NULL)) {
            pool_cache_returned(cache, slot_bytes(buffer));
            add(pool, buffer);
        }
}

bool depot_gather(struct pool *pool, struct pool_cache *cache) {
    bool all = !cache || flush(pool, cache);
    collect(pool);
    return all;
}

void pool_flush(struct pool_cache *cache) {
    pthread_mutex_lock(&cache->pool->lock);
    flush(cache->pool, cache);
    pthread_mutex_unlock(&cache->pool->lock);
}

void depot_collect(struct pool *pool) {
    pthread_mutex_lock(&pool->lock);
    collect(pool);
    pthread_mutex_unlock(&pool->lock);
}

unsigned depot_take(struct pool *pool, unsigned size_class, unsigned max,
                    struct pool_buffer **chain) {
    pthread_mutex_lock(&pool->lock);
    unsigned count = spans_take(&pool->spans[size_class], max, chain);
    pool->out += count;
    pthread_mutex_unlock(&pool->lock);
    return count;
}
