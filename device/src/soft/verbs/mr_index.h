/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mr_index.h - which index of the tables a registration gets, and which key.
 *
 * Indexes are handed out among few at first, so the tables take pages for the number of live registrations, not
 * for each that comes and goes. Which pages these are is random, and so is the index within them of a registration with
 * remote rights: a peer over a network, which cannot see the table, has 32 bits to guess, and one that was given a key
 * of this process still 28 of another. Local ones get indexes in turn, beside each other, so that a freed index is not
 * used again for long. A registration that gets remote rights by ibv_rereg_mr() keeps its key.
 *
 * Owner: the control lock.
 */
#ifndef SOFT_VERBS_MR_INDEX_H
#define SOFT_VERBS_MR_INDEX_H

#include <stdbool.h>
#include <stdint.h>

/* A free index, in the upper half, and a fresh key with it; hidden: with remote rights. 0 or an errno. */
int soft_mr_index_take(bool hidden, uint32_t *key);
/* One was taken out of the table. */
void soft_mr_index_free(void);
/* A child of fork(): nothing is in the table. */
void soft_mr_index_forked(void);

#endif
