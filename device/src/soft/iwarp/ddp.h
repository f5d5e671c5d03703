/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ddp.h - the header of a DDP segment (RFC 5041), with the control fields of DDP and RDMAP, its first two bytes.
 *
 * A tagged segment names its target memory by STag and offset. An untagged segment goes to a queue, as a part of the
 * message with that number (MSN), at an offset within the message (MO). Pure; any thread.
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
    uint8_t opcode; /* of RDMAP; decides whether the segment is tagged */
    bool last;
    uint32_t stag;   /* tagged: the target; else the STag to invalidate, or immediate data */
    uint64_t offset; /* tagged: in the target */
    uint32_t queue, msn, mo; /* untagged */
};

/* The length of a header, by its first byte. */
static inline unsigned iwarp_ddp_bytes(uint8_t first) {
    return first & 0x80 ? IWARP_TAGGED_BYTES : IWARP_UNTAGGED_BYTES;
}

/* Returns the length of the header. */
size_t iwarp_ddp_put(uint8_t out[IWARP_HEADER_MAX], const struct iwarp_ddp *ddp);
/*
 * Reads a header of iwarp_ddp_bytes() bytes. Refuses, and returns the Terminate to send: another version of DDP or
 * RDMAP, an unknown opcode (extended: RFC 7306's are known), a tagged opcode in an untagged segment or the reverse, a
 * queue of another opcode. Reserved bits are ignored, as the RFCs demand.
 */
enum iwarp_refusal iwarp_ddp_get(struct iwarp_ddp *ddp, const uint8_t *in, bool extended);

#endif
