/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* debug.c - marks, patterns and reports. Owner: see debug.h. */
#include "pool/debug.h"

#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/inside.h"

#define LEAKS_SHOWN 16

#ifdef SLUICE_POOL_DEBUG
#define WANTED true
#else
#define WANTED false
#endif

bool debug_wanted(void) {
    const char *text = getenv("SLUICE_POOL_DEBUG");
    return text && *text ? strcmp(text, "0") != 0 : WANTED;
}

static struct mark *mark_of(const struct sluice_msg *msg) {
    if (msg->size_class >= POOL_CLASSES)
        return &((struct large *)msg->home)->mark;
    const struct span *span = msg->home;
    return span->marks ? &span->marks[msg - span->msgs] : NULL;
}

static void report(struct pool *pool, const char *text) {
    if (pool->report)
        pool->report(text, pool->report_arg);
    else
        fprintf(stderr, "sluice pool: %s\n", text);
}

/* Function names where the program exports them, addresses for addr2line elsewhere. */
static void report_site(struct pool *pool, const char *what, void *const frames[DEBUG_FRAMES]) {
    char text[600];
    int count = 0, at = snprintf(text, sizeof text, "  %s:", what);
    while (count < DEBUG_FRAMES && frames[count])
        count++;
    char **names = count > 0 ? backtrace_symbols(frames, count) : NULL;
    for (int i = 0; names && i < count && at < (int)sizeof text; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %s", names[i]);
    free(names);
    report(pool, text);
}

static void remember(void *frames[DEBUG_FRAMES]) {
    memset(frames, 0, DEBUG_FRAMES * sizeof frames[0]);
    void *all[DEBUG_FRAMES + 3];
    int count = backtrace(all, DEBUG_FRAMES + 3);
    for (int i = 3; i < count; i++) /* without these functions and the pool's own */
        frames[i - 3] = all[i];
}

/* ---- zones ------------------------------------------------------------------------------------- */

#define FRONT (POOL_HEADROOM - POOL_HEADER)

/* Bytes of zone behind what was asked for. */
static uint64_t zone_bytes(const struct sluice_msg *msg, uint64_t asked) {
    uint64_t guard = msg->size_class < POOL_CLASSES ? DEBUG_GUARD : 0;
    uint64_t bytes = msg->capacity - asked + guard;
    return bytes < DEBUG_ZONE_MAX ? bytes : DEBUG_ZONE_MAX;
}

static void paint(const struct sluice_msg *msg, uint64_t asked) {
    memset(msg->data - POOL_HEADROOM, DEBUG_ZONE, FRONT);
    memset(msg->data + asked, DEBUG_ZONE, zone_bytes(msg, asked));
}

/* The first that is something else; bytes: none. */
static uint64_t other_than(const uint8_t *at, int what, uint64_t bytes) {
    uint64_t i = 0;
    while (i < bytes && at[i] == what)
        i++;
    return i;
}

static void look_at_zones(struct pool *pool, const struct sluice_msg *msg,
                          const struct mark *mark) {
    char text[160];
    uint64_t zone = zone_bytes(msg, mark->asked);
    uint64_t behind = other_than(msg->data + mark->asked, DEBUG_ZONE, zone);
    uint64_t before = other_than(msg->data - POOL_HEADROOM, DEBUG_ZONE, FRONT);
    if (behind < zone) {
        snprintf(text, sizeof text,
                 "buffer %p of %llu bytes was written at byte %llu, behind its end",
                 (void *)msg->data, (unsigned long long)mark->asked,
                 (unsigned long long)(mark->asked + behind));
        report(pool, text);
    }
    if (before < FRONT) {
        snprintf(text, sizeof text,
                 "buffer %p of %llu bytes was written %llu bytes before its beginning",
                 (void *)msg->data, (unsigned long long)mark->asked,
                 (unsigned long long)(POOL_HEADROOM - before));
        report(pool, text);
    }
    if (behind == zone && before == FRONT)
        return;
    report_site(pool, "returned by", mark->put);
    report_site(pool, "got by", mark->got);
}

/* ---- got and returned -------------------------------------------------------------------------- */

static void look_at_pattern(struct pool *pool, const struct sluice_msg *msg,
                            const struct mark *mark) {
    char text[160];
    uint64_t wrong = other_than(msg->data, DEBUG_PATTERN, msg->capacity);
    if (wrong == msg->capacity)
        return;
    snprintf(text, sizeof text, "buffer %p was written at byte %llu after it was returned",
             (void *)msg->data, (unsigned long long)wrong);
    report(pool, text);
    report_site(pool, "returned by", mark->put);
    report_site(pool, "got by", mark->got);
}

void debug_got(struct pool *pool, struct sluice_msg *msg) {
    struct mark *mark = mark_of(msg);
    if (!mark)
        return;
    if (mark->put[0] && msg->size_class < POOL_CLASSES)
        look_at_pattern(pool, msg, mark);
    mark->asked = msg->size;
    mark->session = 0;
    paint(msg, mark->asked);
    remember(mark->got);
    atomic_store_explicit(&mark->in_use, 1, memory_order_relaxed);
}

void debug_belongs(struct sluice_msg *msg, uint64_t session, const char *peer) {
    struct mark *mark = mark_of(msg);
    if (!mark)
        return;
    mark->session = session;
    snprintf(mark->peer, sizeof mark->peer, "%s", peer);
}

bool debug_put(struct pool *pool, struct sluice_msg *msg) {
    struct mark *mark = mark_of(msg);
    char text[160];
    if (!mark)
        return true;
    if (!atomic_exchange_explicit(&mark->in_use, 0, memory_order_relaxed)) {
        void *here[DEBUG_FRAMES];
        remember(here);
        snprintf(text, sizeof text, "buffer %p is returned twice", (void *)msg->data);
        report(pool, text);
        report_site(pool, "now by", here);
        report_site(pool, "first by", mark->put);
        report_site(pool, "got by", mark->got);
        return false;
    }
    remember(mark->put);
    look_at_zones(pool, msg, mark);
    if (msg->size_class < POOL_CLASSES) /* mappings of their own may be very large */
        memset(msg->data, DEBUG_PATTERN, msg->capacity);
    return true;
}

/* ---- leaks --------------------------------------------------------------------------------------- */

static void look_at_leak(struct pool *pool, const struct sluice_msg *msg, const struct mark *mark,
                         uint64_t *count) {
    char text[240], owner[120] = "";
    if (!atomic_load(&mark->in_use) || ++*count > LEAKS_SHOWN)
        return;
    if (mark->session != 0)
        snprintf(owner, sizeof owner, ", a message of session %llx with %s",
                 (unsigned long long)mark->session, mark->peer);
    snprintf(text, sizeof text, "buffer %p of %llu bytes was not returned%s", (void *)msg->data,
             (unsigned long long)msg->size, owner);
    report(pool, text);
    report_site(pool, "got by", mark->got);
}

void debug_leaks(struct pool *pool) {
    uint64_t count = 0;
    char text[160];
    for (unsigned i = 0; i < POOL_CLASSES; i++)
        for (const struct span *span = pool->spans[i].all; span; span = span->all_next)
            for (uint32_t at = 0; span->marks && at < span->slots; at++)
                look_at_leak(pool, &span->msgs[at], &span->marks[at], &count);
    for (const struct large *large = pool->larges.all; large; large = large->all_next)
        look_at_leak(pool, &large->msg, &large->mark, &count);
    if (count > LEAKS_SHOWN) {
        snprintf(text, sizeof text, "%llu buffers in all were not returned",
                 (unsigned long long)count);
        report(pool, text);
    }
}

void pool_on_report(struct pool *pool, void (*call)(const char *text, void *arg), void *arg) {
    pool->report = call;
    pool->report_arg = arg;
}
