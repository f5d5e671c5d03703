/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* debug.c - marks, patterns and reports. Owner: see debug.h. */
#define _GNU_SOURCE
#include "pool/debug.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "common/sanitize.h"
#include "common/settings.h"
#include "pool/internal.h"

#define LEAKS_SHOWN 16

#ifdef SLUICE_POOL_DEBUG
#define WANTED true
#else
#define WANTED false
#endif

bool debug_wanted(void) {
    return setting_value(SETTING_POOL_DEBUG, WANTED ? SETTING_ON : SETTING_OFF) == SETTING_ON;
}

static struct mark *mark_of(const struct pool_buffer *buffer) {
    if (buffer->size_class >= POOL_CLASSES)
        return &((struct large *)buffer->home)->mark;
    const struct span *span = buffer->home;
    return span->marks ? &span->marks[buffer - span->buffers] : NULL;
}

static void report(struct pool *pool, const char *text) {
    if (pool->report)
        pool->report(text, pool->report_arg);
    else
        fprintf(stderr, "sluice pool: %s\n", text);
}

/* The program or library an address is in; NULL: unknown. */
static void *object_of(const void *addr) {
    Dl_info info;
    return addr && dladdr(addr, &info) != 0 ? info.dli_fbase : NULL;
}

/* The library call that was made, with the caller behind it. Code that is linked in cannot be told apart. */
static int first_of_interest(void *const frames[DEBUG_FRAMES], int count) {
    void *own = object_of((const void *)(uintptr_t)&debug_wanted);
    int first = 0;
    if (own == object_of((const void *)(uintptr_t)getauxval(AT_ENTRY)))
        return 0;
    while (first < count && object_of(frames[first]) == own)
        first++;
    return first > 0 && first < count ? first - 1 : 0;
}

