/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* forked.c - which nodes came through fork(), and which of them a pool belongs to. */
#include "core/forked.h"

_Atomic uint64_t forked_nodes;

bool forked_pool(const struct pool *pool) {
    uint64_t bits = forked_bits();
    for (uint32_t i = 0; i < NODES_MAX; i++) {
        const struct sluice_node *n = context_at(i);
        if ((bits >> i & 1) && (n->pool == pool || n->rx_pool == pool))
            return true;
    }
    return false;
}
