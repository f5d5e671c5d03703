/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * region_pages.c - see region_pages.h.
 *
 * mincore() takes no lock of the region's owner, and asks for no page. A page that was swapped out is missing for it as
 * well: it is read through the descriptor like one that never was, with what it holds.
 */
#define _GNU_SOURCE
#include "soft/rc/region_pages.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/uncancelled.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer_internal.h"

#define LOOK_EVERY (8u << 20) /* of messages of 8 KiB fewer than one of a thousand is looked at */
#define LOOK_PAGES 256u

_Atomic uint64_t soft_pages_missed;

/* Not to be foreseen by a peer, who would have holes between two looks only. */
static int64_t next_look(const struct soft_qp *qp) {
    uint64_t x = soft_now_ns() + (uintptr_t)qp;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u; /* splitmix64 */
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (int64_t)((x ^ x >> 31) % (2 * LOOK_EVERY));
}

bool soft_pages_there(struct soft_qp *qp, const void *at, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    qp->look_in = next_look(qp);
    uintptr_t from = (uintptr_t)at & ~(page - 1), end = (uintptr_t)at + bytes;
    unsigned char there[LOOK_PAGES];
    for (size_t n; from < end; from += n * page) {
        n = (end - from + page - 1) / page;
        n = n < LOOK_PAGES ? n : LOOK_PAGES;
        if (mincore((void *)from, n * page, there) != 0)
            continue; /* a kernel without an answer */
        for (size_t i = 0; i < n; i++)
            if (!(there[i] & 1)) {
                qp->looked_at = UINTPTR_MAX;
                atomic_fetch_add_explicit(&soft_pages_missed, 1, memory_order_relaxed);
                return false;
            }
    }
    return true;
}

bool soft_pages_read(const struct soft_peer_region *region, uint64_t offset, void *to,
                     size_t bytes) {
    for (uint8_t *at = to; bytes;) {
        ssize_t got = uncancelled(pread(region->fd, at, bytes, (off_t)offset));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return true;
}
