/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* snapshot.c - see snapshot.h. */
#include "common/snapshot.h"

#include <sluice/sluice.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)

static void copy_text(char out[64], const char *in) {
    memcpy(out, in, 64);
    out[63] = '\0';
    session_rows_clean(out);
}

static const char *idle_name(uint64_t idle) {
    static const char *const names[] = {"default", "adaptive", "spin", "block"}; /* sluice_idle */
    return idle < sizeof names / sizeof names[0] ? names[idle] : "unknown";
}

/* All are sums over the loops but the one that is a maximum. */
static void add_total(uint64_t *total, const uint64_t *counters) {
    for (size_t i = 0; i < LOOP_COUNTERS; i++) {
        if (i != INDEX_longest_busy_ns)
            total[i] += counters[i];
        else if (counters[i] > total[i])
            total[i] = counters[i];
    }
}

/* Adds to `all` what is copied. */
static void take_buffers(struct buffers *out, struct buffers *all,
                         const struct stats_buffers *from) {
    for (int i = 0; i < STATS_CLASSES; i++) {
        out[i].puts = LOAD(from[i].puts);
        out[i].gets = LOAD(from[i].gets);
        all[i].puts += out[i].puts;
        all[i].gets += out[i].gets;
    }
}

static void take_wakeup(uint64_t out[WAKEUP_COUNTERS], const struct stats_wakeup *wakeup) {
    size_t i = 0;
#define STATS_X(name, text) out[i++] = LOAD(wakeup->name);
    STATS_WAKEUP_LIST(STATS_X)
#undef STATS_X
}

static void take_memory(struct snapshot *s, const struct stats_memory *memory, int pool) {
    size_t i = 0;
#define STATS_X(name, text) s->memory[pool].counters[i++] = LOAD(memory->name);
    STATS_MEMORY_LIST(STATS_X)
#undef STATS_X
    s->memory[pool].numa = LOAD(memory->numa);
    take_buffers(s->memory[pool].others, s->memory[pool].all, memory->buffers);
}

static void take_loop(struct snapshot *s, const struct stats_loop *loop, int slot) {
    uint64_t *out = s->loop[s->loops].counters;
    s->loop[s->loops].slot = slot;
    s->loop[s->loops].cpu = LOAD(loop->cpu);
    s->loop[s->loops].drained = LOAD(loop->drained) != 0;
    s->loop[s->loops].idle = idle_name(LOAD(loop->idle));
    s->drained += s->loop[s->loops].drained;
    size_t i = 0;
#define STATS_X(name, text) out[i++] = LOAD(loop->name);
    STATS_LOOP_LIST(STATS_X)
#undef STATS_X
    add_total(s->total, out);
    take_wakeup(s->loop[s->loops].wakeup, &loop->wakeup);
    for (i = 0; i < WAKEUP_COUNTERS; i++)
        s->total_wakeup[i] += s->loop[s->loops].wakeup[i];
    s->loop[s->loops].numa = LOAD(loop->numa);
    for (int p = 0; p < STATS_POOLS; p++)
        take_buffers(s->loop[s->loops].buffers[p], s->memory[p].all, loop->buffers[p]);
    s->loops++;
}

void snapshot_take(struct snapshot *s, const struct stats_page *page) {
    memset(s, 0, sizeof *s);
    copy_text(s->name, page->name);
    copy_text(s->device, page->device);
    uint64_t now = sluice_now(), start = page->start_ns;
    s->age_ns = now > start ? now - start : 0;
    s->memory_bytes = LOAD(page->memory_bytes);
    size_t i = 0;
#define STATS_X(name, text) s->cm[i++] = LOAD(page->cm.name);
    STATS_CM_LIST(STATS_X)
#undef STATS_X
    take_wakeup(s->cm_wakeup, &page->cm.wakeup);
    for (i = 0; i < STATS_CM_EVENTS; i++)
        s->events[i] = LOAD(page->cm.events[i]);
    for (i = 0; i < STATS_ASYNC_EVENTS; i++)
        s->async[i] = LOAD(page->cm.async[i]);
    for (i = 0; i < STATS_CLASSES; i++)
        s->class_bytes[i] = page->class_bytes[i];
    for (int p = 0; p < STATS_POOLS; p++)
        take_memory(s, &page->memory[p], p);
    for (int slot = 0; slot < STATS_LOOPS_MAX; slot++)
        if (LOAD(page->loops[slot].in_use) != 0)
            take_loop(s, &page->loops[slot], slot);
    session_rows_take(&s->sessions, page);
}
