/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * region.h - memory of the application, registered.
 *
 * A region belongs to the caller that opened it until it is closed, at the latest with its node. `addr`, `bytes`
 * and `rights` are constant. The registration is there from opening to closing, except that the removal of
 * the device takes it away and revoking makes another: neither happens while a holder of the
 * region has a QP to use it with. So a holder may use `mr` on the thread of a loop.
 *
 * Owner: the application. The list is under the node's lock for regions. `mr` is the opening, closing or
 * revoking call's, which the list waits for, and the lock's while there is none: so a registration that the
 * device is slow to end (soft/rc/rkey_fence.c) holds up its own call, and no other.
 */
#ifndef CORE_REGION_H
#define CORE_REGION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

#include <sluice/memory.h>

#include "fabric/fabric.h"

#define REGION_SHUT (1u << 31) /* uses: it is being closed or revoked */

struct sluice_region {
    struct cds_list_head link;
    struct sluice_node *node;
    struct ibv_mr *mr; /* NULL: the device is gone, or would not register it again */
    uint8_t *addr;
    uint64_t bytes;
    size_t found; /* bytes of memory that are the library's; 0: the application's */
    uint32_t rights;
    _Atomic uint32_t uses; /* operations and messages that hold it, and REGION_SHUT */
    _Atomic uint32_t lkey, rkey;
    _Atomic bool usable; /* it has a registration; any thread may ask */
};

struct regions {
    pthread_mutex_t lock; /* never a loop's */
    pthread_cond_t idle;  /* no call is under way */
    struct cds_list_head list;
    uint32_t calls; /* that have a region's registration for themselves */
    bool gone;      /* so is the device: nothing is registered any more */
};

void regions_init(struct regions *set);
/* Every region dies; no session is left. */
void regions_close(struct regions *set);
/* The device is gone: ends every registration. The application's memory is its own business. */
void regions_detach(struct regions *set);

/* For an operation or a message: it stays, and stays registered, until dropped. Any thread. 0, EINVAL
 * (it is being closed or revoked), EDEVICE. */
int region_hold(const sluice_region *region);
void region_drop(const sluice_region *region);

/* Whether these bytes are its own. */
static inline bool region_has(const sluice_region *region, uint64_t offset, uint64_t bytes) {
    return offset <= region->bytes && bytes <= region->bytes - offset;
}

#endif
