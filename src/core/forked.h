/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * forked.h - whether a node, or an object of one, is the parent's, in a process that was made by
 * fork(). Each public call asks before it touches anything; without a fork that is one load.
 *
 * Owner: node/node.c sets the bits in the child, before any other thread of it is there. Any thread reads.
 */
#ifndef CORE_FORKED_H
#define CORE_FORKED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/context.h"
#include "core/region.h"
#include "core/session_table.h"

/* One bit for each node that came through fork(): it is the parent's. None elsewhere. */
extern _Atomic uint64_t forked_nodes;
_Static_assert(NODES_MAX <= 64, "a bit for every node");
#define FORKED_TEXT "this node came through fork(), it is the parent's"

static inline uint64_t forked_bits(void) {
    return atomic_load_explicit(&forked_nodes, memory_order_relaxed);
}

static inline bool forked_index(uint64_t index) {
    uint64_t bits = forked_bits();
    return __builtin_expect(bits != 0, 0) && index < NODES_MAX && (bits >> index & 1);
}

/* A session, or a listener, of the parent's. */
static inline bool forked_id(uint64_t id) {
    return forked_index(id >> 56);
}

static inline bool forked_node(const sluice_node *n) {
    return __builtin_expect(forked_bits() != 0, 0) && n && forked_index(n->index);
}

static inline bool forked_region(const struct sluice_region *r) {
    return __builtin_expect(forked_bits() != 0, 0) && r && forked_node(r->node);
}

bool forked_pool(const struct pool *pool); /* the slow part */

static inline bool forked_msg(const struct sluice_msg *msg) {
    return __builtin_expect(forked_bits() != 0, 0) && msg && forked_pool(msg->pool);
}

#endif
