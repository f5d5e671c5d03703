/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * arena.h - registered memory in large pieces, handed out as runs of pages.
 *
 * An arena is one allocation of the fabric with one registration. The set grows in steps that
 * double, and gives whole arenas back when they are empty and somebody needs their bytes.
 * The budget counts every registered byte of a pool and is never exceeded.
 *
 * Owner: the pool, under its slow lock.
 */
#ifndef POOL_ARENA_H
#define POOL_ARENA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/fabric.h"

#define POOL_PAGE ((size_t)4096)
#define ARENA_FIRST ((size_t)2 << 20)
#define ARENA_LARGEST ((size_t)32 << 20)

static inline size_t page_round(size_t bytes) {
    return (bytes + POOL_PAGE - 1) & ~(POOL_PAGE - 1);
}

/* ---- registered blocks within a budget ------------------------------------------------------- */

struct budget {
    const struct fabric_ops *fabric;
    struct ibv_pd *pd; /* NULL: the device is gone */
    uint64_t bytes_max;
    _Atomic uint64_t bytes; /* written under the slow lock, read by anybody */
};

struct block {
    uint8_t *addr;
    size_t bytes;
    struct ibv_mr *mr;
};

/* Allocates and registers page-rounded bytes within the budget. 0 or -errno (ENOMEM: the cap). */
int block_open(struct block *block, struct budget *budget, size_t bytes);
void block_close(struct block *block, struct budget *budget);
/* Ends the registration and keeps the memory. */
void block_let_go(struct block *block, struct budget *budget);

/* ---- arenas ---------------------------------------------------------------------------------- */

struct arena {
    struct arena *next;
    struct block block;
    uint32_t pages, pages_free;
    uint32_t hint;  /* where the last search ended */
    uint8_t used[]; /* one byte a page */
};

struct arenas {
    struct arena *list;
    size_t next_bytes; /* size of the next arena */
};

void arenas_init(struct arenas *set);
/* Adds an arena with room for a run of min_bytes. 0 or -errno. */
int arenas_grow(struct arenas *set, struct budget *budget, size_t min_bytes);
/* Gives back every arena without a used page; all: the used ones too. True if there was one. */
bool arenas_release(struct arenas *set, struct budget *budget, bool all);

void arenas_let_go(struct arenas *set, struct budget *budget);

/* A run of pages and its arena; NULL if there is none that long. */
uint8_t *arenas_take(struct arenas *set, uint32_t pages, struct arena **from);
void arena_give(struct arena *arena, uint8_t *addr, uint32_t pages);

#endif
