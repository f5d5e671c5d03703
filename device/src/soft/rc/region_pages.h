/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * region_pages.h - pages of a peer's region that are not there.
 *
 * A region is shared memory, and its owner may have written only some of it, or have given pages back. A process that
 * touches such a page through a mapping makes it, and it is counted as that process's memory, for as long as the region
 * lives: a peer could have its own memory charged to this process without end. So a look comes before the access: always
 * once a page of any peer was missing, and before that at random distances, LOOK_EVERY bytes apart on average. What is
 * missing is read through the region's descriptor, which makes no page, or accessed by the region's owner.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_REGION_PAGES_H
#define SOFT_RC_REGION_PAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"

struct soft_peer_region;

#define SOFT_PAGE_BYTES 4096u /* the least that an access can make */

extern _Atomic uint64_t
    soft_pages_missed; /* looks that found some missing, of any peer; any thread */

/* All pages are there, by a system call that waits for nothing. False: some are not, which is counted. */
bool soft_pages_there(struct soft_qp *qp, const void *at, size_t bytes);

/* Calls soft_pages_there() where it is time to look, and says true where it is not. */
static inline bool soft_pages_there_now(struct soft_qp *qp, const void *at, size_t bytes) {
    uintptr_t last = ((uintptr_t)at + bytes - 1) / SOFT_PAGE_BYTES;
    if ((uintptr_t)at / SOFT_PAGE_BYTES == qp->looked_at && last == qp->looked_at)
        return true; /* the last one again, which is one page whatever becomes of it */
    qp->looked_at = last;
    qp->look_in -= bytes < SOFT_PAGE_BYTES ? SOFT_PAGE_BYTES : (int64_t)bytes;
    if (__builtin_expect(qp->look_in >= 0 && ld(soft_pages_missed) == 0, 1))
        return true;
    return soft_pages_there(qp, at, bytes);
}

/* Reads at this offset without making a page: what is missing is zero. False: the region is not there any more. */
bool soft_pages_read(const struct soft_peer_region *region, uint64_t offset, void *to,
                     size_t bytes);

#endif
