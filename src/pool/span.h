/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * span.h - runs of pages cut into buffers of one size class.
 *
 * A span knows how many of its buffers are free; an empty one goes back to its arena when another class or a
 * large message needs the pages.
 *
 * Owner: the pool, under its list lock; opening and reclaiming also under its slow lock (arenas).
 */
#ifndef POOL_SPAN_H
#define POOL_SPAN_H

#include "pool/arena.h"
#include "pool/debug.h"
#include "pool/pool.h"
#include "pool/size_class.h"

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
    struct pool_buffer *free;
    struct mark *marks; /* one a buffer, NULL: not debugging */
    struct pool_buffer buffers[];
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
unsigned spans_take(struct spans *spans, unsigned max, struct pool_buffer **chain);
/* True: its span is empty now, all of its buffers are free. */
bool spans_give(struct spans *spans, struct pool_buffer *buffer);
/* Returns every empty span to its arena. True if there was one. */
bool spans_reclaim(struct spans *spans);
void spans_free(struct spans *spans); /* control blocks only: the arenas are going away */

#endif