/* Function names where the program exports them, addresses for addr2line elsewhere. */
static void report_site(struct pool *pool, const char *what, void *const frames[DEBUG_FRAMES]) {
    char text[1600];
    int count = 0, at = snprintf(text, sizeof text, "  %s:", what);
    while (count < DEBUG_FRAMES && frames[count])
        count++;
    char **names = count > 0 ? backtrace_symbols(frames, count) : NULL;
    int first = names ? first_of_interest(frames, count) : 0;
    for (int i = first; names && i < count && at < (int)sizeof text; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %s", names[i]);
    free(names);
    report(pool, text);
}

/* How many calls of the pool are in front of the caller depends on the compiler: all are kept. */
static __attribute__((noinline)) void remember(void *frames[DEBUG_FRAMES]) {
    memset(frames, 0, DEBUG_FRAMES * sizeof frames[0]);
    void *all[DEBUG_FRAMES + 1];
    int count = backtrace(all, DEBUG_FRAMES + 1);
    for (int i = 1; i < count; i++) /* without this function */
        frames[i - 1] = all[i];
}

/* ---- zones ------------------------------------------------------------------------------------- */

#define FRONT (POOL_HEADROOM - POOL_HEADER)

/* Bytes of zone behind what was asked for. */
static uint64_t zone_bytes(const struct pool_buffer *buffer, uint64_t asked) {
    uint64_t guard = buffer->size_class < POOL_CLASSES ? DEBUG_GUARD : 0;
    uint64_t bytes = buffer->capacity - asked + guard;
    return bytes < DEBUG_ZONE_MAX ? bytes : DEBUG_ZONE_MAX;
}

static void paint(const struct pool_buffer *buffer, uint64_t asked) {
    memset(buffer->data - POOL_HEADROOM, DEBUG_ZONE, FRONT);
    memset(buffer->data + asked, DEBUG_ZONE, zone_bytes(buffer, asked));
}

/* The first that is something else; bytes: none. */
static uint64_t other_than(const uint8_t *at, int what, uint64_t bytes) {
    uint64_t i = 0;
    while (i < bytes && at[i] == what)
        i++;
    return i;
}

static void look_at_zones(struct pool *pool, const struct pool_buffer *buffer,
                          const struct mark *mark) {
    char text[160];
    uint64_t zone = zone_bytes(buffer, mark->asked);
    uint64_t behind = other_than(buffer->data + mark->asked, DEBUG_ZONE, zone);
    uint64_t before = other_than(buffer->data - POOL_HEADROOM, DEBUG_ZONE, FRONT);
    if (behind < zone) {
        snprintf(text, sizeof text,
                 "buffer %p of %llu bytes was written at byte %llu, behind its end",
                 (void *)buffer->data, (unsigned long long)mark->asked,
                 (unsigned long long)(mark->asked + behind));
        report(pool, text);
    }
    if (before < FRONT) {
        snprintf(text, sizeof text,
                 "buffer %p of %llu bytes was written %llu bytes before its beginning",
                 (void *)buffer->data, (unsigned long long)mark->asked,
                 (unsigned long long)(POOL_HEADROOM - before));
        report(pool, text);
    }
    if (behind == zone && before == FRONT)
        return;
    report_site(pool, "returned by", mark->put);
    report_site(pool, "got by", mark->got);
}

/* ---- got and returned -------------------------------------------------------------------------- */

/* Mappings of their own may be very large. */
static uint64_t pattern_bytes(const struct pool_buffer *buffer) {
    return buffer->capacity < DEBUG_PATTERN_MAX ? buffer->capacity : DEBUG_PATTERN_MAX;
}

static void look_at_pattern(struct pool *pool, const struct pool_buffer *buffer,
                            const struct mark *mark) {
    char text[160];
    uint64_t bytes = pattern_bytes(buffer), wrong = other_than(buffer->data, DEBUG_PATTERN, bytes);
    if (wrong == bytes)
        return;
    snprintf(text, sizeof text, "buffer %p was written at byte %llu after it was returned",
             (void *)buffer->data, (unsigned long long)wrong);
    report(pool, text);
    report_site(pool, "returned by", mark->put);
    report_site(pool, "got by", mark->got);
}

void debug_got(struct pool *pool, struct pool_buffer *buffer) {
    struct mark *mark = mark_of(buffer);
    if (!mark)
        return;
    if (mark->put[0])
        look_at_pattern(pool, buffer, mark);
    mark->asked = buffer->size;
    mark->session = 0;
    paint(buffer, mark->asked);
    remember(mark->got);
    atomic_store_explicit(&mark->in_use, 1, memory_order_relaxed);
}

void debug_belongs(struct pool_buffer *buffer, uint64_t session, const char *peer) {
    struct mark *mark = mark_of(buffer);
    if (!mark)
        return;
    mark->session = session;
    snprintf(mark->peer, sizeof mark->peer, "%s", peer);
}

static void report_twice(struct pool *pool, const struct pool_buffer *buffer,
                         const struct mark *mark) {
    void *here[DEBUG_FRAMES];
    char text[160];
    remember(here);
    snprintf(text, sizeof text, "buffer %p is returned twice", (void *)buffer->data);
    report(pool, text);
    report_site(pool, "now by", here);
    report_site(pool, "first by", mark->put);
    report_site(pool, "got by", mark->got);
}

bool debug_put(struct pool *pool, struct pool_buffer *buffer) {
    struct mark *mark = mark_of(buffer);
    if (!mark)
        return true;
    if (!atomic_exchange_explicit(&mark->in_use, 0, memory_order_relaxed)) {
        report_twice(pool, buffer, mark);
        return false;
    }
    remember(mark->put);
    look_at_zones(pool, buffer, mark);
    memset(buffer->data, DEBUG_PATTERN, pattern_bytes(buffer));
    return true;
}

void debug_put_again(struct pool *pool, const struct pool_buffer *buffer) {
    const struct mark *mark = mark_of(buffer);
    if (mark && mark->put[0] && !atomic_load_explicit(&mark->in_use, memory_order_relaxed))
        report_twice(pool, buffer, mark);
}

/* ---- the end ------------------------------------------------------------------------------------- */

/* The pool closes: was the buffer written after it was returned? Is it returned at all? */
static void look_at_last(struct pool *pool, const struct pool_buffer *buffer,
                         const struct mark *mark, uint64_t *count) {
    char text[240], owner[120] = "";
    if (!atomic_load(&mark->in_use) && mark->put[0]) {
        SANITIZE_UNPOISON(buffer->data, buffer->capacity);
        look_at_pattern(pool, buffer, mark);
    }
    if (!atomic_load(&mark->in_use) || ++*count > LEAKS_SHOWN)
        return;
    if (mark->session != 0)
        snprintf(owner, sizeof owner, ", a message of session %llx with %s",
                 (unsigned long long)mark->session, mark->peer);
    snprintf(text, sizeof text, "buffer %p of %llu bytes was not returned%s", (void *)buffer->data,
             (unsigned long long)buffer->size, owner);
    report(pool, text);
    report_site(pool, "got by", mark->got);
}

void debug_leaks(struct pool *pool) {
    uint64_t count = 0;
    char text[160];
    for (unsigned i = 0; i < POOL_CLASSES; i++)
        for (const struct span *span = pool->spans[i].all; span; span = span->all_next)
            for (uint32_t at = 0; span->marks && at < span->slots; at++)
                look_at_last(pool, &span->buffers[at], &span->marks[at], &count);
    for (const struct large *large = pool->larges.all; large; large = large->all_next)
        look_at_last(pool, &large->buffer, &large->mark, &count);
    if (count > LEAKS_SHOWN) {
        snprintf(text, sizeof text, "%llu buffers in all were not returned",
                 (unsigned long long)count);
        report(pool, text);
    }
}
