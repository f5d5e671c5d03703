/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * buffer.c - getting and returning buffers: the way through the caches, which nearly all of them go.
 *
 * Locks: none on that way, else see internal.h. Any thread, each with a cache of its own or none.
 */
#include <errno.h>

#include "common/assert.h"
#include "pool/internal.h"

#define SPLICE_MAX 256 /* buffers looked at in one go */

static bool too_large(const struct pool *pool, size_t bytes) {
    return bytes > pool->budget.bytes_max ||
           page_round(bytes + POOL_HEADROOM) > pool->budget.bytes_max;
}

/* Into this cache, whichever cache it came from; what does not fit goes to the shared list. */
static void put_here(struct pool *pool, struct pool_cache *cache, struct pool_buffer *buffer) {
    struct magazines *bin = &cache->bin[buffer->size_class];
    if (__builtin_expect(magazine_count(bin) >= pool->magazine_max[buffer->size_class], 0))
        depot_give(pool, magazine_rotate(bin));
    buffer->next = bin->active;
    bin->active = buffer;
    magazine_brought(bin, 1);
}

/* Takes returned buffers until the class that is wanted has a magazine full. */
static void splice(struct pool *pool, struct pool_cache *cache, unsigned size_class) {
    struct magazines *wanted = &cache->bin[size_class];
    uint16_t max = pool->magazine_max[size_class];
    struct pool_buffer *buffer;
    for (int i = 0; i < SPLICE_MAX && magazine_count(wanted) < max &&
                    (buffer = pool_cache_next_returned(cache)) != NULL;
         i++) {
        pool_cache_returned(cache, slot_bytes(buffer));
        count_add(&cache->bin[buffer->size_class].returned, 1);
        put_here(pool, cache, buffer);
    }
}

/*
 * The active magazine is empty: the spare one, what others returned, the shared list, or more. Of a cache, the buffer is
 * counted as handed out.
 */
static struct pool_buffer *refill(struct pool *pool, struct pool_cache *cache,
                                  unsigned size_class) {
    struct pool_buffer *chain = NULL;
    if (!cache) {
        if (depot_take(pool, size_class, 1, &chain) == 0)
            refill_more(pool, NULL, size_class, 1, &chain);
        return chain;
    }
    struct magazines *bin = &cache->bin[size_class];
    if (!magazine_swap(bin)) {
        splice(pool, cache, size_class);
        if (!bin->active) {
            /* While a thread waits for memory, surplus buffers go back at once: see pool_look(). */
            bool spare = !atomic_load_explicit(&pool->head.waiting, memory_order_relaxed);
            unsigned max = spare ? pool->magazine_max[size_class] : 1;
            unsigned count = depot_take(pool, size_class, max, &chain);
            if (count == 0)
                count = refill_more(pool, cache, size_class, max, &chain);
            bin->active = chain;
            magazine_brought(bin, count);
            count_add(&bin->refills, 1);
        }
    }
    return magazine_take(bin);
}

/* For the statistics and for flushing: the class has counters, and may have buffers, worth a look. */
static void saw(struct pool *pool, struct pool_cache *cache, unsigned size_class) {
    uint64_t bit = (uint64_t)1 << size_class;
    if (cache)
        cache->seen |= bit;
    else if (!(atomic_load_explicit(&pool->seen, memory_order_relaxed) & bit))
        atomic_fetch_or_explicit(&pool->seen, bit, memory_order_relaxed);
}

static struct pool_buffer *get_slow(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    if (too_large(pool, bytes)) {
        errno = EMSGSIZE;
        return NULL;
    }
    bool large = bytes > CLASS_BYTES_MAX;
    struct pool_buffer *buffer =
        large ? refill_large(pool, cache, bytes) : refill(pool, cache, class_of(bytes));
    if (buffer) /* before the look, which empties only classes that the cache saw */
        saw(pool, cache, buffer->size_class);
    if (buffer && !cache)
        atomic_fetch_add_explicit(&pool->gets[buffer->size_class], 1, memory_order_release);
    else if (buffer && large)
        magazine_passed_out(&cache->bin[buffer->size_class]);
    /* It may have taken more than it needs, or what others wait for out of its cache. */
    pool_look(pool, cache);
    if (!buffer)
        errno = ENOMEM;
    return buffer;
}

/* The magazine has none, or something else is out of the ordinary. */
static __attribute__((noinline)) struct pool_buffer *
get_otherwise(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    struct pool_buffer *buffer = NULL;
    if (cache && bytes <= CLASS_BYTES_MAX)
        buffer = magazine_take(&cache->bin[class_of(bytes)]);
    if (!buffer && !(buffer = get_slow(pool, cache, bytes)))
        return NULL;
    /* Debugging has a zone of its own behind the bytes that were asked for. */
    pool_open_bytes(buffer, pool->debug ? buffer->capacity : bytes);
    pool_hand_out(buffer, cache ? cache->number : 0, bytes, 0);
    if (pool->debug)
        debug_got(pool, buffer);
    return buffer;
}

