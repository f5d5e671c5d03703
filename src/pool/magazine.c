/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * magazine.c - magazines and the return stack.
 *
 * The stack is liburcu's wfstack. Taking all of it is one exchange too, so that any number of threads
 * may do it at once; each then walks a chain of its own. A producer has exchanged the head before it
 * writes its link: the walk stops there, keeps its place, and goes on the next time. No thread waits.
 */
#include "pool/magazine.h"

#include <stdlib.h>
#include <string.h>

#include "common/assert.h"
#include "common/sanitize.h"

struct pool_cache *pool_cache_new(struct pool *pool, uint16_t number) {
    struct pool_cache *cache = aligned_alloc(_Alignof(struct pool_cache), sizeof *cache);
    if (!cache)
        return NULL;
    memset(cache, 0, sizeof *cache);
    cache->pool = pool;
    cache->number = number;
    __cds_wfs_init(&cache->home.returns);
    return cache;
}

/* ---- magazines ------------------------------------------------------------------------------- */

/* A count is that of its stack, as far as can be seen without a walk. */
static void assert_counted(const struct magazines *bin) {
    ASSERT((bin->active == NULL) == (magazine_count(bin) == 0));
    ASSERT((bin->spare == NULL) == (count_of(&bin->spare_count) == 0));
}

struct pool_buffer *magazine_rotate(struct magazines *bin) {
    assert_counted(bin);
    struct pool_buffer *old = bin->spare;
    bin->spare = bin->active;
    uint32_t count = magazine_count(bin);
    count_set(&bin->spare_count, count);
    bin->active = NULL;
    magazine_brought(bin, -count);
    return old;
}

bool magazine_swap(struct magazines *bin) {
    assert_counted(bin);
    if (!bin->spare)
        return false;
    bin->active = bin->spare;
    magazine_brought(bin, count_of(&bin->spare_count));
    bin->spare = NULL;
    count_set(&bin->spare_count, 0);
    return true;
}

struct pool_buffer *magazine_empty(struct magazines *bin) {
    assert_counted(bin);
    struct pool_buffer *chain = bin->active ? bin->active : bin->spare;
    if (bin->active) {
        struct pool_buffer *last = bin->active;
        while (last->next)
            last = last->next;
        last->next = bin->spare;
    }
    bin->active = bin->spare = NULL;
    magazine_brought(bin, -magazine_count(bin));
    count_set(&bin->spare_count, 0);
    return chain;
}

/* ---- returns ----------------------------------------------------------------------------------- */

bool pool_cache_return(struct pool_cache *home, struct pool_buffer *buffer, int64_t bytes,
                       int64_t bytes_max) {
    /* A look only: the thread that runs out finds a buffer that was pushed onto a closed stack. */
    if (atomic_load_explicit(&home->home.closed, memory_order_relaxed) ||
        atomic_load_explicit(&home->home.bytes, memory_order_relaxed) > bytes_max)
        return false;
    atomic_fetch_add_explicit(&home->home.bytes, bytes, memory_order_relaxed);
    cds_wfs_node_init(&buffer->returned);
    SANITIZE_RELEASE(buffer); /* liburcu's barriers are not visible to the thread sanitizer */
    cds_wfs_push(&home->home.returns, &buffer->returned);
    return true;
}

/* Takes the first of a chain; *chain stays where it is while the next one's link is not written. */
static struct pool_buffer *chain_next(struct cds_wfs_node **chain) {
    struct cds_wfs_node *node = *chain;
    if (!node)
        return NULL;
    struct cds_wfs_node *next = cds_wfs_next_nonblocking(node);
    if (next == CDS_WFS_WOULDBLOCK)
        return NULL;
    *chain = next;
    struct pool_buffer *buffer = caa_container_of(node, struct pool_buffer, returned);
    SANITIZE_ACQUIRE(buffer);
    return buffer;
}

static struct cds_wfs_node *take_all(struct pool_cache *cache) {
    if (cds_wfs_empty(&cache->home.returns))
        return NULL;
    struct cds_wfs_head *head = __cds_wfs_pop_all(&cache->home.returns);
    return head ? cds_wfs_first(head) : NULL;
}

struct pool_buffer *pool_cache_next_returned(struct pool_cache *cache) {
    if (!cache->pending)
        cache->pending = take_all(cache);
    return chain_next(&cache->pending);
}

struct pool_buffer *pool_cache_next_foreign(struct pool_cache *cache) {
    if (!cache->home.half_way)
        cache->home.half_way = take_all(cache);
    return chain_next(&cache->home.half_way);
}

void pool_cache_returned(struct pool_cache *cache, int64_t bytes) {
    atomic_fetch_sub_explicit(&cache->home.bytes, bytes, memory_order_relaxed);
}
