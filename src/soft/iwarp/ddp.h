/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ddp.h - the header of a DDP segment (RFC 5041), with the two bytes that are DDP's and RDMAP's control fields.
 *
 * A tagged segment says where it goes, by STag and offset. An untagged one goes to a queue, as a part of the message
 * of that number (MSN), at an offset within it (MO). Pure; any thread.
 */
#ifndef SOFT_IWARP_DDP_H
#define SOFT_IWARP_DDP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/iwarp/terminate.h"

#define IWARP_TAGGED_BYTES 14u
#define IWARP_UNTAGGED_BYTES 18u
#define IWARP_HEADER_MAX IWARP_UNTAGGED_BYTES
#define IWARP_HEADER_MIN IWARP_TAGGED_BYTES

struct iwarp_ddp {
    uint8_t opcode; /* of RDMAP; says whether it is tagged */
    bool last;
    uint32_t stag;           /* tagged: its target; else the one to invalidate, or immediate data */
    uint64_t offset;         /* tagged: in its target */
    uint32_t queue, msn, mo; /* untagged */
};

/* The bytes of a header, by its first. */
static inline unsigned iwarp_ddp_bytes(uint8_t first) {
    return first & 0x80 ? IWARP_TAGGED_BYTES : IWARP_UNTAGGED_BYTES;
}

/* Returns how many bytes it is. */
size_t iwarp_ddp_put(uint8_t out[IWARP_HEADER_MAX], const struct iwarp_ddp *ddp);
/*
 * The header as it came: iwarp_ddp_bytes() of them. Refused, with the Terminate that it gets: another version of DDP or
 * RDMAP, a message that there is not (extended: those of RFC 7306 are) or that is not sent so, a queue that
 * is not that message's. Bits that are reserved are not looked at, as the RFCs have it.
 */
enum iwarp_refusal iwarp_ddp_get(struct iwarp_ddp *ddp, const uint8_t *in, bool extended);

#endif
