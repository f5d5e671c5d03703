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

#include "common/settings.h"
#include "base/topology.h"
#include "fabric/fabric.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define TRANSPARENT_LOG2 21
#define GIGABYTE_LOG2 30

static void *alloc_huge(const struct fabric_ops *fabric, size_t bytes, unsigned log2,
                        const struct hugepages_wish *wish, struct hugepages *got) {
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
    got->kind = log2 == GIGABYTE_LOG2 ? HUGEPAGES_1G : HUGEPAGES_2M;
    return addr;
}

void *hugepages_alloc(const struct fabric_ops *fabric, size_t bytes,
                      const struct hugepages_wish *wish, struct hugepages *got) {
    static const uint8_t sizes[] = {GIGABYTE_LOG2, TRANSPARENT_LOG2};
    void *addr = NULL;
    *got = (struct hugepages){.kind = HUGEPAGES_SMALL};
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
        got->kind = HUGEPAGES_TRANSPARENT;
    got->bound = topology_bind(addr, bytes, wish->numa) == 0;
    return addr;
}

void hugepages_count(struct hugepages_report *report, const struct hugepages *backing,
                     int64_t bytes) {
    atomic_fetch_add_explicit(&report->kind[backing->kind], bytes, memory_order_relaxed);
    if (backing->bound)
        atomic_fetch_add_explicit(&report->bound, bytes, memory_order_relaxed);
}

void hugepages_miss(struct hugepages_report *report, const struct hugepages_wish *wish,
                    const struct hugepages *backing, size_t bytes) {
    bool huge = backing->kind == HUGEPAGES_2M || backing->kind == HUGEPAGES_1G;
    /* Memory whose size is no multiple of such pages is never on them. */
    if (wish->huge_log2 > 0 && !huge && bytes % ((size_t)1 << TRANSPARENT_LOG2) == 0)
        atomic_fetch_add_explicit(&report->missed, (int64_t)bytes, memory_order_relaxed);
}

void hugepages_from_environment(struct hugepages_wish *wish) {
    static const uint8_t sizes[] = {
        [SETTING_HUGE_2M] = TRANSPARENT_LOG2, [SETTING_HUGE_1G] = GIGABYTE_LOG2};
    unsigned said = setting_value(SETTING_HUGE_PAGES, SETTINGS);
    wish->no_transparent |= said == SETTING_HUGE_NO;
    if (said == SETTING_HUGE_2M || said == SETTING_HUGE_1G)
        wish->huge_log2 = sizes[said];
}

void hugepages_fit(struct hugepages_wish *wish, uint64_t bytes_max) {
    if (wish->huge_log2 == GIGABYTE_LOG2 && bytes_max >> GIGABYTE_LOG2 == 0)
        wish->huge_log2 = TRANSPARENT_LOG2;
}

void hugepages_describe(struct hugepages_report *report, const struct hugepages_wish *wish,
                        char *text, size_t bytes) {
    static const char *const names[HUGEPAGES_KINDS] = {
        [HUGEPAGES_SMALL] = "ordinary pages",
        [HUGEPAGES_TRANSPARENT] = "transparent huge pages, where the system has them",
        [HUGEPAGES_2M] = "2 MiB pages",
        [HUGEPAGES_1G] = "1 GiB pages",
    };
    size_t at = 0;
    int64_t all = 0;
    text[0] = 0;
    for (int i = HUGEPAGES_KINDS - 1; i >= 0; i--) {
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
