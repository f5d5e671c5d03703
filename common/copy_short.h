/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * copy_short.h - copies of a cache line or two, where a call into the C library costs as much as the copy itself.
 *
 * From the front in pieces of 32 bytes, and the last of these once more from the end. Pure; any thread.
 */
#ifndef COMMON_COPY_SHORT_H
#define COMMON_COPY_SHORT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define COPY_SHORT_MAX 128u /* longer ones are the C library's */

static inline void copy_short(uint8_t *to, const uint8_t *from, size_t bytes) {
    if (__builtin_expect(bytes >= 32, 1)) {
        if (__builtin_expect(bytes > COPY_SHORT_MAX, 0)) {
            memcpy(to, from, bytes);
            return;
        }
        memcpy(to, from, 32);
        if (bytes > 64) {
            memcpy(to + 32, from + 32, 32);
            if (bytes > 96)
                memcpy(to + 64, from + 64, 32);
        }
        memcpy(to + bytes - 32, from + bytes - 32, 32);
    } else if (bytes >= 16) {
        memcpy(to, from, 16);
        memcpy(to + bytes - 16, from + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(to, from, 8);
        memcpy(to + bytes - 8, from + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(to, from, 4);
        memcpy(to + bytes - 4, from + bytes - 4, 4);
    } else if (bytes > 0) {
        /* the first, the middle and the last: not a loop, which a compiler makes long */
        to[0] = from[0];
        to[bytes / 2] = from[bytes / 2];
        to[bytes - 1] = from[bytes - 1];
    }
}

#endif
