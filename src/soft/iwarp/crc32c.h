/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * crc32c.h - the check value of MPA's frames: CRC32c, by the CPU's instruction where it has one.
 *
 * Pure; any thread.
 */
#ifndef SOFT_IWARP_CRC32C_H
#define SOFT_IWARP_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IWARP_CRC_BYTES 4u

/* Of what `crc` is the check value of, and of these bytes behind it; 0 is that of nothing. */
uint32_t iwarp_crc32c(uint32_t crc, const void *data, size_t bytes);

/* As it stands in a frame: the least byte first, as nothing else there. */
static inline void iwarp_crc32c_put(uint8_t out[IWARP_CRC_BYTES], uint32_t crc) {
    for (unsigned i = 0; i < IWARP_CRC_BYTES; i++)
        out[i] = (uint8_t)(crc >> 8 * i);
}

static inline uint32_t iwarp_crc32c_get(const uint8_t in[IWARP_CRC_BYTES]) {
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

/* The ways to compute it, for tests: all of them give the same. */
enum iwarp_crc_way { IWARP_CRC_TABLE, IWARP_CRC_INSTRUCTION, IWARP_CRC_CHAINS, IWARP_CRC_WAYS };
bool iwarp_crc32c_has(enum iwarp_crc_way way); /* this CPU has it */
uint32_t iwarp_crc32c_by(enum iwarp_crc_way way, uint32_t crc, const void *data, size_t bytes);

#endif
