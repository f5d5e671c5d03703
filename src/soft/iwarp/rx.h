/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rx.h - the receiving end of a stream: frames from pieces of any size, in the order of DDP, to messages.
 *
 * A state machine that stops at any byte. It keeps a header, a check value and the place of the present segment, and
 * no payload: that goes from the pieces straight to where the owner says, or is read there by the caller, and what
 * the device reads itself (requests, Terminates) to some bytes here.
 *
 * As strict as Linux's Soft-iWARP: message numbers without a gap, offsets without a gap, one open tagged and one
 * open untagged message. A segment is placed as it comes. Nothing of a frame is delivered, answered or counted before
 * its check value was right, and where the frame as a whole is at hand, nothing is placed before. The first thing that
 * is wrong ends the stream, for good. What is wrong in a frame is said when its check value was right, so that a bit that
 * changed on the way is called that.
 *
 * Owner: one thread at a time. The owner's operations are called from iwarp_rx_feed() and iwarp_rx_filled() alone, and may
 * not call back in here. All that they are told comes from the peer and is checked for its form only: which key, which
 * memory, which rights is theirs to ask.
 */
#ifndef SOFT_IWARP_RX_H
#define SOFT_IWARP_RX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/iwarp/ddp.h"
#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/place.h"
#include "soft/iwarp/rdmap.h"
#include "soft/iwarp/terminate.h"

/* A message of queue 0 that has arrived, for the receive that was taken for it. */
struct iwarp_message {
    uint8_t opcode;                           /* one of SEND, or of immediate data */
    uint32_t bytes;                           /* of SEND */
    uint32_t stag;                            /* that was invalidated */
    uint8_t immediate[IWARP_IMMEDIATE_BYTES]; /* of SEND with it the first four */
    /* Of immediate data: with the WRITE in front of it, if there was one. */
    bool written;
    uint32_t written_bytes;
};

struct iwarp_rx_ops {
    /* A receive for the message that begins. False: none now; asked again when there is more to feed. */
    bool (*take)(void *owner);
    /* Where bytes of the message go in the receive that was taken; bytes > 0. */
    enum iwarp_refusal (*receive)(void *owner, uint32_t at, uint32_t bytes,
                                  struct iwarp_place *place);
    /* This end's STag goes away, before its message is delivered. */
    enum iwarp_refusal (*invalidate)(void *owner, uint32_t stag);
    void (*deliver)(void *owner, const struct iwarp_message *message);
    /* Where bytes of a peer's WRITE go: asked for each segment, with its own offset; bytes > 0. */
    enum iwarp_refusal (*write)(void *owner, uint32_t stag, uint64_t offset, uint32_t bytes,
                                struct iwarp_place *place);
    /* The oldest READ that is not answered; false: there is none. Then where bytes of its answer go, and its end. */
    bool (*reading)(void *owner, struct iwarp_read *read);
    enum iwarp_refusal (*response)(void *owner, uint32_t at, uint32_t bytes,
                                   struct iwarp_place *place);
    void (*read_done)(void *owner);
    /* Requests of the peer, to be answered; source and bounds are not checked. */
    enum iwarp_refusal (*read)(void *owner, const struct iwarp_read *read);
    enum iwarp_refusal (*atomic)(void *owner, const struct iwarp_atomic *atomic);
    /* The answer to an atomic of this end; refused if it is not the oldest's. */
    enum iwarp_refusal (*atomic_done)(void *owner, const struct iwarp_atomic_response *response);
    void (*terminated)(void *owner, const struct iwarp_terminate *terminate);
};

enum iwarp_rx_status {
    IWARP_RX_OPEN,
    IWARP_RX_WAITING,    /* for a receive: nothing more is taken before there is one */
    IWARP_RX_REFUSED,    /* this end ends it: iwarp_rx_terminate() says what to send */
    IWARP_RX_TERMINATED, /* the peer ended it */
};

struct iwarp_rx {
    const struct iwarp_rx_ops *ops;
    void *owner;
    bool crc, extended; /* as agreed */
    enum iwarp_rx_status status;
    enum iwarp_refusal refusal;
    uint64_t frames; /* that were right */
    /* The present frame. */
    uint8_t state;
    bool checked; /* its check value was looked at in advance */
    bool headed;  /* it has a header that can be told */
    uint8_t have; /* bytes of head, or of tail */
    uint8_t body_have;
    uint8_t head[IWARP_LENGTH_BYTES + IWARP_HEADER_MAX];
    uint8_t tail[IWARP_PAD_MAX + IWARP_CRC_BYTES];
    uint8_t body[IWARP_ATOMIC_BYTES]; /* payload that is read here */
    uint16_t segment;
    uint32_t payload, left; /* of the segment; how much of it is still to come */
    uint32_t check;
    enum iwarp_refusal doomed; /* what will be said when it was received whole */
    struct iwarp_ddp ddp;
    struct iwarp_place place;
    /* Messages. */
    uint32_t msn[IWARP_QUEUES]; /* that is next, or open */
    struct {
        bool taken, open; /* a receive is taken; parts are there and more to come */
        uint8_t opcode;
        uint32_t stag, bytes;
    } untagged;
    struct {
        bool open;
        uint8_t opcode;
        uint32_t stag, bytes;
        uint64_t next;
    } tagged;
    bool written; /* a WRITE came, and nothing on queue 0 since */
    uint32_t written_bytes;
};

void iwarp_rx_init(struct iwarp_rx *rx, const struct iwarp_rx_ops *ops, void *owner, bool crc,
                   bool extended);
/*
 * Takes bytes of the stream and returns how many, fewer than all only when the status is not OPEN then. What was not taken
 * is fed again, once there may be a receive: WAITING with nothing to feed asks, too.
 */
size_t iwarp_rx_feed(struct iwarp_rx *rx, const uint8_t *data, size_t bytes);
/*
 * The memory that the next bytes of the stream go to, if they are payload and at least that many: the caller may read as
 * much there as there is place for, before it reads anything else, and says how much it was. Returns the number
 * of pieces; 0: there is none, feed.
 */
unsigned iwarp_rx_want(const struct iwarp_rx *rx, size_t least, const struct iovec **pieces);
void iwarp_rx_filled(struct iwarp_rx *rx, size_t bytes);

/* The peer is in the middle of a frame, or of a message: it has to go on. */
static inline bool iwarp_rx_inside(const struct iwarp_rx *rx) {
    return rx->state != 0 || rx->have > 0 || rx->untagged.open || rx->tagged.open;
}

/* Payload is still to be written into this memory. */
bool iwarp_rx_uses(const struct iwarp_rx *rx, const void *from, size_t bytes);
/* It may not be any more: the rest of the segment goes nowhere, and its end is that refusal. */
void iwarp_rx_withdraw(struct iwarp_rx *rx, enum iwarp_refusal refusal);
/* Of a stream that was refused: what the peer is told. */
void iwarp_rx_terminate(const struct iwarp_rx *rx, struct iwarp_terminate *terminate);

#endif
