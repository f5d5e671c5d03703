/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * arena.h - registered memory in large pieces, handed out as runs of pages.
 *
 * An arena is one allocation of the fabric with one registration. The set grows in steps that
 * double, and gives whole arenas back when they are empty and another part of the pool needs their bytes.
 * The budget counts every registered byte of a pool and is never exceeded.
 *
 * Owner: the pool, under its slow lock; a block may be opened without it.
 */
#ifndef POOL_ARENA_H
#define POOL_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <urcu/list.h>

#include "fabric/fabric.h"
#include "pool/hugepages.h"

#define POOL_PAGE ((size_t)4096)
#define ARENA_FIRST ((size_t)2 << 20)
#define ARENA_LARGEST ((size_t)32 << 20)

static inline size_t page_round(size_t bytes) {
    return (bytes + POOL_PAGE - 1) & ~(POOL_PAGE - 1);
}

/* ---- registered blocks within a budget ------------------------------------------------------- */

struct budget {
    const struct fabric_ops *fabric;
    struct ibv_pd *_Atomic pd; /* NULL: the device is gone */
    uint64_t bytes_max;
    struct hugepages_wish wish;
    _Atomic uint64_t bytes; /* what blocks have, and what is about to be one */
    struct hugepages_report report;
};

struct block {
    uint8_t *addr;
    size_t bytes;
    struct ibv_mr *mr;
    struct hugepages backing;
};

/* Allocates and registers page-rounded bytes within the budget; any thread. 0 or -errno (ENOMEM: the
 * cap). */
int block_open(struct block *block, struct budget *budget, size_t bytes);
void block_close(struct block *block, struct budget *budget);
/* Ends the registration and keeps the memory. */
void block_detach(struct block *block, struct budget *budget);

/* ---- arenas ---------------------------------------------------------------------------------- */

struct arena {
    struct cds_list_head link;
    struct block block;
    uint32_t pages, pages_free;
    uint32_t hint;  /* where the last search ended */
    uint8_t used[]; /* one byte a page */
};

struct arenas {
    struct cds_list_head list;
    size_t next_bytes; /* size of the next arena */
};

/* The budget's wish becomes what its cap allows. */
void arenas_init(struct arenas *set, struct budget *budget);
/* The bytes that arenas_grow() would ask for; 0: the cap leaves less than min_bytes. */
size_t arenas_step(const struct arenas *set, const struct budget *budget, size_t min_bytes);
/* A new arena, in no set yet: any thread, no lock. NULL and errno. */
struct arena *arena_open(struct budget *budget, size_t bytes);
void arenas_add(struct arenas *set, struct arena *arena);
/* Free pages in bytes, all arenas together. */
uint64_t arenas_free_bytes(const struct arenas *set);
/* So many bytes were refused: what to try next; 0: it was as little as could be of use. */
size_t arenas_smaller(struct arenas *set, size_t bytes, size_t min_bytes);
/* Whether a run of pages is free somewhere. */
bool arenas_have(const struct arenas *set, uint32_t pages);
/* Adds an arena with room for a run of min_bytes. 0 or -errno. */
int arenas_grow(struct arenas *set, struct budget *budget, size_t min_bytes);
/* Gives back every arena without a used page; all: the used ones too. True if there was one. */
bool arenas_release(struct arenas *set, struct budget *budget, bool all);

void arenas_detach(struct arenas *set, struct budget *budget);

/* A run of pages and its arena; NULL if there is none that long. */
uint8_t *arenas_take(struct arenas *set, uint32_t pages, struct arena **from);
void arena_give(struct arena *arena, uint8_t *addr, uint32_t pages);

#endif
