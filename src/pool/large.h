/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * large.h - buffers above the largest class: each a registered mapping of its own, rounded to
 * pages. Returned ones are kept for reuse up to a bound, because registering costs far more than a
 * message; the oldest go first when there are too many or when another buffer needs the bytes.
 *
 * Owner: the pool; lists under its list lock, opening and closing under its slow lock.
 */
#ifndef POOL_LARGE_H
#define POOL_LARGE_H

#include "pool/arena.h"
#include "pool/debug.h"
#include "pool/pool.h"

#define LARGE_KEPT_MAX 32

struct large {
    struct pool_buffer buffer; /* first: a buffer is its mapping */
    struct block block;
    struct large *all_next, **all_link;
    struct large *kept_next; /* towards newer ones */
    struct mark mark;        /* unused without debugging */
};

struct larges {
    struct large *all;
    struct large *kept, **kept_tail; /* oldest first */
    unsigned kept_count;
    uint64_t kept_bytes;
};

void larges_init(struct larges *larges);
/* A kept mapping that fits without wasting more than a quarter, or NULL. List lock. */
struct large *larges_take(struct larges *larges, size_t bytes);
void larges_keep(struct larges *larges, struct large *large); /* list lock */
/* The oldest kept one, no longer in any list, if more than this is kept; NULL. List lock. */
struct large *larges_evict(struct larges *larges, unsigned keep_count, uint64_t keep_bytes);
void larges_add(struct larges *larges, struct large *large); /* list lock */

/* Whether the budget has room for it now. */
bool large_fits(const struct budget *budget, size_t bytes);
/* A new mapping, in no list yet. NULL and errno. Any thread. */
struct large *large_open(struct pool *pool, struct budget *budget, size_t bytes);
void large_close(struct large *large, struct budget *budget); /* slow lock */
void larges_close(struct larges *larges, struct budget *budget);

#endif
