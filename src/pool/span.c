/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * span.c - cuts runs of pages into buffers and keeps the free ones.
 *
 * A span in its class's list has a free buffer; a span without one is in no list and comes back
 * with its first returned buffer. Control blocks live in ordinary memory beside the span.
 * Owner: see span.h.
 */
#include "pool/span.h"

#include <stdlib.h>
#include <string.h>

#include "common/assert.h"

uint32_t span_pages(unsigned size_class, enum span_size size, bool marked) {
    size_t slot = class_slot(size_class, marked);
    size_t bytes = page_round(slot);
    if (size == SPAN_SINGLE)
        return (uint32_t)(bytes / POOL_PAGE);
    if (bytes < 16 * POOL_PAGE)
        bytes = 16 * POOL_PAGE;
    if (size == SPAN_USUAL)
        return (uint32_t)(bytes / POOL_PAGE);
    /* The first length that loses a hundredth at most, or the best one up to twice the first. */
    size_t best = bytes, end = 2 * bytes;
    for (; bytes <= end && best % slot * 100 > best; bytes += POOL_PAGE)
        if (bytes % slot * best < best % slot * bytes)
            best = bytes;
    return (uint32_t)(best / POOL_PAGE);
}

static void list_add(struct spans *spans, struct span *span) {
    span->next = spans->list;
    span->link = &spans->list;
    if (span->next)
        span->next->link = &span->next;
    spans->list = span;
}

static void list_remove(struct span *span) {
    *span->link = span->next;
    if (span->next)
        span->next->link = span->link;
    span->link = NULL;
}

struct span *span_open(struct spans *spans, struct pool *pool, unsigned size_class,
                       struct arena *arena, uint8_t *addr, uint32_t pages, bool marked) {
    size_t slot = class_slot(size_class, marked);
    uint32_t slots = (uint32_t)(pages * POOL_PAGE / slot);
    size_t bytes = sizeof(struct span) + slots * sizeof(struct pool_buffer);
    struct span *span = aligned_alloc(_Alignof(struct span), bytes);
    if (!span)
        return NULL;
    memset(span, 0, bytes);
    if (marked)
        span->marks =
            calloc(slots, sizeof *span->marks); /* without them this span is not watched */
    /* The device may be gone: then no thread registers or sends any more. */
    uint32_t lkey = arena->block.mr ? arena->block.mr->lkey : 0;
    span->arena = arena;
    span->addr = addr;
    span->pages = pages;
    span->slots = span->slots_free = slots;
    for (uint32_t i = slots; i-- > 0;) { /* backwards: the lowest address is taken first */
        struct pool_buffer *buffer = &span->buffers[i];
        buffer->pool = pool;
        buffer->data = addr + i * slot + POOL_HEADROOM;
        buffer->lkey = lkey;
        buffer->size_class = (uint8_t)size_class;
        buffer->capacity = class_capacity(size_class);
        buffer->home = span;
        buffer->next = span->free;
        span->free = buffer;
    }
    span->all_next = spans->all;
    span->all_link = &spans->all;
    if (span->all_next)
        span->all_next->all_link = &span->all_next;
    spans->all = span;
    list_add(spans, span);
    return span;
}

unsigned spans_take(struct spans *spans, unsigned max, struct pool_buffer **chain) {
    unsigned count = 0;
    while (count < max && spans->list) {
        struct span *span = spans->list;
        while (count < max && span->free) {
            struct pool_buffer *buffer = span->free;
            span->free = buffer->next;
            ASSERT(span->slots_free > 0);
            span->slots_free--;
            buffer->next = *chain;
            *chain = buffer;
            count++;
        }
        if (!span->free)
            list_remove(span);
    }
    return count;
}

bool spans_give(struct spans *spans, struct pool_buffer *buffer) {
    struct span *span = buffer->home;
    ASSERT(span->slots_free < span->slots && (span->free == NULL) == (span->slots_free == 0));
    buffer->next = span->free;
    span->free = buffer;
    span->slots_free++;
    if (!span->link)
        list_add(spans, span);
    return span->slots_free == span->slots;
}

bool spans_reclaim(struct spans *spans) {
    bool any = false;
    for (struct span *span = spans->list, *next; span; span = next) {
        next = span->next;
        if (span->slots_free < span->slots)
            continue;
        list_remove(span);
        *span->all_link = span->all_next;
        if (span->all_next)
            span->all_next->all_link = span->all_link;
        arena_give(span->arena, span->addr, span->pages);
        free(span->marks);
        free(span);
        any = true;
    }
    return any;
}

void spans_free(struct spans *spans) {
    for (struct span *span = spans->all, *next; span; span = next) {
        next = span->all_next;
        free(span->marks);
        free(span);
    }
    spans->list = spans->all = NULL;
}
