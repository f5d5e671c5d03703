/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * evict.c - room for one more registration: within the cache's limits, and within the system's.
 *
 * Owner and locks: see regcache.h.
 */
#include "pool/regcache/internal.h"

#include <errno.h>

/* Locked. The least recently used entry without a pin leaves the table. False: there is none. */
static bool evict(struct regcache *cache, struct regcache_entry **out) {
    uint32_t oldest = regcache_index_oldest(&cache->table, atomic_load(&cache->tick));
    struct regcache_entry *reg = regcache_index_at(&cache->table, oldest);
    if (!reg)
        return false;
    *out = regcache_index_unlink(&cache->table, oldest) ? reg : NULL; /* NULL: pinned just now */
    atomic_fetch_add_explicit(&cache->evicted, 1, memory_order_relaxed);
    return true;
}

/* A place for one more entry of so many bytes, which are promised. NULL: *evicted may have made room. */
static struct regcache_entry *try_room(struct regcache *cache, uint64_t bytes,
                                       struct regcache_entry **evicted, bool *more) {
    const struct regcache_config *config = &cache->config;
    struct regcache_entry *reg = NULL;
    *evicted = NULL;
    regcache_lock(cache);
    uint32_t taken = REGCACHE_ENTRIES - cache->table.unused_count;
    if (cache->bytes <= config->bytes_max - bytes && taken < config->entries_max) {
        reg = regcache_index_take(&cache->table);
        cache->bytes += bytes;
    } else {
        *more = evict(cache, evicted);
    }
    regcache_unlock(cache);
    return reg;
}

struct regcache_entry *regcache_evict_reserve(struct regcache *cache, uint64_t bytes) {
    bool more = bytes <= cache->config.bytes_max;
    for (uint32_t i = 0; more && i <= REGCACHE_ENTRIES; i++) {
        struct regcache_entry *evicted, *reg = try_room(cache, bytes, &evicted, &more);
        if (evicted)
            regcache_release(cache, evicted);
        if (reg)
            return reg;
    }
    errno = ENOSPC;
    return NULL;
}

bool regcache_evict_idle(struct regcache *cache, uint64_t *wanted) {
    struct regcache_entry *evicted = NULL;
    regcache_lock(cache);
    bool more = *wanted > 0 && evict(cache, &evicted);
    uint64_t bytes = evicted ? regcache_entry_end(evicted) - regcache_entry_start(evicted) : 0;
    regcache_unlock(cache);
    *wanted -= bytes < *wanted ? bytes : *wanted;
    if (evicted)
        regcache_release(cache, evicted);
    return more;
}

void regcache_evict_unreserve(struct regcache *cache, struct regcache_entry *reg, uint64_t bytes) {
    regcache_lock(cache);
    cache->bytes -= bytes;
    regcache_index_give(&cache->table, reg);
    regcache_unlock(cache);
}
