/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stock.h - pieces of memory of one size, lent to connections for as long as they need them: a few for the whole
 * process.
 *
 * Any thread; a spin lock. The stock allocates a piece when it has none to lend. It keeps up to kept_max pieces that
 * come back, for the next connections, and frees the others.
 */
#ifndef SOFT_IWARP_STOCK_H
#define SOFT_IWARP_STOCK_H

#include <stddef.h>

#include "soft/ipc/spinlock.h"

struct iwarp_stock {
    const size_t bytes;      /* of a piece */
    const unsigned kept_max; /* further pieces are freed */
    const unsigned lent_max; /* at a time */
    soft_spin lock;
    unsigned kept, lent;
    struct iwarp_spare *spares; /* each entry lies in its own piece */
};

/* NULL: there is no memory, or all are lent. */
void *iwarp_stock_take(struct iwarp_stock *stock);
void iwarp_stock_give(struct iwarp_stock *stock, void *bytes); /* NULL: no effect */
/* In a child of fork(): the threads that held the lock, or a piece, do not exist here. */
void iwarp_stock_forked(struct iwarp_stock *stock);

#endif
