/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* less.h - the less of two numbers. Pure; any thread. */
#ifndef BASE_LESS_H
#define BASE_LESS_H

#include <stdint.h>

static inline uint64_t less(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

#endif
