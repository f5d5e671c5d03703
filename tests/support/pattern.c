/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* pattern.c - see pattern.h. */
#include "support/pattern.h"

__attribute__((no_sanitize("thread"), no_sanitize("address"))) void
pattern_fill(uint8_t *at, size_t from, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++)
        at[i] = pattern_byte(from + i, seed);
}
