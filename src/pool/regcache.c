/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * regcache.c - the table, lookups without a lock, and registering outside of it.
 *
 * The table is an array of entry numbers sorted by address. A writer holds the lock and keeps the
 * sequence odd. Registering happens without the lock; `gone` tells whether any memory went away
 * meanwhile, and then the registration is thrown away and made again.
 */
#include "pool/regcache.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/regwatch.h"

#define DEAD 0x80000000u /* in no table: deregistered with its last pin */
#define FREE 0x40000000u /* not in use */
#define TRIES 3

struct regcache {
    _Atomic uint64_t sequence; /* odd: being changed */
    _Atomic uint32_t count, tick;
    _Atomic bool left; /* entries the watching thread took out are to be deregistered */
    _Atomic uint16_t order[REGCACHE_ENTRIES];
    struct reg regs[REGCACHE_ENTRIES];
    pthread_mutex_t registering, lock;
    struct regcache_config config;
    uintptr_t page;
    uint64_t gone_events; /* lock */
    uint64_t bytes;       /* lock: of entries that are not free */
    bool gone_device;     /* registering */
    bool watched;         /* there is a watching thread */
    _Atomic bool on;
    char why[120];
    struct regwatch watch;
    _Atomic uint64_t hits, misses, merged, evicted, gone;
};

