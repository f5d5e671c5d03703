/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * large.c - mappings of single buffers, and the few that are kept for reuse.
 *
 * Owner and locks: see large.h. Kept ones are searched linearly: they are at most LARGE_KEPT_MAX.
 */
#include "pool/large.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void larges_init(struct larges *larges) {
    memset(larges, 0, sizeof *larges);
    larges->kept_tail = &larges->kept;
}

static struct large *unkeep(struct larges *larges, struct large **link) {
    struct large *large = *link;
    *link = large->kept_next;
    if (larges->kept_tail == &large->kept_next)
        larges->kept_tail = link;
    large->kept_next = NULL;
    larges->kept_count--;
    larges->kept_bytes -= large->block.bytes;
    return large;
}

struct large *larges_take(struct larges *larges, size_t bytes) {
    struct large **best = NULL;
    for (struct large **link = &larges->kept; *link; link = &(*link)->kept_next) {
        uint64_t capacity = (*link)->buffer.capacity;
        if (capacity < bytes || capacity > bytes + bytes / 4)
            continue;
        /* Of equals the newest: its lines may still be in a cache. */
        if (!best || capacity <= (*best)->buffer.capacity)
            best = link;
    }
    return best ? unkeep(larges, best) : NULL;
}

void larges_keep(struct larges *larges, struct large *large) {
    large->kept_next = NULL;
    *larges->kept_tail = large;
    larges->kept_tail = &large->kept_next;
    larges->kept_count++;
    larges->kept_bytes += large->block.bytes;
}

struct large *larges_evict(struct larges *larges, unsigned keep_count, uint64_t keep_bytes) {
    if (!larges->kept || (larges->kept_count <= keep_count && larges->kept_bytes <= keep_bytes))
        return NULL;
    struct large *large = unkeep(larges, &larges->kept);
    *large->all_link = large->all_next;
    if (large->all_next)
        large->all_next->all_link = large->all_link;
    return large;
}

void larges_add(struct larges *larges, struct large *large) {
    large->all_next = larges->all;
    large->all_link = &larges->all;
    if (large->all_next)
        large->all_next->all_link = &large->all_next;
    larges->all = large;
}

bool large_fits(const struct budget *budget, size_t bytes) {
    uint64_t used = atomic_load_explicit(&budget->bytes, memory_order_relaxed);
    return used <= budget->bytes_max &&
           page_round(POOL_HEADROOM + bytes) <= budget->bytes_max - used;
}

struct large *large_open(struct pool *pool, struct budget *budget, size_t bytes) {
    struct large *large = aligned_alloc(_Alignof(struct large), sizeof *large);
    if (!large)
        return NULL;
    memset(large, 0, sizeof *large);
    int error = block_open(&large->block, budget, page_round(POOL_HEADROOM + bytes));
    if (error != 0) {
        free(large);
        errno = -error;
        return NULL;
    }
    large->buffer.pool = pool;
    large->buffer.data = large->block.addr + POOL_HEADROOM;
    large->buffer.lkey = large->block.mr->lkey;
    large->buffer.size_class = POOL_CLASSES;
    large->buffer.capacity = large->block.bytes - POOL_HEADROOM;
    large->buffer.home = large;
    return large;
}

void large_close(struct large *large, struct budget *budget) {
    block_close(&large->block, budget);
    free(large);
}

void larges_close(struct larges *larges, struct budget *budget) {
    for (struct large *large = larges->all, *next; large; large = next) {
        next = large->all_next;
        large_close(large, budget);
    }
    larges_init(larges);
}
