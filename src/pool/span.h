/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * span.h - size classes, and spans: runs of pages cut into buffers of one class.
 *
 * Capacities are the multiples of 64 up to 256 (buffers begin at cache lines, so there is none between
 * them), then four for each doubling: above 256 bytes a buffer is at most a quarter larger than what was
 * asked for, below by 63 bytes at most. A span knows how many of its buffers are free; an empty one goes
 * back to its arena when another class or a large message needs the pages.
 *
 * Owner: the pool, under its list lock; opening and reclaiming also under its slow lock (arenas).
 */
#ifndef POOL_SPAN_H
#define POOL_SPAN_H

#include "pool/arena.h"
#include "pool/debug.h"
#include "pool/pool.h"

#define CLASS_LOG2_EVEN 8 /* up to 256 B in steps of a quarter of that, 64 B */
#define CLASS_LOG2_MAX 20 /* 1 MiB */
#define CLASS_BYTES_MAX ((size_t)1 << CLASS_LOG2_MAX)
_Static_assert(POOL_CLASSES == (CLASS_LOG2_MAX - CLASS_LOG2_EVEN) * 4 + 4, "classes");

/*
 * Smallest class with room for bytes <= CLASS_BYTES_MAX. No branch: each message asks, and sizes are mixed.
 * The two bits behind the highest say which quarter of a doubling it is, and with the highest in front of
 * them 4 more. Up to 256 bytes that bit is missing: those are the four classes in front.
 */
static inline unsigned class_of(size_t bytes) {
    size_t last = bytes - (bytes != 0); /* a size that is a capacity itself belongs to that class */
    size_t even = ((size_t)2 << CLASS_LOG2_EVEN) - 1;
    unsigned log2 = 63 ^ (unsigned)__builtin_clzll(last | even);
    return (log2 - CLASS_LOG2_EVEN) * 4 + (unsigned)(last >> (log2 - 2));
}

static inline size_t class_capacity(unsigned size_class) {
    if (size_class < 4)
        return (size_t)(size_class + 1) << (CLASS_LOG2_EVEN - 2);
    return (size_t)(5 + size_class % 4) << (CLASS_LOG2_EVEN - 3 + size_class / 4);
}

static inline size_t class_slot(unsigned size_class, bool marked) {
    return class_capacity(size_class) + POOL_HEADROOM + (marked ? DEBUG_GUARD : 0);
}

struct span {
    struct span *next, **link; /* list of spans with free buffers; link NULL: not in it */
    struct span *all_next, **all_link;
    struct arena *arena;
    uint8_t *addr;
    uint32_t pages;
    uint32_t slots, slots_free;
    struct sluice_msg *free;
    struct mark *marks; /* one a buffer, NULL: not debugging */
    struct sluice_msg msgs[];
};

struct spans { /* of one class */
    struct span *list, *all;
};

enum span_size {
    SPAN_BEST,   /* long enough to make what cutting loses small: a hundredth, if that can be had */
    SPAN_USUAL,  /* 64 KiB, or a single larger buffer */
    SPAN_SINGLE, /* just one buffer, whatever that loses */
};
/* Pages of a new span. */
uint32_t span_pages(unsigned size_class, enum span_size size, bool marked);
/* Cuts a run of pages into buffers, adds it to the list. marked: with marks
 * and guards for debugging. NULL: no memory for control blocks. */
struct span *span_open(struct spans *spans, struct pool *pool, unsigned size_class,
                       struct arena *arena, uint8_t *addr, uint32_t pages, bool marked);
/* Up to max free buffers, chained. Returns how many. */
unsigned spans_take(struct spans *spans, unsigned max, struct sluice_msg **chain);
/* True: its span is empty now, all of its buffers are free. */
bool spans_give(struct spans *spans, struct sluice_msg *msg);
/* Returns every empty span to its arena. True if there was one. */
bool spans_reclaim(struct spans *spans);
void spans_free(struct spans *spans); /* control blocks only: the arenas are going away */

#endif
