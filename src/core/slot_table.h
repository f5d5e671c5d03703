/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * slot_table.h - slots of one size, which are numbered and stay where they are.
 *
 * A table is made of chunks that are allocated when first needed and stay as long as the table. So a slot is found without
 * a lock, and no number, whatever it is, leads to unmapped memory.
 *
 * Owner: slot_table_find() and slot_table_at() from any thread; taking and giving under a lock of the caller's.
 */
#ifndef CORE_SLOT_TABLE_H
#define CORE_SLOT_TABLE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SLOT_CHUNK_LOG2 6
#define SLOT_CHUNK (1u << SLOT_CHUNK_LOG2)
#define SLOT_CHUNKS 1024u
#define SLOTS_MAX (SLOT_CHUNKS * SLOT_CHUNK)
#define SLOT_ALIGN 64u /* of each slot: their size is a multiple of it */

struct slot_table {
    _Atomic(char *) chunk[SLOT_CHUNKS]; /* its slots, then for each the next free one */
    uint32_t free; /* the first free one of those used before, and 1; 0: none */
    uint32_t made;
};

/* NULL: no slot near it was ever used. `bytes` is the size of a slot. */
static inline void *slot_table_find(struct slot_table *t, uint32_t slot, size_t bytes) {
    if (slot >= SLOTS_MAX)
        return NULL;
    char *chunk = atomic_load_explicit(&t->chunk[slot >> SLOT_CHUNK_LOG2], memory_order_acquire);
    return chunk ? chunk + (slot & (SLOT_CHUNK - 1)) * bytes : NULL;
}

/* Of a slot that was used: it exists as long as the table. */
static inline void *slot_table_at(struct slot_table *t, uint32_t slot, size_t bytes) {
    char *chunk =
        atomic_load_explicit(&t->chunk[slot % SLOTS_MAX >> SLOT_CHUNK_LOG2], memory_order_acquire);
    return chunk + (slot & (SLOT_CHUNK - 1)) * bytes;
}

/*
 * A free slot and its number, or NULL: all are used, or there is no memory. It has the bytes it was given back with; one
 * that was never used before is zero, but for what `prepare` wrote there before any thread could find it.
 */
void *slot_table_take(struct slot_table *t, size_t bytes, void (*prepare)(void *slot),
                      uint32_t *number);
void slot_table_give(struct slot_table *t, size_t bytes, uint32_t number);

#endif
