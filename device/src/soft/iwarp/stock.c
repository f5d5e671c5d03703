/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* stock.c - see stock.h. */
#include "soft/iwarp/stock.h"

#include <stdbool.h>
#include <stdlib.h>

struct iwarp_spare {
    struct iwarp_spare *next;
};

void *iwarp_stock_take(struct iwarp_stock *stock) {
    spin_lock(&stock->lock);
    bool may = stock->lent < stock->lent_max;
    struct iwarp_spare *spare = may ? stock->spares : NULL;
    if (spare) {
        stock->spares = spare->next;
        stock->kept--;
    }
    stock->lent += may;
    spin_unlock(&stock->lock);
    if (!may || spare)
        return spare;
    void *bytes = malloc(stock->bytes);
    if (!bytes) {
        spin_lock(&stock->lock);
        stock->lent--;
        spin_unlock(&stock->lock);
    }
    return bytes;
}

void iwarp_stock_give(struct iwarp_stock *stock, void *bytes) {
    struct iwarp_spare *spare = bytes;
    if (!spare)
        return;
    spin_lock(&stock->lock);
    stock->lent -= stock->lent > 0; /* a child does not count pieces that its parent took */
    bool keep = stock->kept < stock->kept_max;
    if (keep) {
        spare->next = stock->spares;
        stock->spares = spare;
        stock->kept++;
    }
    spin_unlock(&stock->lock);
    if (!keep)
        free(spare);
}

void iwarp_stock_forked(struct iwarp_stock *stock) {
    stock->spares = NULL;
    stock->kept = stock->lent = 0;
    spin_unlock(&stock->lock);
}
