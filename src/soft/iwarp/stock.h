/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stock.h - pieces of memory of one size that are lent to connections for as long as they need them, a few for all of the
 * process.
 *
 * Any thread; a spin lock. One is allocated when all are lent, and what comes back is kept for the next, not given to the
 * system, as far as the stock keeps that many.
 */
#ifndef SOFT_IWARP_STOCK_H
#define SOFT_IWARP_STOCK_H

#include <stddef.h>

#include "soft/ipc/spinlock.h"

struct iwarp_stock {
    const size_t bytes;      /* of a piece */
    const unsigned kept_max; /* more are freed */
    const unsigned lent_max; /* at a time */
    soft_spin lock;
    unsigned kept, lent;
    struct iwarp_spare *spares; /* each lies in the memory itself */
};

/* NULL: there is no memory, or all are lent. */
void *iwarp_stock_take(struct iwarp_stock *stock);
void iwarp_stock_give(struct iwarp_stock *stock, void *bytes); /* NULL is nothing */
/* A child of fork(): whoever held the lock, or a piece, is not here. */
void iwarp_stock_forked(struct iwarp_stock *stock);

#endif
