/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * checksum.c - see checksum.h. Words are read little-endian, so that hosts of different byte order
 * agree.
 */
#include "checksum.h"

#include <endian.h>
#include <string.h>

/* Odd constants with well mixed bits. */
#define MIX_A UINT64_C(0x9e3779b97f4a7c15)
#define MIX_B UINT64_C(0xc2b2ae3d27d4eb4f)

static inline uint64_t rotate(uint64_t x, int bits) {
    return x << bits | x >> (64 - bits);
}

static inline uint64_t word(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static inline uint64_t step(uint64_t lane, uint64_t value) {
    return rotate(lane + value * MIX_A, 31) * MIX_B;
}

static uint64_t finish(uint64_t x) {
    x = (x ^ x >> 33) * MIX_A;
    x = (x ^ x >> 29) * MIX_B;
    return x ^ x >> 32;
}

uint64_t checksum_add(uint64_t sum, const void *data, size_t bytes) {
    const unsigned char *at = data;
    size_t left = bytes;
    uint64_t a = sum, b = sum + MIX_A, c = sum ^ MIX_B, d = sum - MIX_B;
    for (; left >= 32; at += 32, left -= 32) {
        a = step(a, word(at));
        b = step(b, word(at + 8));
        c = step(c, word(at + 16));
        d = step(d, word(at + 24));
    }
    uint64_t all = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    for (; left >= 8; at += 8, left -= 8)
        all = step(all, word(at));
    uint64_t rest = 0;
    for (size_t i = 0; i < left; i++)
        rest |= (uint64_t)at[i] << (8 * i);
    return finish(step(step(all, rest), bytes));
}
