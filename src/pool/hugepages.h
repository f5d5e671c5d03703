/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hugepages.h - which pages registered memory is made of, and on which NUMA node they are.
 *
 * What is wished for is tried in order: pages of 1 GiB, of 2 MiB, then ordinary ones for which
 * transparent huge pages are asked for. Huge pages that the system keeps apart are used only when they
 * were asked for, since they may be meant for somebody else. They are all touched at once: where a
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

#define BACKING_NO_NUMA (-1)

enum backing_kind {
    BACKING_SMALL,       /* ordinary pages */
    BACKING_TRANSPARENT, /* the same, huge ones asked for: the system may or may not */
    BACKING_2M,
    BACKING_1G,
    BACKING_KINDS,
};

struct backing_wish {
    uint8_t huge_log2;   /* 30, 21, or 0: none that are kept apart */
    bool no_transparent; /* ordinary pages only */
    int16_t numa;        /* the node the memory is bound to, or BACKING_NO_NUMA */
};

struct backing {  /* of one block */
    uint8_t kind; /* enum backing_kind */
    bool bound;   /* to the node wished for */
};

struct backing_report { /* bytes */
    _Atomic int64_t kind[BACKING_KINDS];
    _Atomic int64_t bound;
    _Atomic int64_t missed; /* so far: huge pages were wished for and not there */
};

/* Memory of the fabric, to be given back with its mem_free. NULL and errno. */
void *backing_alloc(const struct fabric_ops *fabric, size_t bytes, const struct backing_wish *wish,
                    struct backing *got);
/* A new block, that might have been on the huge pages wished for. */
void backing_miss(struct backing_report *report, const struct backing_wish *wish,
                  const struct backing *backing, size_t bytes);
void backing_count(struct backing_report *report, const struct backing *backing, int64_t bytes);

/* The environment's SLUICE_HUGE_PAGES: "1G", "2M", "no"; none, or "", is the default. Else -EINVAL. */
int backing_from_environment(struct backing_wish *wish);
/* Pages of a GiB are of no use to a pool that never has so much: those of 2 MiB are meant, then. */
void backing_fit(struct backing_wish *wish, uint64_t bytes_max);
/* One line for people: "2048 KiB on 2 MiB pages, 64 KiB on ordinary ones; all on NUMA node 1". */
void backing_describe(struct backing_report *report, const struct backing_wish *wish, char *text,
                      size_t bytes);

#endif
