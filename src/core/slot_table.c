/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* slot_table.c - taking slots and giving them back. */
#include "core/slot_table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Of each slot of a chunk: the next free one of the table, and 1. They lie behind the slots. */
static uint32_t *next_free(struct slot_table *t, size_t bytes, uint32_t number) {
    char *chunk = atomic_load_explicit(&t->chunk[number >> SLOT_CHUNK_LOG2], memory_order_relaxed);
    return (uint32_t *)(void *)(chunk + SLOT_CHUNK * bytes) + (number & (SLOT_CHUNK - 1));
}

/* False: no memory. */
static bool has_chunk(struct slot_table *t, size_t bytes, uint32_t at,
                      void (*prepare)(void *slot)) {
    if (atomic_load_explicit(&t->chunk[at], memory_order_relaxed))
        return true;
    size_t all = SLOT_CHUNK * (bytes + sizeof(uint32_t));
    char *chunk = aligned_alloc(SLOT_ALIGN, all);
    if (!chunk)
        return false;
    memset(chunk, 0, all);
    for (uint32_t i = 0; prepare && i < SLOT_CHUNK; i++)
        prepare(chunk + i * bytes);
    atomic_store_explicit(&t->chunk[at], chunk, memory_order_release);
    return true;
}

void *slot_table_take(struct slot_table *t, size_t bytes, void (*prepare)(void *slot),
                      uint32_t *number) {
    if (t->free > 0) {
        *number = t->free - 1;
        t->free = *next_free(t, bytes, *number);
    } else if (t->made < SLOTS_MAX && has_chunk(t, bytes, t->made >> SLOT_CHUNK_LOG2, prepare)) {
        *number = t->made++;
    } else {
        return NULL;
    }
    return slot_table_at(t, *number, bytes);
}

void slot_table_give(struct slot_table *t, size_t bytes, uint32_t number) {
    *next_free(t, bytes, number) = t->free;
    t->free = number + 1;
}
