/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shm_page.h - life of the board that peers look at (struct soft_shm_page, shm_layout.h). Control lock.
 */
#ifndef SOFT_IPC_SHM_PAGE_H
#define SOFT_IPC_SHM_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"

extern struct soft_shm_page *soft_shm_page; /* NULL before the engine first started */

int soft_shm_page_start(void); /* 0 or -errno */
int soft_shm_page_fd(void);    /* to hand to peers */
void soft_shm_page_forked(void);

/* Counts a change of the line with this entry, behind the change. QP's lock: of two threads at once one is not counted. */
static inline void soft_told_changed(const struct soft_told *told) {
    uint32_t place = (uint32_t)(told - soft_shm_page->told);
    ASSERT(place < SOFT_SHM_PAGE_QPS);
    struct soft_changes *changes = &soft_shm_page->cq[soft_changes_at(place)].changes;
    _Atomic uint8_t *count = &changes->line[place / (uint32_t)SOFT_TOLD_LINE % SOFT_GROUP_LINES];
    atomic_store_explicit(count, (uint8_t)(ld(*count) + 1), memory_order_release);
}

#endif
