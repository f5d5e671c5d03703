/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * snapshot.h - a private copy of one node's page of statistics, for sluice-stat. One thread.
 *
 * The page belongs to another process: each counter is loaded once, text is cut and cleaned.
 */
#ifndef SNAPSHOT_H
#define SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/stats.h"
#include "common/session_rows.h"

/* Where a counter stands in the list: INDEX_stalls and so on. */
#define STATS_X(name, text) INDEX_##name,
enum { STATS_LOOP_LIST(STATS_X) LOOP_COUNTERS };
#undef STATS_X
/* How many counters the other lists have. */
#define STATS_X(name, text) +1
enum {
    WAKEUP_COUNTERS = STATS_WAKEUP_LIST(STATS_X),
    MEMORY_COUNTERS = STATS_MEMORY_LIST(STATS_X),
    CM_COUNTERS = STATS_CM_LIST(STATS_X)
};
#undef STATS_X

struct buffers {
    uint64_t gets, puts;
};

struct snapshot {
    char name[64], device[64];
    uint64_t age_ns, memory_bytes;
    uint64_t cm[CM_COUNTERS], cm_wakeup[WAKEUP_COUNTERS], events[STATS_CM_EVENTS];
    uint64_t async[STATS_ASYNC_EVENTS];
    uint32_t loops, drained;
    struct {
        int slot;
        int64_t cpu;
        bool drained;
        const char *idle;
        int64_t numa;
        uint64_t counters[LOOP_COUNTERS], wakeup[WAKEUP_COUNTERS];
        struct buffers buffers[STATS_POOLS][STATS_CLASSES];
    } loop[STATS_LOOPS_MAX];
    struct {
        int64_t numa;
        uint64_t counters[MEMORY_COUNTERS];
        struct buffers others[STATS_CLASSES], all[STATS_CLASSES];
    } memory[STATS_POOLS];
    uint64_t class_bytes[STATS_CLASSES];
    uint64_t total[LOOP_COUNTERS], total_wakeup[WAKEUP_COUNTERS];
    struct session_rows sessions;
};

void snapshot_take(struct snapshot *s, const struct stats_page *page);

#endif
