/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * arena.c - registered blocks, and arenas as page maps over them.
 *
 * All of it is the slow path: a span of many buffers at a time.
 * Owner: the pool, under its slow lock.
 */
#include "pool/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/sanitize.h"
#include "fabric/fast.h"

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool reserve(struct budget *budget, size_t bytes) {
    uint64_t used = atomic_load_explicit(&budget->bytes, memory_order_relaxed);
    do {
        if (bytes > budget->bytes_max || used > budget->bytes_max - bytes)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&budget->bytes, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void unreserve(struct budget *budget, size_t bytes) {
    atomic_fetch_sub_explicit(&budget->bytes, bytes, memory_order_relaxed);
}

int block_open(struct block *block, struct budget *budget, size_t bytes) {
    if (!reserve(budget, bytes))
        return -ENOMEM;
    struct ibv_pd *pd = atomic_load(&budget->pd);
    if (!pd) {
        unreserve(budget, bytes);
        return -ENODEV;
    }
    const struct fabric_ops *fabric = budget->fabric;
    struct hugepages backing;
    errno = 0;
    uint8_t *addr = hugepages_alloc(fabric, bytes, &budget->wish, &backing);
    if (!addr) {
        int error = errno ? errno : ENOMEM;
        unreserve(budget, bytes);
        return -error;
    }
    /* Local access only: no peer may reach a buffer that a pool hands from session to session. A memory
     * window may be bound on a part of it, which gives one peer a key to that part for a while. */
    errno = 0;
    struct ibv_mr *mr = fabric->reg_mr(pd, addr, bytes,
                                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND |
                                           (int)fabric_still_access(fabric));
    if (!mr) {
        int error = errno ? errno : ENOMEM;
        fabric->mem_free(addr, bytes);
        unreserve(budget, bytes);
        return -error;
    }
    *block = (struct block){addr, bytes, mr, backing};
    hugepages_count(&budget->report, &backing, (int64_t)bytes);
    hugepages_miss(&budget->report, &budget->wish, &backing, bytes);
    return 0;
}

void block_close(struct block *block, struct budget *budget) {
    /* A device that will not let go of a registration keeps its memory: unmapping it would let the
     * device write into whatever comes there next. The bytes stay in the budget then. */
    if (block->mr && budget->fabric->dereg_mr(block->mr) != 0)
        return;
    SANITIZE_UNPOISON(block->addr,
                      block->bytes); /* the addresses may come back as another mapping */
    budget->fabric->mem_free(block->addr, block->bytes);
    hugepages_count(&budget->report, &block->backing, -(int64_t)block->bytes);
    unreserve(budget, block->bytes);
}

void block_detach(struct block *block, struct budget *budget) {
    if (block->mr && budget->fabric->dereg_mr(block->mr) == 0)
        block->mr = NULL;
}

/* ---- arenas ---------------------------------------------------------------------------------- */

void arenas_detach(struct arenas *set, struct budget *budget) {
    struct arena *arena;
    cds_list_for_each_entry(arena, &set->list, link)
        block_detach(&arena->block, budget);
}

void arenas_init(struct arenas *set, struct budget *budget) {
    hugepages_fit(&budget->wish, budget->bytes_max);
    size_t huge = budget->wish.huge_log2 > 0 ? (size_t)1 << budget->wish.huge_log2 : 0;
    CDS_INIT_LIST_HEAD(&set->list);
    set->next_bytes = huge > ARENA_FIRST ? huge : ARENA_FIRST;
}

static size_t budget_left(const struct budget *budget) {
    uint64_t used = atomic_load_explicit(&budget->bytes, memory_order_relaxed);
    uint64_t left = budget->bytes_max > used ? budget->bytes_max - used : 0;
    return left < SIZE_MAX ? (size_t)left & ~(POOL_PAGE - 1) : SIZE_MAX & ~(POOL_PAGE - 1);
}

size_t arenas_step(const struct arenas *set, const struct budget *budget, size_t min_bytes) {
    size_t bytes = set->next_bytes;
    size_t left = budget_left(budget);
    if (bytes > left)
        bytes = left; /* the last arena takes what the cap leaves */
    return bytes < min_bytes ? 0 : bytes;
}

struct arena *arena_open(struct budget *budget, size_t bytes) {
    struct block block;
    int error = block_open(&block, budget, bytes);
    if (error != 0) {
        errno = -error;
        return NULL;
    }
    uint32_t pages = (uint32_t)(bytes / POOL_PAGE);
    struct arena *arena = calloc(1, sizeof *arena + pages);
    if (!arena) {
        block_close(&block, budget);
        errno = ENOMEM;
        return NULL;
    }
    arena->block = block;
    arena->pages = arena->pages_free = pages;
    return arena;
}

void arenas_add(struct arenas *set, struct arena *arena) {
    cds_list_add(&arena->link, &set->list);
    if (arena->block.bytes == set->next_bytes && set->next_bytes < ARENA_LARGEST)
        set->next_bytes *= 2;
}

uint64_t arenas_free_bytes(const struct arenas *set) {
    uint64_t pages = 0;
    const struct arena *arena;
    cds_list_for_each_entry(arena, &set->list, link)
        pages += arena->pages_free;
    return pages * POOL_PAGE;
}

/* A limit of locked memory may refuse a large step and still allow a small one. */
size_t arenas_smaller(struct arenas *set, size_t bytes, size_t min_bytes) {
    if (bytes <= min_bytes)
        return 0;
    if (set->next_bytes > ARENA_LARGEST) /* there is no huge page that large */
        set->next_bytes = bytes = bytes < ARENA_FIRST ? bytes : ARENA_FIRST;
    else
        bytes = page_round(bytes / 2);
    return bytes < min_bytes ? min_bytes : bytes;
}

int arenas_grow(struct arenas *set, struct budget *budget, size_t min_bytes) {
    min_bytes = page_round(min_bytes);
    size_t bytes = arenas_step(set, budget, min_bytes);
    if (bytes == 0)
        return -ENOMEM;
    struct arena *arena;
    while (!(arena = arena_open(budget, bytes))) {
        int error = errno;
        if ((bytes = arenas_smaller(set, bytes, min_bytes)) == 0)
            return -error;
    }
    arenas_add(set, arena);
    return 0;
}

bool arenas_release(struct arenas *set, struct budget *budget, bool all) {
    bool any = false;
    struct arena *arena, *next;
    cds_list_for_each_entry_safe(arena, next, &set->list, link) {
        if (!all && arena->pages_free < arena->pages)
            continue;
        cds_list_del(&arena->link);
        block_close(&arena->block, budget);
        free(arena);
        any = true;
    }
    return any;
}

/* First free run in [from, to). Returns its first page, or to. */
static uint32_t find_run(const struct arena *arena, uint32_t from, uint32_t to, uint32_t pages) {
    uint32_t run = 0;
    for (uint32_t page = from; page < to; page++) {
        run = arena->used[page] ? 0 : run + 1;
        if (run == pages)
            return page + 1 - pages;
    }
    return to;
}

bool arenas_have(const struct arenas *set, uint32_t pages) {
    const struct arena *arena;
    cds_list_for_each_entry(arena, &set->list, link) {
        if (arena->pages_free >= pages && find_run(arena, 0, arena->pages, pages) < arena->pages)
            return true;
    }
    return false;
}

uint8_t *arenas_take(struct arenas *set, uint32_t pages, struct arena **from) {
    struct arena *arena;
    cds_list_for_each_entry(arena, &set->list, link) {
        if (arena->pages_free < pages)
            continue;
        uint32_t first = find_run(arena, arena->hint, arena->pages, pages);
        if (first == arena->pages && arena->hint > 0)
            first = find_run(arena, 0, arena->pages, pages);
        if (first == arena->pages)
            continue;
        memset(arena->used + first, 1, pages);
        arena->pages_free -= pages;
        arena->hint = first + pages;
        *from = arena;
        return arena->block.addr + (size_t)first * POOL_PAGE;
    }
    return NULL;
}

void arena_give(struct arena *arena, uint8_t *addr, uint32_t pages) {
    uint32_t first = (uint32_t)((size_t)(addr - arena->block.addr) / POOL_PAGE);
    memset(arena->used + first, 0, pages);
    arena->pages_free += pages;
    if (first < arena->hint)
        arena->hint = first; /* fill from the front, so that arenas at the back empty out */
}
