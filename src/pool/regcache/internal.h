/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * internal.h - what the files of the registration cache share: regcache.c has the lookups, what is added
 * and what is removed; evict.c the limits, and which entry makes room for which.
 *
 * Owner and locks: see regcache.h.
 */
#ifndef POOL_REGCACHE_INTERNAL_H
#define POOL_REGCACHE_INTERNAL_H

#include <pthread.h>

#include "pool/regcache/regcache.h"
#include "pool/regcache/monitor.h"

struct regcache {
    struct regcache_index table;
    _Atomic uint32_t tick;
    pthread_mutex_t registering;
    struct regcache_config config;
    uintptr_t page;
    uint64_t gone_events; /* the table's lock */
    uint64_t bytes;       /* the table's lock: of entries, and of what is being made or ended */
    bool gone_device;     /* registering */
    bool watched;         /* there is a watching thread */
    _Atomic bool on;
    char why[120];
    struct regcache_monitor watch;
    _Atomic uint64_t hits; /* but for those that the entries count */
    _Atomic uint64_t misses, merged, evicted, gone;
};

static inline void regcache_lock(struct regcache *cache) {
    pthread_mutex_lock(&cache->table.lock);
}

static inline void regcache_unlock(struct regcache *cache) {
    pthread_mutex_unlock(&cache->table.lock);
}

/* Ends a dead registration; for the thread that finds it without a pin first. Without the locks. */
void regcache_release(struct regcache *cache, struct regcache_entry *reg);

/* ---- evict.c: without the locks ----------------------------------------------------------------- */

/*
 * A place for one more registration of so many bytes, which are counted from now on; the least recently
 * used ones without a pin make room. NULL and ENOSPC: everything within the limits is pinned.
 */
struct regcache_entry *regcache_evict_reserve(struct regcache *cache, uint64_t bytes);
/* The place was not used. */
void regcache_evict_unreserve(struct regcache *cache, struct regcache_entry *reg, uint64_t bytes);
/*
 * A registration that the system refuses for want of lockable memory may succeed once idle registrations are
 * given back, the least recently used first. Gives back as many bytes as are wanted: if these do not help, they were
 * not the cause. False: no more.
 */
bool regcache_evict_idle(struct regcache *cache, uint64_t *wanted);

#endif
