/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pattern.h - bytes that tell where in which message they belong. A file of its own, since it is optimised where the
 * tests are not, and no sanitizer looks at it: at messages they look as these are copied and compared. Any thread.
 */
#ifndef TESTS_SUPPORT_PATTERN_H
#define TESTS_SUPPORT_PATTERN_H

#include <stddef.h>
#include <stdint.h>

/* Byte i of the pattern `seed`. */
static inline uint8_t pattern_byte(size_t i, uint64_t seed) {
    return (uint8_t)(i * 131 + (i >> 8) * 29 + (i >> 16) * 7 + seed * 61 + 17);
}

/* Writes bytes from, from + 1, ... of it. */
void pattern_fill(uint8_t *at, size_t from, size_t bytes, uint64_t seed);

#endif
