/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connection_table.h - the connections of a node: each has a slot, and a generation that tells it from earlier ones there.
 *
 * The wr_id of a send names its connection by both, so a completion that comes late is never taken for another's:
 *
 *   63..40 generation   39..24 slot   23..8 place in the send queue   0 set: of a send
 *
 * That of a receive is its buffer (bit 0 clear). A connection moves to its next generation when it ends, and when it
 * gets another queue pair.
 *
 * One table a node index, which stays while the process lives, as that of sessions does: a session that did not end when its
 * node was closed still points to its connection. A new node with the index of a closed one takes the table over.
 *
 * Owner: making and freeing under one lock (slow path); looking up from any thread.
 */
#ifndef CORE_CONNECTION_TABLE_H
#define CORE_CONNECTION_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/connection.h"
#include "core/slot_table.h"

#define WR_SLOT_SHIFT 24
#define WR_GENERATION_SHIFT 40
#define WR_INDEX_SHIFT 8
#define WR_INDEX_MASK 0xffffull
#define WR_SEND 1ull
_Static_assert(SLOTS_MAX <= 1u << (WR_GENERATION_SHIFT - WR_SLOT_SHIFT), "a slot fits");

struct connection_table {
    struct slot_table slots;
};

/* That of a node with this index, made when first needed; NULL: no memory. */
struct connection_table *connection_table_of(uint32_t node);
/* A fork waits until no thread is inside: before it, and on both sides after it. */
void connection_table_fork(bool begins);
/* Of this session, and of its loop's thread or of the one that makes the session. NULL: none is free, or no memory. */
struct connection *connection_make(struct connection_table *t, struct session *s);
/* It has no queue pair any more, and the CM thread nothing of it. */
void connection_free(struct connection_table *t, struct connection *c);
/* What completes of its old queue pair is not its own any more. */
void connection_renew(struct connection *c);

/* Of a slot that was used. */
static inline struct connection *connection_table_at(struct connection_table *t, uint32_t slot) {
    return slot_table_at(&t->slots, slot, sizeof(struct connection));
}

static inline uint64_t wr_send_id(const struct connection *c, uint32_t index) {
    return atomic_load_explicit(&c->name, memory_order_relaxed) | (index & WR_INDEX_MASK)
                                                                      << WR_INDEX_SHIFT;
}

/* As it travels with a message. */
static inline uint32_t connection_generation(const struct connection *c) {
    return (uint32_t)(atomic_load_explicit(&c->name, memory_order_relaxed) >> WR_GENERATION_SHIFT);
}

/* The place in the send queue of the connection that a send's wr_id names. */
static inline uint16_t wr_send_index(uint64_t wr_id) {
    return (uint16_t)(wr_id >> WR_INDEX_SHIFT);
}

/* The connection that posted the send of that wr_id. NULL: it has ended, or has another queue pair. */
static inline struct connection *wr_send_connection(struct connection_table *t, uint64_t wr_id) {
    struct connection *c = connection_table_at(t, (uint32_t)(wr_id >> WR_SLOT_SHIFT) % SLOTS_MAX);
    uint64_t name = atomic_load_explicit(&c->name, memory_order_relaxed);
    return __builtin_expect((wr_id & ~(WR_INDEX_MASK << WR_INDEX_SHIFT)) == name, 1) ? c : NULL;
}

#endif
