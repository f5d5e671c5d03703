/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * session_table.h - handles and the tables they point into.
 *
 *   63..56 node   55..32 slot   31..0 generation (never 0)
 *
 * One table a node index, made of chunks that are allocated when first needed and never freed while
 * the process lives, so a lookup needs no lock and can never touch unmapped memory, whatever the
 * handle says. A new node with the index of a closed one takes over its table: generations go on.
 *
 * Owner: taking and freeing under the table's lock (slow path); slot_find() from any thread.
 */
#ifndef CORE_SESSION_TABLE_H
#define CORE_SESSION_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "fabric/wakeup.h"
#include "core/session.h"

#define NODES_MAX 64
#define SLOT_CHUNK_LOG2 6
#define SLOT_CHUNK (1u << SLOT_CHUNK_LOG2)
#define SLOT_CHUNKS 1024u
#define SLOTS_MAX (SLOT_CHUNKS * SLOT_CHUNK)
/* An event of a wakeup says for which slot it was signalled, and has 16 bits for that. */
_Static_assert(SLOTS_MAX <= 1u << (WAKEUP_ARG_BITS - 32), "a slot fits into an event");

struct slot_table {
    _Atomic(struct session *) chunk[SLOT_CHUNKS];
    struct session *free; /* linked by next */
    uint32_t made;
    uint32_t open;  /* count against the node's limit */
    uint32_t taken; /* and those whose CLOSED was delivered, until nobody is inside any more */
};

extern struct slot_table slot_tables[NODES_MAX];

static inline uint64_t handle_make(uint32_t node, uint32_t slot, uint32_t generation) {
    return (uint64_t)node << 56 | (uint64_t)slot << 32 | generation;
}

/* NULL: no such slot was ever used. The generation is not checked. */
static inline struct session *slot_find(uint64_t id) {
    uint32_t node = (uint32_t)(id >> 56), slot = (uint32_t)(id >> 32) & 0xffffff;
    if (node >= NODES_MAX || slot >= SLOTS_MAX)
        return NULL;
    struct session *chunk = atomic_load_explicit(&slot_tables[node].chunk[slot >> SLOT_CHUNK_LOG2],
                                                 memory_order_acquire);
    return chunk ? &chunk[slot & (SLOT_CHUNK - 1)] : NULL;
}

/* Of a handle that this process itself wrote down while the session lived: its slot exists for good. */
static inline struct session *slot_known(uint64_t id) {
    uint32_t node = (uint32_t)(id >> 56) % NODES_MAX, slot = (uint32_t)(id >> 32) % SLOTS_MAX;
    struct session *chunk = atomic_load_explicit(&slot_tables[node].chunk[slot >> SLOT_CHUNK_LOG2],
                                                 memory_order_acquire);
    return &chunk[slot & (SLOT_CHUNK - 1)];
}

/*
 * A free slot, not visible to handles yet (reference still FREE), or NULL: max are used, or no memory.
 * The caller fills the session and opens it with slot_publish().
 */
struct session *slot_take(uint32_t node, uint32_t max);
/* Makes the handle valid, with these bits of the reference set; returns it. */
uint64_t slot_publish(struct session *s, uint32_t node, uint64_t bits);
/* The session counts no longer: before its CLOSED is delivered, so that its place is free then. */
void slot_uncount(uint32_t node);
/* After session_ref_tryfree() succeeded. */
void slot_release(struct session *s, uint32_t node);
uint32_t slots_open(uint32_t node);
uint32_t slots_taken(uint32_t node);
/* A fork waits until nobody is inside: before it, and on both sides after it. */
void slots_fork(bool begins);

#endif
