/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * terminate.h - why a stream ends: the codes of the Terminate message, its bytes, and the status that a work request or
 * a receive then completes with.
 *
 * Pure; any thread.
 */
#ifndef SOFT_IWARP_TERMINATE_H
#define SOFT_IWARP_TERMINATE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IWARP_TERMINATE_HEADER_MAX 18u /* of the segment that was refused */
#define IWARP_TERMINATE_READ_BYTES 28u /* of the READ request that was refused */
#define IWARP_TERMINATE_MAX (4u + 2u + IWARP_TERMINATE_HEADER_MAX + IWARP_TERMINATE_READ_BYTES)

/* 0x10000 tells layer 0, type 0, code 0, which is a refusal, from IWARP_FINE. */
#define IWARP_REFUSAL(layer, type, code) (0x10000 | (layer) << 12 | (type) << 8 | (code))

enum iwarp_refusal {
    IWARP_FINE = 0,
    /* RDMAP */
    IWARP_LOCAL_CATASTROPHIC = IWARP_REFUSAL(0, 0, 0),
    IWARP_REMOTE_STAG = IWARP_REFUSAL(0, 1, 0),
    IWARP_REMOTE_BOUNDS = IWARP_REFUSAL(0, 1, 1),
    IWARP_REMOTE_RIGHTS = IWARP_REFUSAL(0, 1, 2),
    IWARP_REMOTE_STREAM = IWARP_REFUSAL(0, 1, 3), /* a STag of another connection */
    IWARP_REMOTE_WRAP = IWARP_REFUSAL(0, 1, 4),
    IWARP_REMOTE_INVALIDATE = IWARP_REFUSAL(0, 1, 9), /* a STag that cannot be invalidated */
    IWARP_REMOTE_OTHER = IWARP_REFUSAL(0, 1, 0xff),
    IWARP_OPERATION_VERSION = IWARP_REFUSAL(0, 2, 5),
    IWARP_OPERATION_OPCODE = IWARP_REFUSAL(0, 2, 6),
    IWARP_OPERATION_STREAM = IWARP_REFUSAL(0, 2, 7), /* catastrophic in this stream */
    IWARP_OPERATION_GLOBAL = IWARP_REFUSAL(0, 2, 8),
    IWARP_OPERATION_INVALIDATE = IWARP_REFUSAL(0, 2, 9),
    IWARP_OPERATION_OTHER = IWARP_REFUSAL(0, 2, 0xff),
    /* DDP */
    IWARP_DDP_CATASTROPHIC = IWARP_REFUSAL(1, 0, 0),
    IWARP_TAGGED_STAG = IWARP_REFUSAL(1, 1, 0),
    IWARP_TAGGED_BOUNDS = IWARP_REFUSAL(1, 1, 1),
    IWARP_TAGGED_STREAM = IWARP_REFUSAL(1, 1, 2),
    IWARP_TAGGED_WRAP = IWARP_REFUSAL(1, 1, 3),
    IWARP_TAGGED_VERSION = IWARP_REFUSAL(1, 1, 4),
    IWARP_UNTAGGED_QUEUE = IWARP_REFUSAL(1, 2, 1),
    IWARP_UNTAGGED_NO_BUFFER = IWARP_REFUSAL(1, 2, 2),
    IWARP_UNTAGGED_MSN = IWARP_REFUSAL(1, 2, 3),
    IWARP_UNTAGGED_MO = IWARP_REFUSAL(1, 2, 4),
    IWARP_UNTAGGED_TOO_LONG = IWARP_REFUSAL(1, 2, 5),
    IWARP_UNTAGGED_VERSION = IWARP_REFUSAL(1, 2, 6),
    /* MPA */
    IWARP_MPA_LOST = IWARP_REFUSAL(2, 0, 1),
    IWARP_MPA_CRC = IWARP_REFUSAL(2, 0, 2),
    IWARP_MPA_FRAMING = IWARP_REFUSAL(2, 0, 3),
    IWARP_MPA_HANDSHAKE = IWARP_REFUSAL(2, 0, 4),
    IWARP_MPA_LOCAL = IWARP_REFUSAL(2, 0, 5),
    IWARP_MPA_IRD = IWARP_REFUSAL(2, 0, 6),
    IWARP_MPA_RTR = IWARP_REFUSAL(2, 0, 7),
};

/* For any refusal, also one that a peer sends and that has no name here. */
static inline unsigned iwarp_refusal_layer(unsigned refusal) {
    return refusal >> 12 & 15;
}

static inline unsigned iwarp_refusal_type(unsigned refusal) {
    return refusal >> 8 & 15;
}

static inline unsigned iwarp_refusal_code(unsigned refusal) {
    return refusal & 255;
}

/* The payload of a Terminate message. */
struct iwarp_terminate {
    unsigned refusal; /* of enum iwarp_refusal, or what the peer sent */
    /* The refused segment, as far as the message has it. */
    uint16_t segment;     /* its length; valid only if there is a header */
    uint8_t header_bytes; /* 0: no header */
    uint8_t header[IWARP_TERMINATE_HEADER_MAX];
    bool read; /* the READ request follows */
    uint8_t read_request[IWARP_TERMINATE_READ_BYTES];
};

/* Returns the length of the message. */
size_t iwarp_terminate_put(uint8_t out[IWARP_TERMINATE_MAX], const struct iwarp_terminate *t);
/*
 * Reads a peer's Terminate as far as possible; a Terminate always ends the stream. Soft-iWARP on little-endian machines
 * has the fields within a byte in reverse order: its flags show that, and without flags a code that exists only in
 * that order does. Such a message is put right.
 */
void iwarp_terminate_get(struct iwarp_terminate *t, const uint8_t *in, size_t bytes);

/* The status of a request that the peer refused with this code. */
enum ibv_wc_status iwarp_refusal_of_request(unsigned refusal);
/* The status of the receive for the message that this end refused with this code. */
enum ibv_wc_status iwarp_refusal_of_receive(unsigned refusal);

#endif
