/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* registrations.c - opening the cache when it is first needed, and the public calls about it. */
#include "core/registrations.h"

#include <sluice/memory.h>
#include <stdio.h>
#include <string.h>

#include "common/uncancelled.h"
#include "core/session_table.h"
#include "core/context.h"
#include "core/forked.h"

void regcache_lazy_init(struct regcache_lazy *set) {
    pthread_mutex_init(&set->lock, NULL);
}

void regcache_lazy_close(struct regcache_lazy *set) {
    struct regcache *cache = atomic_exchange(&set->cache, NULL);
    if (cache)
        regcache_close(cache);
    pthread_mutex_destroy(&set->lock);
}

void regcache_lazy_detach(struct regcache_lazy *set) {
    pthread_mutex_lock(&set->lock);
    set->done = true;
    struct regcache *cache = atomic_load(&set->cache);
    if (cache)
        regcache_detach(cache);
    pthread_mutex_unlock(&set->lock);
}

static void open_cache(sluice_node *n) {
    struct regcache_lazy *set = &n->regcache;
    struct regcache *cache;
    struct regcache_stats figures;
    struct regcache_config config = {
        .fabric = n->fabric,
        .pd = n->pd,
        .access = 0, /* this side reads; no peer writes, and no peer gets a key */
        .bytes_max = n->options.registration_bytes_max,
        .told = n->options.registrations == SLUICE_REGISTRATIONS_NOTIFIED,
    };
    set->done = true;
    if (n->options.registrations == SLUICE_REGISTRATIONS_OFF || regcache_open(&cache, &config) != 0)
        return;
    regcache_get_stats(cache, &figures);
    if (!figures.on)
        log_write(&n->log, SLUICE_LOG_INFO,
                  "registrations are not cached, plain memory is copied: %s", figures.why);
    atomic_store_explicit(&set->cache, cache, memory_order_release);
}

struct regcache_entry *regcache_lazy_get(sluice_node *n, const void *addr, size_t bytes) {
    struct regcache_lazy *set = &n->regcache;
    struct regcache *cache = atomic_load_explicit(&set->cache, memory_order_acquire);
    if (!cache && n->options.registrations != SLUICE_REGISTRATIONS_OFF) {
        pthread_mutex_lock(&set->lock);
        if (!set->done)
            open_cache(n);
        pthread_mutex_unlock(&set->lock);
        cache = atomic_load_explicit(&set->cache, memory_order_acquire);
    }
    struct regcache_entry *reg = cache ? regcache_get(cache, addr, bytes) : NULL;
    if (!reg)
        atomic_fetch_add_explicit(&set->copied, 1, memory_order_relaxed);
    return reg;
}

/* ---- calls ------------------------------------------------------------------------------------- */

void sluice_registration_invalidate(const void *addr, size_t bytes) {
    UNCANCELLED;
    if (bytes == 0 || (uintptr_t)addr > UINTPTR_MAX - bytes)
        return;
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        sluice_node *n = context_at(i);
        if (!context_call_begin(n))
            continue;
        struct regcache *cache = atomic_load_explicit(&n->regcache.cache, memory_order_acquire);
        if (cache)
            regcache_gone(cache, addr, bytes);
        context_call_end(n);
    }
}

int sluice_registration_get_info(sluice_node *n, sluice_registration_info *info) {
    UNCANCELLED;
    if (forked_node(n))
        return SLUICE_EFORKED;
    if (!n || !info || info->size < sizeof info->size)
        return SLUICE_EINVAL;
    if (!context_call_begin(n))
        return SLUICE_ECLOSED;
    struct regcache_stats figures = {.on = false};
    struct regcache *cache = atomic_load_explicit(&n->regcache.cache, memory_order_acquire);
    if (cache)
        regcache_get_stats(cache, &figures);
    else
        snprintf(figures.why, sizeof figures.why, "%s",
                 n->options.registrations == SLUICE_REGISTRATIONS_OFF ? "off: by option"
                                                                      : "not used yet");
    sluice_registration_info known = {
        .size = info->size,
        .on = figures.on,
        .entries = figures.entries,
        .bytes = figures.bytes,
        .bytes_max = n->options.registration_bytes_max,
        .hits = figures.hits,
        .misses = figures.misses,
        .dropped = figures.evicted,
        .invalidated = figures.gone,
        .merged = figures.merged,
        .copied = atomic_load_explicit(&n->regcache.copied, memory_order_relaxed),
    };
    memcpy(known.why, figures.why, sizeof known.why);
    context_call_end(n);
    memcpy(info, &known, info->size < sizeof known ? info->size : sizeof known);
    return SLUICE_OK;
}
