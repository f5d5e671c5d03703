/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdmap.h - the messages of RDMAP (RFC 5040, RFC 7306): their opcodes, and the payload of the messages that this device
 * reads itself.
 *
 * Pure; any thread.
 */
#ifndef SOFT_IWARP_RDMAP_H
#define SOFT_IWARP_RDMAP_H

#include <stdbool.h>
#include <stdint.h>

enum iwarp_opcode {
    IWARP_WRITE = 0,
    IWARP_READ_REQUEST = 1,
    IWARP_READ_RESPONSE = 2,
    IWARP_SEND = 3,
    IWARP_SEND_INVALIDATE = 4,
    IWARP_SEND_SOLICITED = 5,
    IWARP_SEND_SOLICITED_INVALIDATE = 6,
    IWARP_TERMINATE = 7,
    /* RFC 7306; only between two ends of this device that agreed on it */
    IWARP_IMMEDIATE = 8,
    IWARP_IMMEDIATE_SOLICITED = 9,
    IWARP_ATOMIC_REQUEST = 10,
    IWARP_ATOMIC_RESPONSE = 11,
    /* of this device alone, with the same agreement: immediate data stands in the field of the STag to invalidate */
    IWARP_SEND_IMMEDIATE = 12,
    IWARP_SEND_IMMEDIATE_SOLICITED = 13,
    IWARP_OPCODES
};

/* Queues of untagged messages. */
enum {
    IWARP_QUEUE_SEND,
    IWARP_QUEUE_REQUEST,
    IWARP_QUEUE_TERMINATE,
    IWARP_QUEUE_ATOMIC,
    IWARP_QUEUES
};

static inline bool iwarp_opcode_tagged(unsigned opcode) {
    return opcode == IWARP_WRITE || opcode == IWARP_READ_RESPONSE;
}

static inline bool iwarp_opcode_extended(unsigned opcode) {
    return opcode >= IWARP_IMMEDIATE;
}

static inline bool iwarp_opcode_send_immediate(unsigned opcode) {
    return opcode == IWARP_SEND_IMMEDIATE || opcode == IWARP_SEND_IMMEDIATE_SOLICITED;
}

/* A message with a payload of any length, for a receive. */
static inline bool iwarp_opcode_send(unsigned opcode) {
    return (opcode >= IWARP_SEND && opcode <= IWARP_SEND_SOLICITED_INVALIDATE) ||
           iwarp_opcode_send_immediate(opcode);
}

static inline bool iwarp_opcode_immediate(unsigned opcode) {
    return opcode == IWARP_IMMEDIATE || opcode == IWARP_IMMEDIATE_SOLICITED;
}

static inline bool iwarp_opcode_solicited(unsigned opcode) {
    return opcode == IWARP_SEND_SOLICITED || opcode == IWARP_SEND_SOLICITED_INVALIDATE ||
           opcode == IWARP_IMMEDIATE_SOLICITED || opcode == IWARP_SEND_IMMEDIATE_SOLICITED;
}

static inline bool iwarp_opcode_invalidates(unsigned opcode) {
    return opcode == IWARP_SEND_INVALIDATE || opcode == IWARP_SEND_SOLICITED_INVALIDATE;
}

/* The queue of an untagged message. */
static inline unsigned iwarp_opcode_queue(unsigned opcode) {
    return opcode == IWARP_READ_REQUEST || opcode == IWARP_ATOMIC_REQUEST ? IWARP_QUEUE_REQUEST
           : opcode == IWARP_TERMINATE                                    ? IWARP_QUEUE_TERMINATE
           : opcode == IWARP_ATOMIC_RESPONSE                              ? IWARP_QUEUE_ATOMIC
                                                                          : IWARP_QUEUE_SEND;
}

/* ---- payloads -------------------------------------------------------------------------------------------- */

#define IWARP_READ_BYTES 28u
#define IWARP_IMMEDIATE_BYTES                                                                      \
    8u /* verbs use the first four; the others are sent as 0 and ignored when received */
#define IWARP_ATOMIC_BYTES 52u
#define IWARP_ATOMIC_RESPONSE_BYTES 12u

struct iwarp_read {
    uint32_t sink_stag;
    uint64_t sink_offset;
    uint32_t bytes;
    uint32_t source_stag;
    uint64_t source_offset;
};

enum iwarp_atomic_kind { IWARP_FETCH_AND_ADD = 0, IWARP_COMPARE_AND_SWAP = 2 };

/* Without the masks of RFC 7306, which verbs do not have: a request that uses them is refused. */
struct iwarp_atomic {
    enum iwarp_atomic_kind kind;
    uint32_t id; /* the response repeats it */
    uint32_t stag;
    uint64_t offset;
    uint64_t value; /* the summand, or the new value of a swap */
    uint64_t compare;
};

struct iwarp_atomic_response {
    uint32_t id;
    uint64_t before;
};

void iwarp_read_put(uint8_t out[IWARP_READ_BYTES], const struct iwarp_read *read);
void iwarp_read_get(struct iwarp_read *read, const uint8_t in[IWARP_READ_BYTES]);
void iwarp_atomic_put(uint8_t out[IWARP_ATOMIC_BYTES], const struct iwarp_atomic *atomic);
/* False: this device does not have that kind, or those masks. */
bool iwarp_atomic_get(struct iwarp_atomic *atomic, const uint8_t in[IWARP_ATOMIC_BYTES]);
void iwarp_atomic_response_put(uint8_t out[IWARP_ATOMIC_RESPONSE_BYTES],
                               const struct iwarp_atomic_response *response);
void iwarp_atomic_response_get(struct iwarp_atomic_response *response,
                               const uint8_t in[IWARP_ATOMIC_RESPONSE_BYTES]);

#endif
