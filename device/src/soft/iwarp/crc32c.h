/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * crc32c.h - CRC32c, the check value of MPA's frames, by the CPU's instruction where that is faster than tables.
 *
 * Any thread.
 */
#ifndef SOFT_IWARP_CRC32C_H
#define SOFT_IWARP_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IWARP_CRC_BYTES 4u

/* Extends the check value `crc` of earlier bytes by these bytes; 0 is the check value of no bytes. */
uint32_t iwarp_crc32c(uint32_t crc, const void *data, size_t bytes);

/* To and from the bytes of a frame: little endian, unlike all other numbers of iWARP. */
static inline void iwarp_crc32c_put(uint8_t out[IWARP_CRC_BYTES], uint32_t crc) {
    for (unsigned i = 0; i < IWARP_CRC_BYTES; i++)
        out[i] = (uint8_t)(crc >> 8 * i);
}

static inline uint32_t iwarp_crc32c_get(const uint8_t in[IWARP_CRC_BYTES]) {
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

/* For tests: the ways to compute the check value, which all give the same result. */
enum iwarp_crc_way {
    IWARP_CRC_TABLE,
    IWARP_CRC_INSTRUCTION,
    IWARP_CRC_CHAINS,
    IWARP_CRC_FOLDS,
    IWARP_CRC_WAYS
};
bool iwarp_crc32c_has(enum iwarp_crc_way way); /* this CPU can compute that way */
enum iwarp_crc_way iwarp_crc32c_way(void); /* the one that iwarp_crc32c() takes in this process */
uint32_t iwarp_crc32c_by(enum iwarp_crc_way way, uint32_t crc, const void *data, size_t bytes);

#endif
