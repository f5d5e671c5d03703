/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fpdu.h - MPA's frames: two bytes of length, one DDP segment, a pad to a multiple of four, the check value.
 *
 * The length counts the segment alone; the multiple of four includes the two bytes of the length. A frame has a check
 * value also where the two ends agreed to check none. There are no markers: an end that wants them is refused when
 * the connection is made (handshake.h).
 *
 * Pure; any thread.
 */
#ifndef SOFT_IWARP_FPDU_H
#define SOFT_IWARP_FPDU_H

#include <stdint.h>

#include "soft/iwarp/crc32c.h"

#define IWARP_LENGTH_BYTES 2u
#define IWARP_PAD_MAX 3u
#define IWARP_SEGMENT_MAX UINT16_MAX /* the largest length, and all lengths are accepted */
#define IWARP_MULPDU_MIN 128u
#define IWARP_MULPDU_MAX 64768u

static inline unsigned iwarp_pad(unsigned segment) {
    return -(IWARP_LENGTH_BYTES + segment) & IWARP_PAD_MAX;
}

/* The length of the whole frame. */
static inline unsigned iwarp_fpdu_bytes(unsigned segment) {
    return IWARP_LENGTH_BYTES + segment + iwarp_pad(segment) + IWARP_CRC_BYTES;
}

/* The longest DDP segment whose frame fits a TCP segment of that many bytes; never less than 128 (RFC 5044, 4.1). */
static inline unsigned iwarp_mulpdu(unsigned tcp_segment) {
    unsigned frame = tcp_segment & ~3u;
    if (frame < IWARP_MULPDU_MIN + IWARP_LENGTH_BYTES + IWARP_CRC_BYTES)
        return IWARP_MULPDU_MIN;
    unsigned most = frame - IWARP_LENGTH_BYTES - IWARP_CRC_BYTES;
    return most > IWARP_MULPDU_MAX ? IWARP_MULPDU_MAX : most;
}

#endif
