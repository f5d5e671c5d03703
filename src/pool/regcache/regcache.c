/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * regcache.c - registers memory, keeps the registrations, and ends them when their memory is unmapped.
 *
 * Registering happens without the table's lock; `gone` tells whether any memory was unmapped meanwhile, and then
 * the registration is thrown away and made again.
 */
#include "common/uncancelled.h"
#include "pool/regcache/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TRIES 3
#define EVENTS_MAX 32

static void count_one(_Atomic uint64_t *counter) {
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* ---- ending registrations ----------------------------------------------------------------------- */

/* Registering is locked. False: the device keeps it. */
static bool end_registration(struct regcache *cache, struct regcache_entry *reg) {
    UNCANCELLED;
    if (reg->mr && cache->config.fabric->dereg_mr(reg->mr) != 0)
        return false;
    reg->mr = NULL;
    return true;
}

void regcache_release(struct regcache *cache, struct regcache_entry *reg) {
    if (!regcache_entry_claim(reg))
        return;
    pthread_mutex_lock(&cache->registering);
    bool done = end_registration(cache, reg);
    pthread_mutex_unlock(&cache->registering);
    regcache_lock(cache);
    if (done) { /* else the device keeps it, and it stays counted */
        cache->bytes -= regcache_entry_end(reg) - regcache_entry_start(reg);
        cache->hits += regcache_entry_hits(reg);
        regcache_index_give(&cache->table, reg);
    }
    regcache_unlock(cache);
}

/*
 * Ends entries that other threads left, above all the watching thread: deregistering frees memory, freeing may
 * unmap, and a thread that unmaps watched memory waits for that thread.
 */
static void reap(void *arg) {
    struct regcache *cache = arg;
    for (uint32_t i = 0; i < REGCACHE_ENTRIES; i++)
        if (regcache_entry_is(&cache->table.places[i], REGCACHE_ENTRY_DEAD))
            regcache_release(cache, &cache->table.places[i]);
}

/* A thread that needs room does not wait for the thread that does the same. */
static void reap_left(struct regcache *cache) {
    if (atomic_exchange(&cache->table.left, false))
        reap(cache);
}

static void release_list(struct regcache *cache, struct regcache_entry **list, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        regcache_release(cache, list[i]);
}

/* Locked. Entries that touch [start, end) leave the table; those without a pin are put into list. */
static uint32_t unlink_range(struct regcache *cache, uintptr_t start, uintptr_t end,
                             struct regcache_entry **list, uint32_t *found) {
    uint32_t count = 0, i = regcache_index_find(&cache->table, start);
    for (struct regcache_entry *reg;
         (reg = regcache_index_at(&cache->table, i)) != NULL && regcache_entry_start(reg) < end;) {
        ++*found;
        if (regcache_index_unlink(&cache->table, i))
            list[count++] = reg;
    }
    return count;
}

void regcache_put(struct regcache *cache, struct regcache_entry *reg) {
    if (regcache_entry_unpin(reg))
        regcache_release(cache, reg);
}

/* ---- memory that goes --------------------------------------------------------------------------- */

/* Locked. */
static void range_gone(struct regcache *cache, uintptr_t start, uintptr_t end,
                       struct regcache_entry **list, uint32_t *count) {
    uint32_t found = 0;
    cache->gone_events++;
    *count += unlink_range(cache, start, end, list + *count, &found);
    atomic_fetch_add_explicit(&cache->gone, found, memory_order_relaxed);
}

void regcache_gone(struct regcache *cache, const void *addr, size_t bytes) {
    struct regcache_entry *list[REGCACHE_ENTRIES];
    uint32_t count = 0;
    uintptr_t start = (uintptr_t)addr & ~(cache->page - 1);
    regcache_lock(cache);
    range_gone(cache, start, (uintptr_t)addr + bytes, list, &count);
    regcache_unlock(cache);
    release_list(cache, list, count);
}

/*
 * The watching thread: there is something to read. No more at a time than lookups can wait for; it is called
 * again while there is more.
 */
static void on_event(void *arg) {
    struct regcache *cache = arg;
    struct regcache_entry *list[REGCACHE_ENTRIES];
    uint32_t count = 0;
    uintptr_t start, end;
    regcache_lock(cache);
    struct regcache_index_table *shown =
        regcache_index_withdraw(&cache->table); /* then munmap() returns */
    for (int i = 0; i < EVENTS_MAX && regcache_monitor_read(&cache->watch, &start, &end); i++)
        range_gone(cache, start, end, list, &count);
    regcache_index_restore(&cache->table, shown);
    if (count > 0)
        regcache_index_leave(&cache->table);
    regcache_unlock(cache);
}

/* ---- adding --------------------------------------------------------------------------------------- */

/* Registering is locked. NULL and *error. */
static struct ibv_mr *watch_and_register(struct regcache *cache, uintptr_t start, uintptr_t end,
                                         int *error) {
    const struct regcache_config *config = &cache->config;
    struct ibv_mr *mr = NULL;
    *error = cache->gone_device ? EOPNOTSUPP
             : config->told     ? 0
                                : regcache_monitor_add(&cache->watch, start, end);
    if (*error == 0) {
        errno = 0;
        mr = config->fabric->reg_mr(config->pd, (void *)start, end - start, config->access);
        *error = mr ? 0 : errno ? errno : ENOMEM;
    }
    return mr;
}

/* Puts a registration that was just made into the table, pinned. False: memory went away meanwhile. */
static bool enter(struct regcache *cache, struct regcache_entry *reg, uintptr_t start,
                  uintptr_t end, struct ibv_mr *mr, uint64_t events) {
    struct regcache_entry *list[REGCACHE_ENTRIES];
    uint32_t count = 0, found = 0;
    regcache_lock(cache);
    bool stale = cache->gone_events != events;
    if (!stale) {
        count = unlink_range(cache, start, end, list, &found);
        atomic_store_explicit(&reg->start, start, memory_order_relaxed);
        atomic_store_explicit(&reg->end, end, memory_order_relaxed);
        reg->mr = mr;
        reg->lkey = mr->lkey;
        atomic_store(&reg->used, atomic_fetch_add(&cache->tick, 1) + 1);
        atomic_store(&reg->state, REGCACHE_ENTRY_PIN);
        regcache_index_link(&cache->table, reg);
        regcache_index_show(&cache->table);
    }
    regcache_unlock(cache);
    if (stale)
        cache->config.fabric->dereg_mr(mr);
    pthread_mutex_unlock(&cache->registering);
    release_list(cache, list, count);
    atomic_fetch_add_explicit(&cache->merged, found, memory_order_relaxed);
    return !stale;
}

/*
 * Registering is locked. Threads that miss the same at the same time come here one after the other: the
 * first registers it, the others find that.
 */
static struct regcache_entry *made_meanwhile(struct regcache *cache, uintptr_t start,
                                             uintptr_t end) {
    uint64_t hits = 0;
    struct regcache_entry *reg =
        cache->gone_device ? NULL : regcache_index_lookup_locked(&cache->table, start, end, &hits);
    if (!reg)
        return NULL;
    atomic_fetch_add_explicit(&cache->hits, hits, memory_order_relaxed);
    atomic_fetch_sub_explicit(&cache->misses, 1, memory_order_relaxed); /* it was none after all */
    return reg;
}

/*
 * One try. 0 and *out pinned; EAGAIN: memory went away meanwhile; or another errno. *wide: with what overlaps or
 * adjoins; false afterwards if there was none.
 */
static int add(struct regcache *cache, uintptr_t start, uintptr_t end, bool *wide,
               struct regcache_entry **out) {
    int error = 0;
    uintptr_t from = start, to = end;
    regcache_lock(cache);
    uint64_t events = cache->gone_events;
    if (*wide)
        regcache_index_widen(&cache->table, &start, &end, cache->config.bytes_max / 4);
    *wide = end - start > to - from;
    regcache_unlock(cache);
    struct regcache_entry *reg = regcache_evict_reserve(cache, end - start);
    if (!reg)
        return errno;
    pthread_mutex_lock(&cache->registering);
    *out = made_meanwhile(cache, from, to);
    struct ibv_mr *mr = *out ? NULL : watch_and_register(cache, start, end, &error);
    if (!mr)
        pthread_mutex_unlock(&cache->registering);
    else if (enter(cache, reg, start, end, mr, events)) /* which unlocks */
        *out = reg;
    else
        error = EAGAIN;
    if (*out != reg)
        regcache_evict_unreserve(cache, reg, end - start);
    return error;
}

static struct regcache_entry *find(struct regcache *cache, uintptr_t start, uintptr_t end) {
    bool locked;
    uint64_t hits = 0;
    struct regcache_entry *reg = regcache_index_lookup(&cache->table, start, end, &locked, &hits);
    if (locked)
        reg = regcache_index_lookup_locked(&cache->table, start, end, &hits);
    if (hits > 0) /* also where none was found: see regcache_index_lookup() */
        atomic_fetch_add_explicit(&cache->hits, hits, memory_order_relaxed);
    if (!reg) {
        count_one(&cache->misses);
        return NULL;
    }
    uint32_t tick = atomic_load_explicit(&cache->tick, memory_order_relaxed);
    if (atomic_load_explicit(&reg->used, memory_order_relaxed) != tick)
        atomic_store_explicit(&reg->used, tick, memory_order_relaxed);
    return reg;
}

struct regcache_entry *regcache_get(struct regcache *cache, const void *addr, size_t bytes) {
    uintptr_t start = (uintptr_t)addr, end = start + bytes, rest = cache->page - 1;
    bool on = atomic_load_explicit(&cache->on, memory_order_acquire);
    if (!on || bytes == 0 || end < start || end > UINTPTR_MAX - cache->page) {
        errno = on ? EINVAL : EOPNOTSUPP;
        return NULL;
    }
    struct regcache_entry *reg = find(cache, start, end);
    if (reg)
        return reg;
    reap_left(cache);
    int error = EAGAIN;
    bool wide = true;
    for (int i = 0; i < TRIES && (error == EAGAIN || (error != 0 && wide)); i++) {
        /* A neighbour may not be to be registered any more, or there is no room for all: then alone. */
        wide = error == EAGAIN;
        error = add(cache, start & ~rest, (end + rest) & ~rest, &wide, &reg);
    }
    uint64_t wanted = ((end + rest) & ~rest) - (start & ~rest);
    for (uint32_t i = 0;
         error == ENOMEM && i < REGCACHE_ENTRIES && regcache_evict_idle(cache, &wanted); i++) {
        wide = false;
        error = add(cache, start & ~rest, (end + rest) & ~rest, &wide, &reg);
    }
    if (error != 0)
        errno = error;
    return reg;
}

/* ---- open and close -------------------------------------------------------------------------------- */

/* Whether the kernel or the application reports unmapped memory, and there is a thread for grace periods. */
static bool turn_on(struct regcache *cache) {
    if (cache->config.told)
        snprintf(cache->why, sizeof cache->why, "the application reports unmapped memory");
    else
        cache->watched =
            regcache_monitor_open(&cache->watch, on_event, cache, cache->why, sizeof cache->why);
    if (!cache->config.told && !cache->watched)
        return false;
    int error = regcache_index_start(&cache->table, reap, cache);
    if (error != 0)
        snprintf(cache->why, sizeof cache->why, "off: no thread: %s", strerror(error));
    return error == 0;
}

int regcache_open(struct regcache **out, const struct regcache_config *config) {
    struct regcache *cache = calloc(1, sizeof *cache);
    if (!cache || !regcache_index_open(&cache->table)) {
        free(cache);
        return -ENOMEM;
    }
    cache->config = *config;
    if (config->entries_max == 0 || config->entries_max > REGCACHE_ENTRIES)
        cache->config.entries_max = REGCACHE_ENTRIES;
    cache->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    pthread_mutex_init(&cache->registering, NULL);
    cache->on = turn_on(cache);
    *out = cache;
    return 0;
}

void regcache_detach(struct regcache *cache) {
    pthread_mutex_lock(&cache->registering);
    cache->gone_device = true;
    if (atomic_exchange(&cache->on, false))
        snprintf(cache->why, sizeof cache->why, "off: the device is gone");
    for (uint32_t i = 0; i < REGCACHE_ENTRIES; i++)
        end_registration(cache, &cache->table.places[i]);
    pthread_mutex_unlock(&cache->registering);
}

void regcache_close(struct regcache *cache) {
    if (cache->watched)
        regcache_monitor_close(&cache->watch); /* ends the watch over every range */
    regcache_index_stop(&cache->table);
    for (uint32_t i = 0; i < REGCACHE_ENTRIES; i++)
        end_registration(cache, &cache->table.places[i]);
    regcache_index_close(&cache->table);
    pthread_mutex_destroy(&cache->registering);
    free(cache);
}

void regcache_get_stats(struct regcache *cache, struct regcache_stats *out) {
    *out = (struct regcache_stats){.on = atomic_load(&cache->on)};
    reap_left(cache);
    out->misses = atomic_load(&cache->misses);
    out->merged = atomic_load(&cache->merged);
    out->evicted = atomic_load(&cache->evicted);
    out->gone = atomic_load(&cache->gone);
    regcache_lock(cache);
    out->hits = atomic_load(&cache->hits);
    for (uint32_t i = 0; i < REGCACHE_ENTRIES; i++)
        out->hits += regcache_entry_hits(&cache->table.places[i]);
    out->bytes = cache->bytes;
    out->entries = cache->table.count;
    regcache_unlock(cache);
    pthread_mutex_lock(&cache->registering);
    memcpy(out->why, cache->why, sizeof out->why);
    if (cache->gone_device)
        out->bytes = out->entries = 0;
    pthread_mutex_unlock(&cache->registering);
}
