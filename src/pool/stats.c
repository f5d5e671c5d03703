/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stats.c - the pool's counters, and their part of the statistics page.
 *
 * Any thread; counters with one writer are read without a lock, the lists under theirs.
 */
#include "base/stats.h"
#include "pool/internal.h"

uint64_t pool_bytes(const struct pool *pool) {
    return atomic_load_explicit(&pool->budget.bytes, memory_order_relaxed);
}

void pool_belongs(struct pool_buffer *buffer, uint64_t session, const char *peer) {
    if (__builtin_expect(buffer->pool->debug, 0))
        debug_belongs(buffer, session, peer);
}

void pool_put_again(const struct pool_buffer *buffer) {
    if (__builtin_expect(buffer->pool->debug, 0))
        debug_put_again(buffer->pool, buffer);
}

_Atomic uint64_t *pool_note(struct pool *pool) {
    return &pool->note;
}

size_t pool_class_bytes(unsigned size_class) {
    return size_class < POOL_CLASSES ? class_capacity(size_class) : SIZE_MAX;
}

static uint64_t see(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_acquire);
}

bool pool_cache_has(const struct pool_cache *cache) {
    for (unsigned i = 0; i < POOL_CLASSES; i++)
        if (magazine_count_seen(&cache->bin[i]) + count_of(&cache->bin[i].spare_count) > 0)
            return true;
    return atomic_load_explicit(&cache->home.bytes, memory_order_relaxed) > 0;
}

/* ---- the statistics page ------------------------------------------------------------------------ */

_Static_assert(STATS_CLASSES == POOL_CLASSES + 1, "sizes");

static void show(const _Atomic uint64_t *from, _Atomic uint64_t *to) {
    atomic_store_explicit(to, atomic_load_explicit(from, memory_order_relaxed),
                          memory_order_relaxed);
}

void pool_cache_show(const struct pool_cache *cache, struct stats_buffers *out) {
    for (uint64_t left = cache->seen; left != 0; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctzll(left);
        show(&cache->bin[i].puts, &out[i].puts);
        show(&cache->bin[i].gets, &out[i].gets);
    }
}

void pool_show(const struct pool *pool, struct stats_memory *out) {
    const struct hugepages_report *report = &pool->budget.report;
    const struct {
        uint64_t value;
        _Atomic uint64_t *to;
    } list[] = {
        {pool_bytes(pool), &out->bytes},
        {pool->budget.bytes_max, &out->bytes_max},
        {(uint64_t)atomic_load(&report->kind[HUGEPAGES_SMALL]), &out->ordinary},
        {(uint64_t)atomic_load(&report->kind[HUGEPAGES_TRANSPARENT]), &out->transparent},
        {(uint64_t)atomic_load(&report->kind[HUGEPAGES_2M]), &out->huge_2m},
        {(uint64_t)atomic_load(&report->kind[HUGEPAGES_1G]), &out->huge_1g},
        {(uint64_t)atomic_load(&report->bound), &out->numa_bound},
        {(uint64_t)atomic_load(&report->missed), &out->huge_missed},
        {see(&pool->grower.ahead), &out->grown_ahead},
        {see(&pool->grower.in_need), &out->grown_on_demand},
        {see(&pool->alloc_waits), &out->alloc_waits},
        {see(&pool->alloc_wakeups), &out->alloc_wakeups},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        atomic_store_explicit(list[i].to, list[i].value, memory_order_relaxed);
    atomic_store_explicit(&out->numa, pool->budget.wish.numa, memory_order_relaxed);
    uint64_t left = atomic_load_explicit(&pool->seen, memory_order_relaxed);
    for (; left != 0; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctzll(left);
        show(&pool->puts[i], &out->buffers[i].puts);
        show(&pool->gets[i], &out->buffers[i].gets);
    }
}

void pool_describe(struct pool *pool, char *text, size_t bytes) {
    hugepages_describe(&pool->budget.report, &pool->budget.wish, text, bytes);
}
