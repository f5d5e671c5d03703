/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wire.h - numbers of iWARP to bytes and back: big endian, at any address. (The check value alone is little endian:
 * crc32c.h.)
 *
 * Pure; any thread.
 */
#ifndef SOFT_IWARP_WIRE_H
#define SOFT_IWARP_WIRE_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void iwarp_put16(uint8_t *out, uint16_t value) {
    value = htobe16(value);
    memcpy(out, &value, sizeof value);
}

static inline void iwarp_put32(uint8_t *out, uint32_t value) {
    value = htobe32(value);
    memcpy(out, &value, sizeof value);
}

static inline void iwarp_put64(uint8_t *out, uint64_t value) {
    value = htobe64(value);
    memcpy(out, &value, sizeof value);
}

static inline uint16_t iwarp_get16(const uint8_t *in) {
    uint16_t value;
    memcpy(&value, in, sizeof value);
    return be16toh(value);
}

static inline uint32_t iwarp_get32(const uint8_t *in) {
    uint32_t value;
    memcpy(&value, in, sizeof value);
    return be32toh(value);
}

static inline uint64_t iwarp_get64(const uint8_t *in) {
    uint64_t value;
    memcpy(&value, in, sizeof value);
    return be64toh(value);
}

#endif
