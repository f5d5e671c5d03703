/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hugepages.h - which pages registered memory is made of, and on which NUMA node they are.
 *
 * Page sizes are tried in this order: pages of 1 GiB, of 2 MiB, then ordinary ones for which
 * transparent huge pages are asked for. Huge pages that the system keeps apart are used only when they
 * were asked for, since they may be meant for another program. They are all touched at once: where a
 * cgroup allows fewer than the system has, that fails here and does not kill the process later.
 *
 * Any thread; a report is counted with atomics.
 */
#ifndef POOL_HUGEPAGES_H
#define POOL_HUGEPAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fabric_ops;

#define HUGEPAGES_NO_NUMA (-1)

enum hugepages_kind {
    HUGEPAGES_SMALL,       /* ordinary pages */
    HUGEPAGES_TRANSPARENT, /* the same, huge ones asked for: the system may or may not */
    HUGEPAGES_2M,
    HUGEPAGES_1G,
    HUGEPAGES_KINDS,
};

struct hugepages_wish {
    uint8_t huge_log2;   /* 30, 21, or 0: none that are kept apart */
    bool no_transparent; /* ordinary pages only */
    int16_t numa;        /* the node the memory is bound to, or HUGEPAGES_NO_NUMA */
};

struct hugepages { /* of one block */
    uint8_t kind;  /* enum hugepages_kind */
    bool bound;    /* to the node wished for */
};

struct hugepages_report { /* bytes */
    _Atomic int64_t kind[HUGEPAGES_KINDS];
    _Atomic int64_t bound;
    _Atomic int64_t missed; /* so far: huge pages were wished for and not there */
};

/* Memory of the fabric, to be given back with its mem_free. NULL and errno. */
void *hugepages_alloc(const struct fabric_ops *fabric, size_t bytes,
                      const struct hugepages_wish *wish, struct hugepages *got);
/* A new block, that might have been on the huge pages wished for. */
void hugepages_miss(struct hugepages_report *report, const struct hugepages_wish *wish,
                    const struct hugepages *backing, size_t bytes);
void hugepages_count(struct hugepages_report *report, const struct hugepages *backing,
                     int64_t bytes);

/* The environment's SLUICE_HUGE_PAGES: "1G", "2M", "no" (common/settings.h); none is the default. */
void hugepages_from_environment(struct hugepages_wish *wish);
/* Pages of a GiB are of no use to a pool that never has so much: those of 2 MiB are meant, then. */
void hugepages_fit(struct hugepages_wish *wish, uint64_t bytes_max);
/* One line for people: "2048 KiB on 2 MiB pages, 64 KiB on ordinary ones; all on NUMA node 1". */
void hugepages_describe(struct hugepages_report *report, const struct hugepages_wish *wish,
                        char *text, size_t bytes);

#endif
