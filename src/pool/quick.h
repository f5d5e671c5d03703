/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * quick.h - the way of nearly every buffer, inline: out of the magazine of the caller's own cache, and back into it.
 *
 * Nothing here calls a function, but for a thread that waits, so that a caller which needs nothing else saves no
 * registers. What is out of the ordinary (see magazine.h: quick_bytes, quick_max) is left to pool_get() and
 * pool_put().
 *
 * Owner: the thread that owns the cache.
 */
#ifndef POOL_QUICK_H
#define POOL_QUICK_H

#include "common/assert.h"
#include "base/barrier.h"
#include "common/sanitize.h"
#include "pool/magazine.h"
#include "pool/size_class.h"

/* What a pool begins with: read whenever a buffer is returned. */
struct pool_head {
    _Atomic bool waiting; /* a thread waits for memory; written under the pool's lock */
};

/* For the address sanitizer the bytes behind a message may not be used. */
static inline void pool_open_bytes(struct pool_buffer *buffer, size_t bytes) {
    SANITIZE_UNPOISON(buffer->data - POOL_HEADROOM, bytes + POOL_HEADROOM);
    SANITIZE_POISON(buffer->data + bytes, buffer->capacity - bytes);
}

/* And none of a buffer that was returned. */
static inline void pool_close_bytes(struct pool_buffer *buffer) {
    SANITIZE_POISON(buffer->data - POOL_HEADROOM, buffer->capacity + POOL_HEADROOM);
}

/* Its control block as one has it that was just got. */
static inline void pool_hand_out(struct pool_buffer *buffer, uint16_t cache, size_t bytes,
                                 uint8_t state) {
    buffer->cache = cache;
    buffer->next = NULL;
    buffer->size = bytes;
    buffer->state = state;
    buffer->flags = 0;
    buffer->owner = NULL;
}

/* pool_get_quick() takes sizes from 1 up to this. */
static inline uint32_t pool_quick_bytes(const struct pool_cache *cache) {
    return cache->quick_bytes;
}

static inline bool pool_is_quick(const struct pool_cache *cache, size_t bytes) {
    return bytes - 1 < pool_quick_bytes(cache);
}

/* As pool_get(), but with this state. NULL: the magazine has none. */
static inline struct pool_buffer *pool_get_quick(struct pool_cache *cache, size_t bytes,
                                                 uint8_t state) {
    ASSERT(pool_is_quick(cache, bytes));
    struct pool_buffer *buffer = magazine_take(&cache->bin[class_of(bytes)]);
    if (__builtin_expect(buffer != NULL, 1)) {
        pool_open_bytes(buffer, bytes);
        pool_hand_out(buffer, cache->number, bytes, state);
    }
    return buffer;
}

/* As pool_put(), but that pool_is_waited_for() has to be asked behind it. False: nothing happened. */
static inline bool pool_put_quick(struct pool_cache *cache, struct pool_buffer *buffer) {
    ASSERT(buffer->pool == cache->pool);
    if (__builtin_expect(buffer->cache != cache->number, 0) ||
        !magazine_add(&cache->bin[buffer->size_class], buffer))
        return false;
    pool_close_bytes(buffer);
    return true;
}

/* After memory may have come into a cache or the lists, by whatever way: the other half of pool_wait(). */
static inline bool pool_is_waited_for(const struct pool *pool) {
    const struct pool_head *head = (const struct pool_head *)(const void *)pool;
    barrier_here(); /* between the buffer that came back and the flag; partner: pool_wait() */
    return __builtin_expect(atomic_load_explicit(&head->waiting, memory_order_relaxed), 0);
}

static inline void pool_look(struct pool *pool, struct pool_cache *cache) {
    if (pool_is_waited_for(pool))
        pool_has_waiters(pool, cache);
}

#endif
