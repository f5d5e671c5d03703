/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * store_ordered.h - storing a WRITE so that a target which polls its last byte sees all of it.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_STORE_ORDERED_H
#define SOFT_RC_STORE_ORDERED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "common/copy_short.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"

/*
 * The last byte is stored after all others, so a target that polls it sees the whole. On x86-64 up to sixteen
 * bytes that lie in one cache line become visible together. The fence's partner is in the target: it
 * loads that byte with acquire order, and then the others.
 */
static inline void store_ordered(uint8_t *to, const uint8_t *from, size_t bytes, bool last) {
#if defined(__x86_64__)
    size_t tail = bytes >= 16 && ((uintptr_t)(to + bytes - 1) & 63) >= 15 ? 16 : 1;
#else
    const size_t tail = 1; /* sixteen bytes are no single store, and their parts are in no order */
#endif
    if (!last || bytes == 0) {
        memcpy(to, from, bytes);
        return;
    }
    if (bytes - tail <= SOFT_SLOT_PAYLOAD)
        copy_short(to, from, bytes - tail);
    else
        memcpy(to, from, bytes - tail);
    soft_fence_release();
    if (tail == 16)
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    else
        *(volatile uint8_t *)(to + bytes - 1) = from[bytes - 1];
}

#endif