static void count_one(_Atomic uint64_t *counter) {
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* ---- changing the table: the lock --------------------------------------------------------------- */

static void change_begin(struct regcache *cache) {
    pthread_mutex_lock(&cache->lock);
    atomic_fetch_add(&cache->sequence, 1);
}

static void change_end(struct regcache *cache) {
    atomic_fetch_add(&cache->sequence, 1);
    pthread_mutex_unlock(&cache->lock);
}

/* The first entry that ends behind an address; the count if there is none. */
static uint32_t find(struct regcache *cache, uintptr_t addr) {
    uint32_t low = 0, high = atomic_load_explicit(&cache->count, memory_order_acquire);
    if (high > REGCACHE_ENTRIES)
        return 0; /* cannot be; a lookup would notice by the sequence */
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        uint16_t at = atomic_load_explicit(&cache->order[middle], memory_order_acquire);
        if (atomic_load_explicit(&cache->regs[at].end, memory_order_acquire) <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct reg *reg_at(struct regcache *cache, uint32_t i) {
    if (i >= atomic_load_explicit(&cache->count, memory_order_acquire) || i >= REGCACHE_ENTRIES)
        return NULL;
    return &cache->regs[atomic_load_explicit(&cache->order[i], memory_order_acquire)];
}

/* Takes an entry out of the table. True: nobody has it pinned, so the caller deregisters it. */
static bool unlink_at(struct regcache *cache, uint32_t i) {
    struct reg *reg = reg_at(cache, i);
    uint32_t count = atomic_load(&cache->count);
    for (; i + 1 < count; i++)
        atomic_store(&cache->order[i], atomic_load(&cache->order[i + 1]));
    atomic_store(&cache->count, count - 1);
    return atomic_fetch_or(&reg->state, DEAD) == 0;
}

static void link_reg(struct regcache *cache, struct reg *reg) {
    uint32_t count = atomic_load(&cache->count);
    uint32_t at = find(cache, atomic_load(&reg->start));
    for (uint32_t i = count; i > at; i--)
        atomic_store(&cache->order[i], atomic_load(&cache->order[i - 1]));
    atomic_store(&cache->order[at], (uint16_t)(reg - cache->regs));
    atomic_store(&cache->count, count + 1);
}

/* Registering is locked. False: the device keeps it. */
static bool end_registration(struct regcache *cache, struct reg *reg) {
    if (reg->mr && cache->config.fabric->dereg_mr(reg->mr) != 0)
        return false;
    reg->mr = NULL;
    return true;
}

/* Out of the table: deregistered by whoever finds it without a pin first. Without the locks. */
static void release(struct regcache *cache, struct reg *reg) {
    uint32_t dead = DEAD;
    if (!atomic_compare_exchange_strong(&reg->state, &dead, DEAD | FREE))
        return;
    uint64_t bytes = atomic_load(&reg->end) - atomic_load(&reg->start);
    pthread_mutex_lock(&cache->registering);
    bool done = end_registration(cache, reg);
    pthread_mutex_unlock(&cache->registering);
    pthread_mutex_lock(&cache->lock);
    if (done) { /* else the device keeps it, and it stays counted */
        cache->bytes -= bytes;
        atomic_store(&reg->state, FREE);
    }
    pthread_mutex_unlock(&cache->lock);
}

/*
 * What the watching thread left: deregistering frees memory, freeing may unmap, and who unmaps watched
 * memory waits for that thread.
 */
static void reap(struct regcache *cache) {
    if (!atomic_exchange(&cache->left, false))
        return;
    for (uint32_t i = 0; i < cache->config.entries_max; i++)
        if (atomic_load_explicit(&cache->regs[i].state, memory_order_relaxed) == DEAD)
            release(cache, &cache->regs[i]);
}

static void release_list(struct regcache *cache, struct reg **list, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        release(cache, list[i]);
}

/* Entries that touch [start, end) leave the table; those without a pin are put into list. */
static uint32_t unlink_range(struct regcache *cache, uintptr_t start, uintptr_t end,
                             struct reg **list, uint32_t *found) {
    uint32_t count = 0, i = find(cache, start);
    for (struct reg *reg; (reg = reg_at(cache, i)) != NULL && atomic_load(&reg->start) < end;) {
        ++*found;
        if (unlink_at(cache, i))
            list[count++] = reg;
    }
    return count;
}

/* ---- memory that goes --------------------------------------------------------------------------- */

static void range_gone(struct regcache *cache, uintptr_t start, uintptr_t end, struct reg **list,
                       uint32_t *count) {
    uint32_t found = 0;
    cache->gone_events++;
    *count += unlink_range(cache, start, end, list + *count, &found);
    atomic_fetch_add_explicit(&cache->gone, found, memory_order_relaxed);
}

void regcache_gone(struct regcache *cache, const void *addr, size_t bytes) {
    struct reg *list[REGCACHE_ENTRIES];
    uint32_t count = 0;
    uintptr_t start = (uintptr_t)addr & ~(cache->page - 1);
    change_begin(cache);
    range_gone(cache, start, (uintptr_t)addr + bytes, list, &count);
    change_end(cache);
    release_list(cache, list, count);
}

/* The watching thread: there is something to read. */
static void on_event(void *arg) {
    struct regcache *cache = arg;
    struct reg *list[REGCACHE_ENTRIES];
    uint32_t count = 0;
    uintptr_t start, end;
    change_begin(cache); /* before it is read: then munmap() returns */
    while (regwatch_read(&cache->watch, &start, &end))
        range_gone(cache, start, end, list, &count);
    change_end(cache);
    if (count > 0)
        atomic_store(&cache->left, true);
}

/* ---- lookups ------------------------------------------------------------------------------------ */

static bool pin(struct reg *reg) {
    uint32_t state = atomic_load_explicit(&reg->state, memory_order_relaxed);
    do {
        if (state & (DEAD | FREE))
            return false;
    } while (!atomic_compare_exchange_weak(&reg->state, &state, state + 1));
    return true;
}

static bool covers(const struct reg *reg, uintptr_t start, uintptr_t end) {
    return atomic_load_explicit(&reg->start, memory_order_acquire) <= start &&
           atomic_load_explicit(&reg->end, memory_order_acquire) >= end;
}

static struct reg *touch(struct regcache *cache, struct reg *reg) {
    uint32_t tick = atomic_load_explicit(&cache->tick, memory_order_relaxed);
    if (atomic_load_explicit(&reg->used, memory_order_relaxed) != tick)
        atomic_store_explicit(&reg->used, tick, memory_order_relaxed);
    count_one(&cache->hits);
    return reg;
}

/* Without the lock. False: the table changed meanwhile, *out means nothing. */
static bool look(struct regcache *cache, uintptr_t start, uintptr_t end, struct reg **out) {
    uint64_t before = atomic_load_explicit(&cache->sequence, memory_order_acquire);
    if (before & 1)
        return false;
    struct reg *reg = reg_at(cache, find(cache, start));
    bool pinned = reg && covers(reg, start, end) && pin(reg);
    /* In the one order of all these: either this load sees the change, or the change sees the pin. */
    if (atomic_load(&cache->sequence) != before) {
        if (pinned)
            regcache_put(cache, reg);
        return false;
    }
    *out = pinned ? reg : NULL;
    return true;
}

static struct reg *look_locked(struct regcache *cache, uintptr_t start, uintptr_t end) {
    pthread_mutex_lock(&cache->lock);
    struct reg *reg = reg_at(cache, find(cache, start));
    if (reg && !(covers(reg, start, end) && pin(reg)))
        reg = NULL;
    pthread_mutex_unlock(&cache->lock);
    return reg;
}

void regcache_put(struct regcache *cache, struct reg *reg) {
    if (atomic_fetch_sub(&reg->state, 1) == (DEAD | 1))
        release(cache, reg);
}

/* ---- adding --------------------------------------------------------------------------------------- */

/* What overlaps or adjoins makes the range larger, as long as it stays a small part of the limit. */
static void widen(struct regcache *cache, uintptr_t *start, uintptr_t *end) {
    uint32_t i = find(cache, *start > 0 ? *start - 1 : 0);
    uintptr_t low = *start, high = *end;
    for (struct reg *reg; (reg = reg_at(cache, i)) != NULL && atomic_load(&reg->start) <= high;
         i++) {
        low = atomic_load(&reg->start) < low ? atomic_load(&reg->start) : low;
        high = atomic_load(&reg->end) > high ? atomic_load(&reg->end) : high;
    }
    if (high - low <= cache->config.bytes_max / 4) {
        *start = low;
        *end = high;
    }
}

/* The least recently used entry without a pin; the lock. */
static bool evict(struct regcache *cache, struct reg **list, uint32_t *count) {
    uint32_t tick = atomic_load(&cache->tick), oldest = 0, best = UINT32_MAX;
    uint32_t all = atomic_load(&cache->count);
    for (uint32_t i = 0; i < all; i++) {
        struct reg *reg = reg_at(cache, i);
        uint32_t age = tick - atomic_load(&reg->used);
        if (atomic_load(&reg->state) == 0 && (best == UINT32_MAX || age > oldest)) {
            oldest = age;
            best = i;
        }
    }
    if (best == UINT32_MAX)
        return false;
    struct reg *reg = reg_at(cache, best);
    if (unlink_at(cache, best)) /* else somebody pinned it just now, and releases it */
        list[(*count)++] = reg;
    count_one(&cache->evicted);
    return true;
}

static struct reg *take_free(struct regcache *cache) {
    for (uint32_t i = 0; i < cache->config.entries_max; i++)
        if (atomic_load(&cache->regs[i].state) == FREE)
            return &cache->regs[i];
    return NULL;
}

/* Room for one more entry of so many bytes, by evicting; the lock is given up while deregistering. */
static struct reg *make_room(struct regcache *cache, uint64_t bytes) {
    struct reg *list[1], *reg;
    for (uint32_t i = 0; i <= REGCACHE_ENTRIES; i++) {
        uint32_t count = 0;
        pthread_mutex_lock(&cache->lock);
        bool fits =
            bytes <= cache->config.bytes_max && cache->bytes <= cache->config.bytes_max - bytes;
        reg = fits ? take_free(cache) : NULL;
        if (reg) {
            cache->bytes += bytes; /* promised */
            atomic_store(&reg->state, DEAD | FREE);
        }
        pthread_mutex_unlock(&cache->lock);
        if (reg)
            return reg;
        change_begin(cache);
        bool any = evict(cache, list, &count);
        change_end(cache);
        release_list(cache, list, count);
        if (!any)
            break;
    }
    errno = ENOSPC;
    return NULL;
}

static void give_room_back(struct regcache *cache, struct reg *reg, uint64_t bytes) {
    pthread_mutex_lock(&cache->lock);
    cache->bytes -= bytes;
    atomic_store(&reg->state, FREE);
    pthread_mutex_unlock(&cache->lock);
}

/* Registering is locked. NULL and *error. */
static struct ibv_mr *watch_and_register(struct regcache *cache, uintptr_t start, uintptr_t end,
                                         int *error) {
    const struct regcache_config *config = &cache->config;
    struct ibv_mr *mr = NULL;
    *error = cache->gone_device ? EOPNOTSUPP
             : config->told     ? 0
                                : regwatch_add(&cache->watch, start, end);
    if (*error == 0) {
        errno = 0;
        mr = config->fabric->reg_mr(config->pd, (void *)start, end - start, config->access);
        *error = mr ? 0 : errno ? errno : ENOMEM;
    }
    return mr;
}

/* Puts a registration that was just made into the table, pinned. False: memory went away meanwhile. */
static bool enter(struct regcache *cache, struct reg *reg, uintptr_t start, uintptr_t end,
                  struct ibv_mr *mr, uint64_t events) {
    struct reg *list[REGCACHE_ENTRIES];
    uint32_t count = 0, found = 0;
    change_begin(cache);
    bool stale = cache->gone_events != events;
    if (!stale) {
        count = unlink_range(cache, start, end, list, &found);
        atomic_store(&reg->start, start);
        atomic_store(&reg->end, end);
        reg->mr = mr;
        reg->lkey = mr->lkey;
        atomic_store(&reg->used, atomic_fetch_add(&cache->tick, 1) + 1);
        atomic_store(&reg->state, 1);
        link_reg(cache, reg);
    }
    change_end(cache);
    if (stale)
        cache->config.fabric->dereg_mr(mr);
    pthread_mutex_unlock(&cache->registering);
    release_list(cache, list, count);
    atomic_fetch_add_explicit(&cache->merged, found, memory_order_relaxed);
    return !stale;
}

/* One try. 0 and *out pinned; EAGAIN: memory went away meanwhile; or another errno. */
static int add(struct regcache *cache, uintptr_t start, uintptr_t end, struct reg **out) {
    int error;
    pthread_mutex_lock(&cache->lock);
    uint64_t events = cache->gone_events;
    widen(cache, &start, &end);
    pthread_mutex_unlock(&cache->lock);
    struct reg *reg = make_room(cache, end - start);
    if (!reg)
        return errno;
    pthread_mutex_lock(&cache->registering);
    struct ibv_mr *mr = watch_and_register(cache, start, end, &error);
    if (!mr)
        pthread_mutex_unlock(&cache->registering);
    else if (!enter(cache, reg, start, end, mr, events)) /* which unlocks */
        error = EAGAIN;
    if (error != 0) {
        give_room_back(cache, reg, end - start);
        return error;
    }
    *out = reg;
    return 0;
}

struct reg *regcache_get(struct regcache *cache, const void *addr, size_t bytes) {
    uintptr_t start = (uintptr_t)addr, end = start + bytes;
    struct reg *reg = NULL;
    bool on = atomic_load_explicit(&cache->on, memory_order_acquire);
    if (!on || bytes == 0 || end < start || end > UINTPTR_MAX - cache->page) {
        errno = on ? EINVAL : EOPNOTSUPP;
        return NULL;
    }
    if (!look(cache, start, end, &reg))
        reg = look_locked(cache, start, end);
    if (reg)
        return touch(cache, reg);
    count_one(&cache->misses);
    reap(cache);
    int error = EAGAIN;
    for (int i = 0; i < TRIES && error == EAGAIN; i++)
        error = add(cache, start & ~(cache->page - 1), (end + cache->page - 1) & ~(cache->page - 1),
                    &reg);
    if (error != 0)
        errno = error;
    return reg;
}

/* ---- open and close -------------------------------------------------------------------------------- */

int regcache_open(struct regcache **out, const struct regcache_config *config) {
    struct regcache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return -ENOMEM;
    cache->config = *config;
    if (config->entries_max == 0 || config->entries_max > REGCACHE_ENTRIES)
        cache->config.entries_max = REGCACHE_ENTRIES;
    cache->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (uint32_t i = 0; i < REGCACHE_ENTRIES; i++)
        atomic_store(&cache->regs[i].state, FREE);
    pthread_mutex_init(&cache->registering, NULL);
    pthread_mutex_init(&cache->lock, NULL);
    if (config->told) {
        cache->on = true;
        snprintf(cache->why, sizeof cache->why, "the application tells of memory that goes");
    } else {
        cache->watched =
            regwatch_open(&cache->watch, on_event, cache, cache->why, sizeof cache->why);
        cache->on = cache->watched;
    }
    *out = cache;
    return 0;
}

void regcache_let_go(struct regcache *cache) {
    pthread_mutex_lock(&cache->registering);
    cache->gone_device = true;
    if (atomic_exchange(&cache->on, false))
        snprintf(cache->why, sizeof cache->why, "off: the device is gone");
    for (uint32_t i = 0; i < REGCACHE_ENTRIES; i++)
        end_registration(cache, &cache->regs[i]);
    pthread_mutex_unlock(&cache->registering);
}

void regcache_close(struct regcache *cache) {
    if (cache->watched)
        regwatch_close(&cache->watch); /* ends the watch over every range */
    for (uint32_t i = 0; i < REGCACHE_ENTRIES; i++)
        end_registration(cache, &cache->regs[i]);
    pthread_mutex_destroy(&cache->lock);
    pthread_mutex_destroy(&cache->registering);
    free(cache);
}

void regcache_figures(struct regcache *cache, struct regcache_figures *out) {
    *out = (struct regcache_figures){.on = atomic_load(&cache->on)};
    reap(cache);
    out->hits = atomic_load(&cache->hits);
    out->misses = atomic_load(&cache->misses);
    out->merged = atomic_load(&cache->merged);
    out->evicted = atomic_load(&cache->evicted);
    out->gone = atomic_load(&cache->gone);
    pthread_mutex_lock(&cache->lock);
    out->bytes = cache->bytes;
    out->entries = atomic_load(&cache->count);
    pthread_mutex_unlock(&cache->lock);
    pthread_mutex_lock(&cache->registering);
    memcpy(out->why, cache->why, sizeof out->why);
    pthread_mutex_unlock(&cache->registering);
}
