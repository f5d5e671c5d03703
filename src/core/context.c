/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* context.c - the table of nodes, and the calls that are inside of them. */
#include "core/context.h"
#include "core/session_table.h"

static struct sluice_node nodes[NODES_MAX];

sluice_node *context_at(uint32_t index) {
    return &nodes[index % NODES_MAX];
}

/* Not counted at all once the node is closing: a thread that calls again and again does not delay the close. */
bool context_call_begin(sluice_node *n) {
    if (atomic_load(&n->state) != NODE_OPEN)
        return false;
    atomic_fetch_add(&n->callers, 1);
    if (atomic_load(&n->state) == NODE_OPEN)
        return true;
    atomic_fetch_sub(&n->callers, 1);
    return false;
}

void context_call_end(sluice_node *n) {
    atomic_fetch_sub(&n->callers, 1);
}