/* Nearly always a magazine has one: that needs no call, and no register saved for one. */
struct pool_buffer *pool_get(struct pool *pool, struct pool_cache *cache, size_t bytes) {
    if (__builtin_expect(!cache || !pool_is_quick(cache, bytes), 0))
        return get_otherwise(pool, cache, bytes);
    struct pool_buffer *buffer = pool_get_quick(cache, bytes, 0);
    return __builtin_expect(buffer != NULL, 1) ? buffer : get_otherwise(pool, cache, bytes);
}

struct pool_buffer *pool_get_run(struct pool *pool, struct pool_cache *cache, size_t bytes,
                                 unsigned max, unsigned *count) {
    *count = 1;
    if (max < 2 || !cache || !pool_is_quick(cache, bytes))
        return pool_get(pool, cache, bytes);
    struct magazines *bin = &cache->bin[class_of(bytes)];
    unsigned have = magazine_count(bin), n = max < have ? max : have;
    if (have < 2)
        return pool_get(pool, cache, bytes);
    struct pool_buffer *first = bin->active, *last = first;
    for (unsigned i = 1;; i++) {
        struct pool_buffer *next = last->next;
        pool_open_bytes(last, bytes);
        pool_hand_out(last, cache->number, bytes, 0);
        if (i == n) {
            bin->active = next;
            break;
        }
        last->next = next;
        last = next;
    }
    count_add(&bin->gets, n);
    *count = n;
    return first;
}

/* Not from this cache: to its home if that wants it, else here. */
static void put_away(struct pool *pool, struct pool_cache *cache, struct pool_buffer *buffer) {
    saw(pool, cache, buffer->size_class);
    if (buffer->size_class >= POOL_CLASSES) {
        refill_put_large(pool, buffer);
        return;
    }
    if (buffer->cache != 0) {
        /* Constant from before the buffer had the number on. */
        struct pool_cache *home =
            atomic_load_explicit(&pool->by_number[buffer->cache], memory_order_relaxed);
        if (home != cache &&
            pool_cache_return(home, buffer, slot_bytes(buffer), pool->return_bytes_max))
            return;
    }
    if (cache) {
        put_here(pool, cache, buffer);
    } else {
        buffer->next = NULL;
        depot_give(pool, buffer);
    }
}

/* Not from this cache, or there is no place in its magazine, or debugging. */
static __attribute__((noinline)) void put_otherwise(struct pool *pool, struct pool_cache *cache,
                                                    struct pool_buffer *buffer) {
    if (pool->debug && !debug_put(pool, buffer))
        return;
    if (buffer->cache & POOL_CHARGED) {
        buffer->cache &= (uint16_t)~POOL_CHARGED;
        pool->on_return(buffer, buffer->account, pool->on_return_arg);
    }
    pool_close_bytes(buffer);
    unsigned size_class = buffer->size_class;
    if (cache)
        magazine_passed_in(&cache->bin[size_class]);
    else
        atomic_fetch_add_explicit(&pool->puts[size_class], 1, memory_order_release);
    if (cache && buffer->cache == cache->number && size_class < POOL_CLASSES)
        put_here(pool, cache, buffer);
    else
        put_away(pool, cache, buffer);
    pool_look(pool, cache);
}

void pool_put(struct pool *pool, struct pool_cache *cache, struct pool_buffer *buffer) {
    ASSERT(buffer->pool == pool && (!cache || cache->pool == pool));
    if (__builtin_expect(!cache || !pool_put_quick(cache, buffer), 0))
        put_otherwise(pool, cache, buffer);
    else
        pool_look(pool, cache);
}

void pool_charge(struct pool_buffer *buffer, uint16_t account) {
    ASSERT(!(buffer->cache & POOL_CHARGED) && buffer->pool->on_return);
    buffer->cache |= POOL_CHARGED;
    buffer->account = account;
}

void pool_on_return(struct pool *pool,
                    void (*call)(const struct pool_buffer *buffer, uint16_t account, void *arg),
                    void *arg) {
    pool->on_return = call;
    pool->on_return_arg = arg;
}

void pool_put_run(struct pool *pool, struct pool_cache *cache, struct pool_buffer *first,
                  struct pool_buffer *last, unsigned count) {
    struct magazines *bin = cache ? &cache->bin[first->size_class] : NULL;
    bool fits =
        cache && first->cache == cache->number && magazine_count(bin) + count <= bin->quick_max;
    for (struct pool_buffer *buffer = first, *next; (!fits || SANITIZES_ADDRESS) && buffer;
         buffer = next) {
        next = buffer == last ? NULL : buffer->next;
        if (fits)
            pool_close_bytes(buffer);
        else
            pool_put(pool, cache, buffer);
    }
    if (!fits)
        return;
    count_add(&bin->puts, count);
    last->next = bin->active;
    bin->active = first;
    pool_look(pool, cache);
}

struct ibv_mr *pool_mr(const struct pool_buffer *buffer) {
    if (buffer->size_class >= POOL_CLASSES)
        return ((const struct large *)buffer->home)->block.mr;
    return ((const struct span *)buffer->home)->arena->block.mr;
}
