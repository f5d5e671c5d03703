/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * session_table.h - handles and the tables they point into.
 *
 *   63..56 node   55..32 slot   31..0 generation (never 0)
 *
 * One table a node index (slot_table.h), so a lookup needs no lock and can never touch unmapped memory, whatever the
 * handle says. A new node with the index of a closed one takes over its table: generations go on.
 *
 * Owner: taking and freeing under the table's lock (slow path); session_table_find() from any thread.
 */
#ifndef CORE_SESSION_TABLE_H
#define CORE_SESSION_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "core/session.h"
#include "core/slot_table.h"
#include "fabric/wakeup.h"

#define NODES_MAX 64
#define SESSION_TABLE_MAX SLOTS_MAX
/* An event of a wakeup says for which slot it was signalled, and has 16 bits for that. */
_Static_assert(SESSION_TABLE_MAX <= 1u << (WAKEUP_ARG_BITS - 32), "a slot fits into an event");

struct session_table {
    struct slot_table slots;
    uint32_t open;  /* count against the node's limit */
    uint32_t taken; /* and those whose CLOSED was delivered, while threads are inside */
};

extern struct session_table session_tables[NODES_MAX];

static inline uint64_t session_handle_make(uint32_t node, uint32_t slot, uint32_t generation) {
    return (uint64_t)node << 56 | (uint64_t)slot << 32 | generation;
}

static inline uint32_t session_handle_slot(uint64_t id) {
    return (uint32_t)(id >> 32) & 0xffffff;
}

/* NULL: no such slot was ever used. The generation is not checked. */
static inline struct session *session_table_find(uint64_t id) {
    uint32_t node = (uint32_t)(id >> 56), slot = session_handle_slot(id);
    if (node >= NODES_MAX)
        return NULL;
    return slot_table_find(&session_tables[node].slots, slot, sizeof(struct session));
}

/* Of a handle that this process itself wrote down while the session lived: its slot exists for good. */
static inline struct session *session_table_at(uint64_t id) {
    return slot_table_at(&session_tables[(uint32_t)(id >> 56) % NODES_MAX].slots,
                         session_handle_slot(id), sizeof(struct session));
}

/*
 * A free slot, not visible to handles yet (reference still FREE), or NULL: max are used, or no memory.
 * The caller fills the session and opens it with session_table_publish().
 */
struct session *session_table_alloc(uint32_t node, uint32_t max);
/* Makes the handle valid, with these bits of the reference set; returns it. */
uint64_t session_table_publish(struct session *s, uint32_t node, uint64_t bits);
/* The session counts no longer: before its CLOSED is delivered, so that its place is free then. */
void session_table_uncount(uint32_t node);
/* After session_ref_tryfree() succeeded. */
void session_table_free(struct session *s, uint32_t node);
uint32_t session_table_open_count(uint32_t node);
uint32_t session_table_used_count(uint32_t node);
/* A fork waits until no thread is inside: before it, and on both sides after it. */
void session_table_fork(bool begins);

#endif
