/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool.c - getting and returning buffers: the caches, the shared lists, and what is tried in
 * which order when both are empty.
 *
 * Two locks. `lock` guards the lists of free buffers and is held for a few list operations. `slow`
 * guards arenas and registrations, is held across system calls, and is taken first. A thread whose
 * cache has a buffer takes neither.
 *
 * A cache holds two stacks ("magazines") a class: it works on one and swaps before it asks the
 * shared list, so that a thread at the edge of empty or full does not take the lock every time,
 * and what it hands over is the stack it has not touched for longest.
 */
#include "pool/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/sanitize.h"
#include "pool/arena.h"
#include "pool/large.h"
#include "pool/span.h"

#define CACHE_BYTES ((uint64_t)1 << 20) /* of one class, in one cache, at most */
#define CACHE_COUNT_MAX 256

struct magazine {
    struct sluice_msg *head;
    uint32_t count;
};

struct pool_cache {
    struct pool *pool;
    struct pool_cache *next, **link; /* under the pool's lock */
    /* one writer, the owner; read by pool_in_use() */
    _Atomic uint64_t gets, puts;
    struct {
        struct magazine active, spare;
    } bin[POOL_CLASSES];
} __attribute__((aligned(64)));

struct pool {
    struct budget budget;
    pthread_mutex_t slow, lock;
    uint16_t magazine_max[POOL_CLASSES];
    struct arenas arenas; /* slow */
    struct spans spans[POOL_CLASSES];
    struct larges larges;
    struct pool_cache *caches;
    uint64_t gets, puts; /* lock: of everybody without a cache, and of closed caches */
};

/* ---- open and close -------------------------------------------------------------------------- */

int pool_open(struct pool **out, const struct fabric_ops *fabric, struct ibv_pd *pd,
              uint64_t bytes_max) {
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return -ENOMEM;
    pool->budget = (struct budget){.fabric = fabric, .pd = pd, .bytes_max = bytes_max};
    arenas_init(&pool->arenas);
    larges_init(&pool->larges);
    uint64_t cache_bytes = bytes_max / 256 < CACHE_BYTES ? bytes_max / 256 : CACHE_BYTES;
    for (unsigned i = 0; i < POOL_CLASSES; i++) {
        uint64_t count = cache_bytes / class_slot(i);
        count = count < 2 ? 2 : count > CACHE_COUNT_MAX ? CACHE_COUNT_MAX : count;
        pool->magazine_max[i] = (uint16_t)(count / 2);
    }
    /* A shortage of memory or of the right to lock it is told here, not at the first message. */
    int error = arenas_grow(&pool->arenas, &pool->budget, POOL_PAGE);
    if (error != 0) {
        free(pool);
        return error;
    }
    pthread_mutex_init(&pool->slow, NULL);
    pthread_mutex_init(&pool->lock, NULL);
    *out = pool;
    return 0;
}

