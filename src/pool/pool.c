/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool.c - getting and returning buffers: the caches, the shared lists, and what is tried in
 * which order when both are empty.
 *
 * Locks: see inside.h. Any thread, each with a cache of its own or none.
 */
#include "pool/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/barrier.h"
#include "base/sanitize.h"
#include "pool/inside.h"

#define CACHE_BYTES ((uint64_t)1 << 20) /* of one class, in one cache, at most */
#define CACHE_COUNT_MAX 256
#define RETURN_BYTES_MIN ((uint64_t)16 << 10)
#define SPLICE_MAX 256 /* buffers looked at in one go */
#define GROW_TRIES 8

/* ---- open and close -------------------------------------------------------------------------- */

int pool_open(struct pool **out, const struct fabric_ops *fabric, struct ibv_pd *pd,
              uint64_t bytes_max) {
    struct pool_config config = {
        .fabric = fabric, .pd = pd, .bytes_max = bytes_max, .wish = {.numa = BACKING_NO_NUMA}};
    backing_from_environment(&config.wish);
    return pool_open_with(out, &config);
}

int pool_open_with(struct pool **out, const struct pool_config *config) {
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

void pool_let_go(struct pool *pool) {
    pthread_mutex_lock(&pool->slow);
    atomic_store(&pool->budget.pd, NULL);
    grow_wait(pool); /* what it registers now belongs to that device still */
    arenas_let_go(&pool->arenas, &pool->budget);
    for (struct large *large = pool->larges.all; large; large = large->all_next)
        block_let_go(&large->block, &pool->budget);
    pthread_mutex_unlock(&pool->slow);
}

void pool_cache_flush(struct pool_cache *cache) {
    if (!pool_cache_has(cache))
        return;
    pool_flush(cache);
    pool_wake(cache->pool);
}

/* ---- shared lists ---------------------------------------------------------------------------- */

/* The lock. */
static void add_chain(struct pool *pool, struct sluice_msg *chain) {
    for (struct sluice_msg *msg = chain, *next; msg; msg = next) {
        next = msg->next;
        spans_give(&pool->spans[msg->size_class], msg);
    }
}

static void give_chain(struct pool *pool, struct sluice_msg *chain) {
    if (!chain)
        return;
    pthread_mutex_lock(&pool->lock);
    add_chain(pool, chain);
    pthread_mutex_unlock(&pool->lock);
}

static int64_t slot_bytes(const struct sluice_msg *msg) {
    return (int64_t)(msg->capacity + POOL_HEADROOM);
}

void pool_flush(struct pool_cache *cache) {
    struct sluice_msg *msg;
    pthread_mutex_lock(&cache->pool->lock);
    for (unsigned i = 0; i < POOL_CLASSES; i++)
        add_chain(cache->pool, bin_empty(&cache->bin[i]));
    while ((msg = cache_next_returned(cache)) != NULL ||
           (msg = cache_next_foreign(cache)) != NULL) {
        cache_returned(cache, slot_bytes(msg));
        count_add(&cache->bin[msg->size_class].returned, 1);
        spans_give(&cache->pool->spans[msg->size_class], msg);
    }
    pthread_mutex_unlock(&cache->pool->lock);
}

/* Takes over what is on its way back to caches, whose owners may never ask for it. */
static void collect(struct pool *pool) {
    struct sluice_msg *msg;
    pthread_mutex_lock(&pool->lock);
    for (struct pool_cache *cache = pool->caches; cache; cache = cache->next)
        while ((msg = cache_next_foreign(cache)) != NULL ||
               (!cache->open && (msg = cache_next_returned(cache)) != NULL)) {
            cache_returned(cache, slot_bytes(msg));
            spans_give(&pool->spans[msg->size_class], msg);
        }
    pthread_mutex_unlock(&pool->lock);
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
        pool_flush(cache);
    collect(pool);
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
    if (span_open(spans, pool, size_class, arena, addr, pages, pool->debug))
        count = spans_take(spans, max, chain);
    else
        arena_give(arena, addr, pages);
    pthread_mutex_unlock(&pool->lock);
    return count;
}

static unsigned cut_or_grow(struct pool *pool, unsigned size_class, uint32_t pages, unsigned max,
                            struct sluice_msg **chain) {
    unsigned count = cut(pool, size_class, pages, max, chain);
    if (count == 0 && grow_wait(pool))
        count = cut(pool, size_class, pages, max, chain);
    /* Others may be quicker to take what was added for this thread. */
    for (int i = 0; count == 0 && i < GROW_TRIES && grow_arena(pool, pages * POOL_PAGE); i++)
        count = cut(pool, size_class, pages, max, chain);
    grow_look(pool);
    return count;
}

/*
 * The shared list of a class is empty. In this order: what is on its way back to caches; free pages or
 * a new arena; the empty spans of other classes; the kept large mappings; and the same for a
 * shorter run of pages, down to that of a single buffer.
 */
static unsigned get_more(struct pool *pool, struct pool_cache *cache, unsigned size_class,
                         unsigned max, struct sluice_msg **chain) {
    uint32_t pages = span_pages(size_class, SPAN_BEST, pool->debug);
    uint32_t usual = span_pages(size_class, SPAN_USUAL, pool->debug);
    uint32_t least = span_pages(size_class, SPAN_SINGLE, pool->debug);
    pthread_mutex_lock(&pool->slow);
    /* Somebody may have fetched more while this thread waited. */
    unsigned count = take_shared(pool, size_class, max, chain);
    if (count == 0) {
        collect(pool);
        count = take_shared(pool, size_class, max, chain);
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

/* Into the cache, whoever got it; what does not fit goes to the shared list. */
static void put_here(struct pool *pool, struct pool_cache *cache, struct sluice_msg *msg) {
    struct bin *bin = &cache->bin[msg->size_class];
    if (__builtin_expect(count_of(&bin->active_count) >= pool->magazine_max[msg->size_class], 0))
        give_chain(pool, bin_rotate(bin));
    bin_add(bin, msg);
}

/* Takes returned buffers until the class that is wanted has a magazine full. */
static void splice(struct pool *pool, struct pool_cache *cache, unsigned size_class) {
    struct bin *wanted = &cache->bin[size_class];
    uint16_t max = pool->magazine_max[size_class];
    struct sluice_msg *msg;
    for (int i = 0; i < SPLICE_MAX && count_of(&wanted->active_count) < max &&
                    (msg = cache_next_returned(cache)) != NULL;
         i++) {
        cache_returned(cache, slot_bytes(msg));
        count_add(&cache->bin[msg->size_class].returned, 1);
        put_here(pool, cache, msg);
    }
}

/* The active magazine is empty: the spare one, what others returned, the shared list, or more. */
static struct sluice_msg *refill(struct pool *pool, struct pool_cache *cache, unsigned size_class) {
    struct sluice_msg *chain = NULL;
    if (!cache) {
        if (take_shared(pool, size_class, 1, &chain) == 0)
            get_more(pool, NULL, size_class, 1, &chain);
        return chain;
    }
    struct bin *bin = &cache->bin[size_class];
    if (!bin_swap(bin)) {
        splice(pool, cache, size_class);
        if (!bin->active) {
            unsigned max = pool->magazine_max[size_class];
            unsigned count = take_shared(pool, size_class, max, &chain);
            if (count == 0)
                count = get_more(pool, cache, size_class, max, &chain);
            bin->active = chain;
            count_set(&bin->active_count, count);
            count_add(&bin->refills, 1);
        }
    }
    return bin_take(bin);
}

/* For the statistics: the class has counters worth a look. */
static void saw(struct pool *pool, struct pool_cache *cache, unsigned size_class) {
    uint64_t bit = (uint64_t)1 << size_class;
    if (cache)
        cache->seen |= bit;
    else if (!(atomic_load_explicit(&pool->seen, memory_order_relaxed) & bit))
        atomic_fetch_or_explicit(&pool->seen, bit, memory_order_relaxed);
}

static struct sluice_msg *get_slow(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    if (too_large(pool, bytes)) {
        errno = EMSGSIZE;
        return NULL;
    }
    struct sluice_msg *msg = bytes > CLASS_BYTES_MAX ? get_large(pool, cache, bytes)
                                                     : refill(pool, cache, class_of(bytes));
    if (!msg) {
        errno = ENOMEM;
        return NULL;
    }
    saw(pool, cache, msg->size_class);
    return msg;
}

static inline struct sluice_msg *hand_out(struct sluice_msg *msg, uint16_t number, size_t bytes) {
    SANITIZE_UNPOISON(msg->data - POOL_HEADROOM, msg->capacity + POOL_HEADROOM);
    msg->cache = number;
    msg->next = NULL;
    msg->size = bytes;
    msg->state = 0;
    msg->flags = 0;
    msg->owner = NULL;
    return msg;
}

/* The magazine has none, or something else is out of the ordinary. */
static __attribute__((noinline)) struct sluice_msg *
get_otherwise(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    struct sluice_msg *msg = NULL;
    if (cache && bytes <= CLASS_BYTES_MAX)
        msg = bin_take(&cache->bin[class_of(bytes)]);
    if (!msg && !(msg = get_slow(pool, cache, bytes)))
        return NULL;
    if (cache)
        count_add(&cache->bin[msg->size_class].gets, 1);
    else
        atomic_fetch_add_explicit(&pool->gets[msg->size_class], 1, memory_order_release);
    hand_out(msg, cache ? cache->number : 0, bytes);
    if (pool->debug)
        debug_got(pool, msg);
    return msg;
}

/* Nearly always a magazine has one: that needs no call, and no register saved for one. */
struct sluice_msg *pool_get(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    if (__builtin_expect(!cache || bytes > CLASS_BYTES_MAX || pool->debug, 0))
        return get_otherwise(pool, cache, bytes);
    struct bin *bin = &cache->bin[class_of(bytes)];
    struct sluice_msg *msg = bin_take(bin);
    if (__builtin_expect(!msg, 0))
        return get_otherwise(pool, cache, bytes);
    count_add(&bin->gets, 1);
    return hand_out(msg, cache->number, bytes);
}

/* Not from this cache: to its home if that wants it, else here. */
static void put_away(struct pool *pool, struct pool_cache *cache, struct sluice_msg *msg) {
    saw(pool, cache, msg->size_class);
    if (msg->size_class >= POOL_CLASSES) {
        put_large(pool, msg);
        return;
    }
    if (msg->cache != 0) {
        /* Constant from before the buffer had the number on. */
        struct pool_cache *home =
            atomic_load_explicit(&pool->by_number[msg->cache], memory_order_relaxed);
        if (home != cache && cache_return(home, msg, slot_bytes(msg), pool->return_bytes_max))
            return;
    }
    if (cache) {
        put_here(pool, cache, msg);
    } else {
        msg->next = NULL;
        give_chain(pool, msg);
    }
}

static __attribute__((noinline)) void awaited(struct pool *pool, struct pool_cache *cache) {
    if (cache)
        pool_flush(cache);
    pool_wake(pool);
}

/* Memory is back, and somebody may wait for it. */
static inline void returned(struct pool *pool, struct pool_cache *cache) {
    barrier_here(); /* between what was returned and whether somebody waits for it: see pool_wait() */
    if (__builtin_expect(atomic_load_explicit(&pool->waiting, memory_order_relaxed), 0))
        awaited(pool, cache);
}

/* Not from this cache, or there is no place in its magazine, or debugging. */
static __attribute__((noinline)) void put_otherwise(struct pool *pool, struct pool_cache *cache,
                                                    struct sluice_msg *msg) {
    if (pool->debug && !debug_put(pool, msg))
        return;
    /* Whoever touches it from now on is wrong: the address sanitizer tells. */
    SANITIZE_POISON(msg->data - POOL_HEADROOM, msg->capacity + POOL_HEADROOM);
    unsigned size_class = msg->size_class;
    if (cache)
        count_add(&cache->bin[size_class].puts, 1);
    else
        atomic_fetch_add_explicit(&pool->puts[size_class], 1, memory_order_release);
    if (cache && msg->cache == cache->number && size_class < POOL_CLASSES)
        put_here(pool, cache, msg);
    else
        put_away(pool, cache, msg);
    returned(pool, cache);
}

void pool_put(struct pool *pool, struct pool_cache *cache, struct sluice_msg *msg) {
    unsigned size_class = msg->size_class;
    if (__builtin_expect(!cache || msg->cache != cache->number || size_class >= POOL_CLASSES ||
                             pool->debug,
                         0)) {
        put_otherwise(pool, cache, msg);
        return;
    }
    struct bin *bin = &cache->bin[size_class];
    if (__builtin_expect(count_of(&bin->active_count) >= pool->magazine_max[size_class], 0)) {
        put_otherwise(pool, cache, msg);
        return;
    }
    /* Whoever touches it from now on is wrong: the address sanitizer tells. */
    SANITIZE_POISON(msg->data - POOL_HEADROOM, msg->capacity + POOL_HEADROOM);
    count_add(&bin->puts, 1);
    bin_add(bin, msg);
    returned(pool, cache);
}

struct ibv_mr *pool_mr(const struct sluice_msg *msg) {
    if (msg->size_class >= POOL_CLASSES)
        return ((const struct large *)msg->home)->block.mr;
    return ((const struct span *)msg->home)->arena->block.mr;
}

/* ---- caches ---------------------------------------------------------------------------------- */

struct pool_cache *pool_cache_open(struct pool *pool) {
    pthread_mutex_lock(&pool->lock);
    struct pool_cache *cache = pool->caches;
    while (cache && cache->open)
        cache = cache->next;
    if (!cache) {
        unsigned number = pool->cache_count + 1;
        cache = cache_new(pool, (uint16_t)(number < CACHES_MAX ? number : 0));
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
        struct bin *bin = &cache->bin[i];
        atomic_fetch_add(&pool->gets[i], atomic_exchange(&bin->gets, 0));
        atomic_fetch_add(&pool->puts[i], atomic_exchange(&bin->puts, 0));
        if (cache->seen >> i & 1)
            atomic_fetch_or(&pool->seen, (uint64_t)1 << i);
        atomic_store(&bin->returned, 0);
        atomic_store(&bin->refills, 0);
    }
    cache->open = false;
    pthread_mutex_unlock(&pool->lock);
    pool_wake(pool);
}
