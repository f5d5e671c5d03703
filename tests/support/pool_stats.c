/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* pool_stats.c - see pool_stats.h. Lists are read under their lock, counters with one writer without. */
#include "support/pool_stats.h"

#include "pool/internal.h"

static uint64_t see(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_acquire);
}

uint64_t pool_bytes_max(const struct pool *pool) {
    return pool->budget.bytes_max;
}

static void add_bin(struct pool_count *count, const struct magazines *bin) {
    count->cached += magazine_count_seen(bin);
    count->cached += count_of(&bin->spare_count);
    count->returned += see(&bin->returned);
    count->refills += see(&bin->refills);
}

void pool_cache_get_stats(const struct pool_cache *cache, struct pool_count *out) {
    *out = (struct pool_count){0};
    for (unsigned i = 0; i <= POOL_CLASSES; i++) {
        out->puts += see(&cache->bin[i].puts);
        out->gets += see(&cache->bin[i].gets);
        add_bin(out, &cache->bin[i]);
    }
}

void pool_get_stats(struct pool *pool, struct pool_stats *out) {
    *out = (struct pool_stats){.bytes = pool_bytes(pool), .bytes_max = pool_bytes_max(pool)};
    pthread_mutex_lock(&pool->slow);
    out->pages_free = arenas_free_bytes(&pool->arenas);
    pthread_mutex_unlock(&pool->slow);
    out->grown_ahead = see(&pool->grower.ahead);
    out->grown_on_demand = see(&pool->grower.in_need);
    for (int i = 0; i < HUGEPAGES_KINDS; i++)
        out->kind[i] = (uint64_t)atomic_load(&pool->budget.report.kind[i]);
    out->numa_bound = (uint64_t)atomic_load(&pool->budget.report.bound);
    out->huge_missed = (uint64_t)atomic_load(&pool->budget.report.missed);
    out->alloc_waits = see(&pool->alloc_waits);
    out->alloc_wakeups = see(&pool->alloc_wakeups);
    pthread_mutex_lock(&pool->lock);
    for (unsigned i = 0; i <= POOL_CLASSES; i++) {
        struct pool_count *count = &out->count[i];
        /* Returns first: what is handed out in between then counts too much, never below zero. */
        count->puts = see(&pool->puts[i]);
        for (const struct pool_cache *cache = pool->caches; cache; cache = cache->next)
            count->puts += see(&cache->bin[i].puts);
        count->gets = see(&pool->gets[i]);
        for (const struct pool_cache *cache = pool->caches; cache; cache = cache->next) {
            count->gets += see(&cache->bin[i].gets);
            add_bin(count, &cache->bin[i]);
        }
    }
    for (unsigned i = 0; i < POOL_CLASSES; i++)
        for (const struct span *span = pool->spans[i].list; span; span = span->next)
            out->shared[i] += span->slots_free;
    pthread_mutex_unlock(&pool->lock);
}

uint64_t pool_in_use(struct pool *pool) {
    struct pool_stats stats;
    uint64_t in_use = 0;
    pool_get_stats(pool, &stats);
    for (unsigned i = 0; i <= POOL_CLASSES; i++)
        in_use += stats.count[i].gets - stats.count[i].puts;
    return in_use;
}

void pool_grow_settle(struct pool *pool) {
    pthread_mutex_lock(&pool->slow);
    grow_wait(pool);
    pthread_mutex_unlock(&pool->slow);
}
