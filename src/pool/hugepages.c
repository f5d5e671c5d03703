/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* hugepages.c - huge pages with fallback, binding, and what came of it. Any thread. */
#define _GNU_SOURCE
#include "pool/hugepages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/topology.h"
#include "fabric/fabric.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define TRANSPARENT_LOG2 21
#define GIGABYTE_LOG2 30

static void *alloc_huge(const struct fabric_ops *fabric, size_t bytes, unsigned log2,
                        const struct backing_wish *wish, struct backing *got) {
    if (!fabric->mem_alloc_huge || bytes % ((size_t)1 << log2) != 0)
        return NULL;
    void *addr = fabric->mem_alloc_huge(bytes, log2);
    if (!addr)
        return NULL;
    got->bound = topology_bind(addr, bytes, wish->numa) == 0;
    /* EINVAL: a kernel that does not know it, or memory that is none of its huge pages. */
    if (madvise(addr, bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
        fabric->mem_free(addr, bytes);
        return NULL;
    }
    got->kind = log2 == GIGABYTE_LOG2 ? BACKING_1G : BACKING_2M;
    return addr;
}

void *backing_alloc(const struct fabric_ops *fabric, size_t bytes, const struct backing_wish *wish,
                    struct backing *got) {
    static const uint8_t sizes[] = {GIGABYTE_LOG2, TRANSPARENT_LOG2};
    void *addr = NULL;
    *got = (struct backing){.kind = BACKING_SMALL};
    for (size_t i = 0; i < sizeof sizes && !addr; i++)
        if (sizes[i] <= wish->huge_log2)
            addr = alloc_huge(fabric, bytes, sizes[i], wish, got);
    if (addr)
        return addr;
    errno = 0;
    if (!(addr = fabric->mem_alloc(bytes)))
        return NULL;
    bool large = bytes >= (size_t)1 << TRANSPARENT_LOG2;
    if (wish->no_transparent)
        madvise(addr, bytes, MADV_NOHUGEPAGE);
    else if (large && madvise(addr, bytes, MADV_HUGEPAGE) == 0)
        got->kind = BACKING_TRANSPARENT;
    got->bound = topology_bind(addr, bytes, wish->numa) == 0;
    return addr;
}

void backing_count(struct backing_report *report, const struct backing *backing, int64_t bytes) {
    atomic_fetch_add_explicit(&report->kind[backing->kind], bytes, memory_order_relaxed);
    if (backing->bound)
        atomic_fetch_add_explicit(&report->bound, bytes, memory_order_relaxed);
}

void backing_miss(struct backing_report *report, const struct backing_wish *wish,
                  const struct backing *backing, size_t bytes) {
    bool huge = backing->kind == BACKING_2M || backing->kind == BACKING_1G;
    /* What such pages do not divide is never on them. */
    if (wish->huge_log2 > 0 && !huge && bytes % ((size_t)1 << TRANSPARENT_LOG2) == 0)
        atomic_fetch_add_explicit(&report->missed, (int64_t)bytes, memory_order_relaxed);
}

int backing_from_environment(struct backing_wish *wish) {
    const char *text = secure_getenv("SLUICE_HUGE_PAGES");
    if (!text || !*text)
        return 0;
    if (strcmp(text, "1G") == 0)
        wish->huge_log2 = GIGABYTE_LOG2;
    else if (strcmp(text, "2M") == 0)
        wish->huge_log2 = TRANSPARENT_LOG2;
    else if (strcmp(text, "no") == 0)
        wish->no_transparent = true;
    else
        return -EINVAL;
    return 0;
}

void backing_fit(struct backing_wish *wish, uint64_t bytes_max) {
    if (wish->huge_log2 == GIGABYTE_LOG2 && bytes_max >> GIGABYTE_LOG2 == 0)
        wish->huge_log2 = TRANSPARENT_LOG2;
}

void backing_describe(struct backing_report *report, const struct backing_wish *wish, char *text,
                      size_t bytes) {
    static const char *const names[BACKING_KINDS] = {
        [BACKING_SMALL] = "ordinary pages",
        [BACKING_TRANSPARENT] = "transparent huge pages, where the system has them",
        [BACKING_2M] = "2 MiB pages",
        [BACKING_1G] = "1 GiB pages",
    };
    size_t at = 0;
    int64_t all = 0;
    text[0] = 0;
    for (int i = BACKING_KINDS - 1; i >= 0; i--) {
        int64_t count = atomic_load_explicit(&report->kind[i], memory_order_relaxed);
        all += count;
        if (count > 0 && at < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "%s%" PRId64 " KiB on %s",
                                   at > 0 ? ", " : "", count >> 10, names[i]);
    }
    int64_t bound = atomic_load_explicit(&report->bound, memory_order_relaxed);
    if (wish->numa >= 0 && at < bytes)
        snprintf(text + at, bytes - at, "; %s on NUMA node %d",
                 bound == all ? "all"
                 : bound > 0  ? "not all"
                              : "not bound, though wished for,",
                 wish->numa);
}
