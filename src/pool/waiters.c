/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * waiters.c - threads that wait for memory, and how they are told that some came back.
 *
 * A waiter notes how much it wants, sets the flag, makes every thread pass a barrier, and tries once more.
 * A thread that brings memory into a cache or the lists makes it visible, and then looks at the flag
 * (pool_look()). One of the two sees the other. A thread that finds the flag set empties its cache and all return
 * stacks into the lists, because a buffer in a thread's cache is of no use to the waiter, and calls wake, once, if
 * there is news.
 *
 * No wake is lost, since an attempt that fails has used up all that could have helped, in whatever form:
 * there was no free buffer of its class in the lists, no empty span, no kept mapping, no run of free pages
 * long enough, and the pool could not grow. That stays so until one of these comes:
 *   - a buffer of a class that is waited for, or the last one of a span, comes into the lists; a mapping of its own
 *     is kept; the pool grows. Each sets `news`, under the lock under which it is done, and only the first
 *     waiter, when there is no other, clears it;
 *   - the helper has done what it was asked for (grow.h), or a cache is closed: these wake without asking.
 * One buffer of a span of 500 does not wake a thread that wants a MiB, nor could that use it. And when no buffer is out
 * any more that could come back, wake is called too: a caller that waits for more than there is must get ENOMEM.
 *
 * Any thread. All but the flag is under the lock.
 */
#include "base/barrier.h"
#include "pool/internal.h"

void pool_on_wake(struct pool *pool, void (*wake)(void *arg), void *arg) {
    pool->wake = wake;
    pool->wake_arg = arg;
}

uint64_t pool_wait(struct pool *pool, size_t bytes) {
    unsigned size_class = bytes > CLASS_BYTES_MAX ? POOL_CLASSES : class_of(bytes);
    atomic_fetch_add_explicit(&pool->alloc_waits, 1, memory_order_relaxed);
    pthread_mutex_lock(&pool->lock);
    if (!atomic_load_explicit(&pool->head.waiting, memory_order_relaxed)) {
        pool->waits_for.news = pool->waits_for.everywhere = false;
        pool->waits_for.round++;
        atomic_store_explicit(&pool->head.waiting, true, memory_order_relaxed);
    }
    pool->waits_for.wanted |= (uint64_t)1 << size_class;
    bool everywhere = pool->waits_for.everywhere;
    uint32_t round = pool->waits_for.round;
    uint64_t came_back = pool->came_back;
    pthread_mutex_unlock(&pool->lock);
    if (everywhere) /* the barrier is dear for all threads */
        return came_back;
    barrier_everywhere();
    pthread_mutex_lock(&pool->lock);
    if (pool->waits_for.round == round)
        pool->waits_for.everywhere = true;
    pthread_mutex_unlock(&pool->lock);
    return came_back;
}

void pool_wake(struct pool *pool) {
    if (!atomic_load_explicit(&pool->head.waiting, memory_order_relaxed))
        return;
    pthread_mutex_lock(&pool->lock);
    bool waiting = atomic_load_explicit(&pool->head.waiting, memory_order_relaxed);
    atomic_store_explicit(&pool->head.waiting, false, memory_order_relaxed);
    pool->waits_for.wanted = 0;
    pthread_mutex_unlock(&pool->lock);
    if (!waiting)
        return;
    atomic_fetch_add_explicit(&pool->alloc_wakeups, 1, memory_order_relaxed);
    if (pool->wake)
        pool->wake(pool->wake_arg);
}

void pool_has_waiters(struct pool *pool, struct pool_cache *cache) {
    pthread_mutex_lock(&pool->lock);
    /* Under the lock: of the thread that returns the last one and the thread that notes one more, one sees both. */
    uint64_t for_good = atomic_load_explicit(&pool->note, memory_order_relaxed);
    /* A buffer that another thread is half way in returning cannot go to the lists here: so wake. */
    bool stuck = !depot_gather(pool, cache);
    bool wake = stuck || pool->waits_for.news || pool->out <= for_good;
    pthread_mutex_unlock(&pool->lock);
    if (wake)
        pool_wake(pool);
}

void pool_noted(struct pool *pool, struct pool_cache *cache) {
    atomic_fetch_add_explicit(&pool->note, 1, memory_order_relaxed);
    pool_look(pool, cache);
}

void pool_cache_flush(struct pool_cache *cache) {
    if (pool_cache_has(cache))
        pool_has_waiters(cache->pool, cache);
}

/*
 * All under the lock, so that nothing comes back between two questions. A buffer that a thread is about to return still
 * counts as out. If none came back since the waiter began to wait, the attempt found as little as there is now. If one
 * did, the thread that returned it looks at the flag after that, and wakes if no other is out.
 */
bool pool_may_return(struct pool *pool, uint64_t came_back) {
    if (!atomic_load(&pool->budget.pd))
        return false;
    pthread_mutex_lock(&pool->lock);
    bool may = pool->came_back != came_back ||
               pool->out > atomic_load_explicit(&pool->note, memory_order_relaxed);
    pthread_mutex_unlock(&pool->lock);
    return may;
}
