/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * size_class.h - the sizes that buffers have.
 *
 * Capacities are the multiples of 64 up to 256 (buffers begin at cache lines, so there is none between
 * them), then four for each doubling: above 256 bytes a buffer is at most a quarter larger than what was
 * asked for, below by 63 bytes at most.
 *
 * Pure; any thread.
 */
#ifndef POOL_SIZE_CLASS_H
#define POOL_SIZE_CLASS_H

#include "pool/pool.h"

#define CLASS_LOG2_EVEN 8 /* up to 256 B in steps of a quarter of that, 64 B */
#define CLASS_LOG2_MAX 20 /* 1 MiB */
#define CLASS_BYTES_MAX ((size_t)1 << CLASS_LOG2_MAX)
_Static_assert(POOL_CLASSES == (CLASS_LOG2_MAX - CLASS_LOG2_EVEN) * 4 + 4, "classes");

/*
 * Smallest class with room for bytes <= CLASS_BYTES_MAX. No branch: each message asks, and sizes are mixed.
 * The two bits behind the highest say which quarter of a doubling it is, and with the highest in front of
 * them 4 more. Up to 256 bytes that bit is missing: those are the four classes in front.
 */
static inline unsigned class_of(size_t bytes) {
    size_t last = bytes - (bytes != 0); /* a size that is a capacity itself belongs to that class */
    size_t even = ((size_t)2 << CLASS_LOG2_EVEN) - 1;
    unsigned log2 = 63 ^ (unsigned)__builtin_clzll(last | even);
    return (log2 - CLASS_LOG2_EVEN) * 4 + (unsigned)(last >> (log2 - 2));
}

static inline size_t class_capacity(unsigned size_class) {
    if (size_class < 4)
        return (size_t)(size_class + 1) << (CLASS_LOG2_EVEN - 2);
    return (size_t)(5 + size_class % 4) << (CLASS_LOG2_EVEN - 3 + size_class / 4);
}

#endif