void pool_close(struct pool *pool) {
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

void pool_let_go(struct pool *pool) {
    pthread_mutex_lock(&pool->slow);
    pool->budget.pd = NULL;
    arenas_let_go(&pool->arenas, &pool->budget);
    for (struct large *large = pool->larges.all; large; large = large->all_next)
        block_let_go(&large->block, &pool->budget);
    pthread_mutex_unlock(&pool->slow);
}

/* ---- shared lists ---------------------------------------------------------------------------- */

static void count_one(_Atomic uint64_t *counter) {
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    /* Release: whoever sees a return counted also sees its hand-out counted. */
    atomic_store_explicit(counter, value + 1, memory_order_release);
}

static void give_chain(struct pool *pool, struct magazine *magazine) {
    pthread_mutex_lock(&pool->lock);
    for (struct sluice_msg *msg = magazine->head, *next; msg; msg = next) {
        next = msg->next;
        spans_give(&pool->spans[msg->size_class], msg);
    }
    pthread_mutex_unlock(&pool->lock);
    *magazine = (struct magazine){0};
}

static void cache_flush(struct pool_cache *cache) {
    for (unsigned i = 0; i < POOL_CLASSES; i++) {
        if (cache->bin[i].active.head)
            give_chain(cache->pool, &cache->bin[i].active);
        if (cache->bin[i].spare.head)
            give_chain(cache->pool, &cache->bin[i].spare);
    }
}

static unsigned take_shared(struct pool *pool, unsigned size_class, unsigned max,
                            struct sluice_msg **chain) {
    pthread_mutex_lock(&pool->lock);
    unsigned count = spans_take(&pool->spans[size_class], max, chain);
    pthread_mutex_unlock(&pool->lock);
    return count;
}

/* ---- getting more: slow lock held ------------------------------------------------------------ */

static bool reclaim_spans(struct pool *pool, struct pool_cache *cache) {
    if (cache)
        cache_flush(cache);
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

/* Cuts a new span and takes from it before anybody else can. Returns how many. */
static unsigned cut(struct pool *pool, unsigned size_class, uint32_t pages, unsigned max,
                    struct sluice_msg **chain) {
    struct arena *arena;
    uint8_t *addr = arenas_take(&pool->arenas, pages, &arena);
    if (!addr)
        return 0;
    SANITIZE_UNPOISON(addr, pages * POOL_PAGE); /* buffers of another class lay here */
    pthread_mutex_lock(&pool->lock);
    struct spans *spans = &pool->spans[size_class];
    unsigned count = 0;
    if (span_open(spans, pool, size_class, arena, addr, pages))
        count = spans_take(spans, max, chain);
    else
        arena_give(arena, addr, pages);
    pthread_mutex_unlock(&pool->lock);
    return count;
}

static unsigned cut_or_grow(struct pool *pool, unsigned size_class, uint32_t pages, unsigned max,
                            struct sluice_msg **chain) {
    unsigned count = cut(pool, size_class, pages, max, chain);
    if (count == 0 && arenas_grow(&pool->arenas, &pool->budget, pages * POOL_PAGE) == 0)
        count = cut(pool, size_class, pages, max, chain);
    return count;
}

/*
 * The shared list of a class is empty. In this order: free pages or a new arena; the empty spans of
 * other classes; the kept large mappings; and the same for a single buffer instead of many.
 */
static unsigned get_more(struct pool *pool, struct pool_cache *cache, unsigned size_class,
                         unsigned max, struct sluice_msg **chain) {
    uint32_t pages = span_pages(size_class, false), least = span_pages(size_class, true);
    pthread_mutex_lock(&pool->slow);
    /* Somebody may have fetched more while this thread waited. */
    unsigned count = take_shared(pool, size_class, max, chain);
    if (count == 0)
        count = cut_or_grow(pool, size_class, pages, max, chain);
    if (count == 0 && reclaim_spans(pool, cache))
        count = cut(pool, size_class, pages, max, chain);
    while (count == 0 && evict_large(pool, 0, 0))
        count = cut_or_grow(pool, size_class, pages, max, chain);
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
    pthread_mutex_unlock(&pool->lock);
    return large;
}

/* Slow lock held: a new mapping, at the cost of whatever is free elsewhere. */
static struct large *map_large(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    struct large *large = take_kept(pool, bytes);
    if (large)
        return large;
    large = large_open(pool, &pool->budget, bytes);
    while (!large && evict_large(pool, 0, 0))
        large = large_open(pool, &pool->budget, bytes);
    if (!large) {
        reclaim_spans(pool, cache);
        if (arenas_release(&pool->arenas, &pool->budget, false))
            large = large_open(pool, &pool->budget, bytes);
    }
    if (large) {
        pthread_mutex_lock(&pool->lock);
        larges_add(&pool->larges, large);
        pthread_mutex_unlock(&pool->lock);
    }
    return large;
}

static struct sluice_msg *get_large(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    struct large *large = take_kept(pool, bytes);
    if (!large) {
        pthread_mutex_lock(&pool->slow);
        large = map_large(pool, cache, bytes);
        pthread_mutex_unlock(&pool->slow);
    }
    return large ? &large->msg : NULL;
}

static void put_large(struct pool *pool, struct sluice_msg *msg) {
    uint64_t keep_bytes = pool->budget.bytes_max / 2;
    pthread_mutex_lock(&pool->lock);
    larges_keep(&pool->larges, msg->home);
    bool many = pool->larges.kept_count > LARGE_KEPT_MAX || pool->larges.kept_bytes > keep_bytes;
    pthread_mutex_unlock(&pool->lock);
    if (!many)
        return;
    pthread_mutex_lock(&pool->slow);
    while (evict_large(pool, LARGE_KEPT_MAX, keep_bytes))
        ;
    pthread_mutex_unlock(&pool->slow);
}

/* ---- get and put ----------------------------------------------------------------------------- */

static bool too_large(const struct pool *pool, size_t bytes) {
    return bytes > pool->budget.bytes_max ||
           page_round(bytes + POOL_HEADROOM) > pool->budget.bytes_max;
}

/* The active magazine is empty: the spare one, the shared list, or more memory. */
static struct sluice_msg *refill(struct pool *pool, struct pool_cache *cache, unsigned size_class) {
    struct sluice_msg *chain = NULL;
    unsigned max = cache ? pool->magazine_max[size_class] : 1;
    if (cache && cache->bin[size_class].spare.head) {
        cache->bin[size_class].active = cache->bin[size_class].spare;
        cache->bin[size_class].spare = (struct magazine){0};
    } else {
        unsigned count = take_shared(pool, size_class, max, &chain);
        if (count == 0)
            count = get_more(pool, cache, size_class, max, &chain);
        if (count == 0)
            return NULL;
        if (!cache)
            return chain;
        cache->bin[size_class].active = (struct magazine){chain, count};
    }
    struct magazine *active = &cache->bin[size_class].active;
    struct sluice_msg *msg = active->head;
    active->head = msg->next;
    active->count--;
    return msg;
}

static struct sluice_msg *get_slow(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    if (too_large(pool, bytes)) {
        errno = EMSGSIZE;
        return NULL;
    }
    struct sluice_msg *msg = bytes > CLASS_BYTES_MAX ? get_large(pool, cache, bytes)
                                                     : refill(pool, cache, class_of(bytes));
    if (!msg)
        errno = ENOMEM;
    return msg;
}

struct sluice_msg *pool_get(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    struct sluice_msg *msg = NULL;
    if (cache && bytes <= CLASS_BYTES_MAX) {
        struct magazine *active = &cache->bin[class_of(bytes)].active;
        msg = active->head;
        if (msg) {
            active->head = msg->next;
            active->count--;
        }
    }
    if (!msg && !(msg = get_slow(pool, cache, bytes)))
        return NULL;
    if (cache) {
        count_one(&cache->gets);
    } else {
        pthread_mutex_lock(&pool->lock);
        pool->gets++;
        pthread_mutex_unlock(&pool->lock);
    }
    SANITIZE_UNPOISON(msg->data - POOL_HEADROOM, msg->capacity + POOL_HEADROOM);
    msg->next = NULL;
    msg->size = bytes;
    msg->state = 0;
    msg->flags = 0;
    msg->owner = NULL;
    return msg;
}

void pool_put(struct pool *pool, struct pool_cache *cache, struct sluice_msg *msg) {
    /* Whoever touches it from now on is wrong: the address sanitizer tells. */
    SANITIZE_POISON(msg->data - POOL_HEADROOM, msg->capacity + POOL_HEADROOM);
    unsigned size_class = msg->size_class;
    if (!cache) {
        pthread_mutex_lock(&pool->lock);
        pool->puts++;
        if (size_class < POOL_CLASSES)
            spans_give(&pool->spans[size_class], msg);
        pthread_mutex_unlock(&pool->lock);
        if (size_class >= POOL_CLASSES)
            put_large(pool, msg);
        return;
    }
    count_one(&cache->puts);
    if (size_class >= POOL_CLASSES) {
        put_large(pool, msg);
        return;
    }
    struct magazine *active = &cache->bin[size_class].active;
    if (active->count >= pool->magazine_max[size_class]) {
        struct magazine *spare = &cache->bin[size_class].spare;
        if (spare->head)
            give_chain(pool, spare);
        *spare = *active;
        *active = (struct magazine){0};
    }
    msg->next = active->head;
    active->head = msg;
    active->count++;
}

/* ---- caches ---------------------------------------------------------------------------------- */

struct pool_cache *pool_cache_open(struct pool *pool) {
    struct pool_cache *cache = aligned_alloc(_Alignof(struct pool_cache), sizeof *cache);
    if (!cache)
        return NULL;
    memset(cache, 0, sizeof *cache);
    cache->pool = pool;
    pthread_mutex_lock(&pool->lock);
    cache->next = pool->caches;
    cache->link = &pool->caches;
    if (cache->next)
        cache->next->link = &cache->next;
    pool->caches = cache;
    pthread_mutex_unlock(&pool->lock);
    return cache;
}

void pool_cache_close(struct pool_cache *cache) {
    struct pool *pool = cache->pool;
    cache_flush(cache);
    pthread_mutex_lock(&pool->lock);
    *cache->link = cache->next;
    if (cache->next)
        cache->next->link = cache->link;
    pool->gets += cache->gets;
    pool->puts += cache->puts;
    pthread_mutex_unlock(&pool->lock);
    free(cache);
}

/* ---- figures --------------------------------------------------------------------------------- */

uint64_t pool_bytes(const struct pool *pool) {
    return atomic_load_explicit(&pool->budget.bytes, memory_order_relaxed);
}

uint64_t pool_bytes_max(const struct pool *pool) {
    return pool->budget.bytes_max;
}

uint64_t pool_in_use(const struct pool *pool) {
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&pool->lock;
    pthread_mutex_lock(lock);
    /* Returns first: what is handed out in between then counts too much, never below zero. */
    uint64_t gets = pool->gets, puts = pool->puts;
    for (struct pool_cache *cache = pool->caches; cache; cache = cache->next)
        puts += atomic_load_explicit(&cache->puts, memory_order_acquire);
    for (struct pool_cache *cache = pool->caches; cache; cache = cache->next)
        gets += atomic_load_explicit(&cache->gets, memory_order_acquire);
    pthread_mutex_unlock(lock);
    return gets - puts;
}
