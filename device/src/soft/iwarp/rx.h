/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rx.h - the receiving end of a stream: turns bytes, in pieces of any size, into frames, and frames into messages, in
 * the order of DDP.
 *
 * The receiver is a state machine that can stop at any byte. It keeps a header, a check value and the place of the
 * current segment, and no payload: the receiver copies payload straight to the memory that the owner names, or the
 * caller reads it there; only payload that the device reads itself (requests, Terminates) is gathered here.
 *
 * The receiver is as strict as Linux's Soft-iWARP: message numbers without a gap, offsets without a gap, one open
 * tagged and one open untagged message. It places a segment as it comes. It delivers, answers and counts nothing of a
 * frame before the check value was right, and if the whole frame is at hand, it places nothing before either. The first
 * error ends the stream for good. An error in a frame is reported only when the check value was right, so that a bit
 * that changed on the way is reported as a wrong check value.
 *
 * Owner: one thread at a time. Only iwarp_rx_feed() calls the owner's operations, which may not call back in here.
 * Their arguments come from the peer, and only their form was checked: the operations check keys, memory and rights.
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
    uint8_t opcode;                           /* a SEND of any kind, or immediate data */
    uint32_t bytes;                           /* SEND: its length */
    uint32_t stag;                            /* the invalidated one */
    uint8_t immediate[IWARP_IMMEDIATE_BYTES]; /* SEND with immediate data: the first four */
    /* Immediate data: whether a WRITE came before it, and how long that was. */
    bool written;
    uint32_t written_bytes;
};

struct iwarp_rx_ops {
    /* Takes a receive for the message that begins. False: there is none now; called again at the next feed. */
    bool (*take)(void *owner);
    /* Names the memory for bytes of the message, in the receive that was taken; bytes > 0. */
    enum iwarp_refusal (*receive)(void *owner, uint32_t at, uint32_t bytes,
                                  struct iwarp_place *place);
    /* Invalidates a STag of this end, before the message is delivered. */
    enum iwarp_refusal (*invalidate)(void *owner, uint32_t stag);
    void (*deliver)(void *owner, const struct iwarp_message *message);
    /* Names the memory for bytes of a peer's WRITE: called for each segment, with the segment's offset; bytes > 0. */
    enum iwarp_refusal (*write)(void *owner, uint32_t stag, uint64_t offset, uint32_t bytes,
                                struct iwarp_place *place);
    /* The oldest READ without an answer; false: there is none. response: where bytes of its answer go; then its end. */
    bool (*reading)(void *owner, struct iwarp_read *read);
    enum iwarp_refusal (*response)(void *owner, uint32_t at, uint32_t bytes,
                                   struct iwarp_place *place);
    void (*read_done)(void *owner);
    /* Requests of the peer, to be answered; their source and bounds are not checked yet. */
    enum iwarp_refusal (*read)(void *owner, const struct iwarp_read *read);
    enum iwarp_refusal (*atomic)(void *owner, const struct iwarp_atomic *atomic);
    /* The answer to an atomic of this end; refused if it is not for the oldest. */
    enum iwarp_refusal (*atomic_done)(void *owner, const struct iwarp_atomic_response *response);
    void (*terminated)(void *owner, const struct iwarp_terminate *terminate);
    /* May be NULL: an empty WRITE. True: it means something among devices of this kind, and is no WRITE. */
    bool (*empty)(void *owner, uint32_t stag, uint64_t offset);
};

enum iwarp_rx_status {
    IWARP_RX_OPEN,
    IWARP_RX_WAITING,    /* for a receive: no more bytes are taken before there is one */
    IWARP_RX_REFUSED,    /* this end ends the stream: iwarp_rx_terminate() has what to send */
    IWARP_RX_TERMINATED, /* the peer ended the stream by a Terminate */
};

struct iwarp_rx {
    const struct iwarp_rx_ops *ops;
    void *owner;
    bool crc, extended; /* as agreed */
    enum iwarp_rx_status status;
    enum iwarp_refusal refusal;
    uint64_t frames; /* received without an error */
    /* The current frame. */
    uint8_t state;
    bool checked; /* its check value was checked in advance */
    bool headed;  /* its header is complete, so a Terminate can quote it */
    uint8_t have; /* bytes gathered in head, or in tail */
    uint8_t body_have;
    uint8_t head[IWARP_LENGTH_BYTES + IWARP_HEADER_MAX];
    uint8_t tail[IWARP_PAD_MAX + IWARP_CRC_BYTES];
    uint8_t body[IWARP_ATOMIC_BYTES]; /* payload that is read here */
    uint16_t segment;
    uint32_t payload, left; /* of the segment; left: still to come */
    uint32_t check;
    enum iwarp_refusal doomed; /* the refusal that ends the stream when the whole frame is here */
    struct iwarp_ddp ddp;
    struct iwarp_place place;
    /* Messages. */
    uint32_t msn[IWARP_QUEUES]; /* of the open message, else of the next */
    struct {
        bool taken, open; /* a receive is taken; segments came, and the last did not */
        uint8_t opcode;
        uint32_t stag, bytes;
    } untagged;
    struct {
        bool open;
        uint8_t opcode;
        uint32_t stag, bytes;
        uint64_t next;
    } tagged;
    bool written; /* a WRITE came, and no message of queue 0 since */
    uint32_t written_bytes;
};

void iwarp_rx_init(struct iwarp_rx *rx, const struct iwarp_rx_ops *ops, void *owner, bool crc,
                   bool extended);
/*
 * Takes bytes of the stream and returns how many: fewer than all only if the status is then not OPEN. The caller feeds
 * the rest again once there may be a receive: a feed of 0 bytes in WAITING asks for one, too.
 */
size_t iwarp_rx_feed(struct iwarp_rx *rx, const uint8_t *data, size_t bytes);
/*
 * The memory for the next bytes of the stream, if these are at least `least` bytes of payload. The caller may read from
 * the socket into this memory, up to its end, before it reads anything else, and then calls iwarp_rx_filled(). Returns
 * the number of pieces; 0: there is no such memory, the caller feeds.
 */
unsigned iwarp_rx_want(const struct iwarp_rx *rx, size_t least, const struct iovec **pieces);
void iwarp_rx_filled(struct iwarp_rx *rx, size_t bytes);

/* The peer is in the middle of a frame, or of a message, and must send the rest. */
static inline bool iwarp_rx_inside(const struct iwarp_rx *rx) {
    return rx->state != 0 || rx->have > 0 || rx->untagged.open || rx->tagged.open;
}

/* Payload is still to be written into this memory. */
bool iwarp_rx_uses(const struct iwarp_rx *rx, const void *from, size_t bytes);
/* Stops writing to that memory: the rest of the segment is dropped, and then the stream ends with that refusal. */
void iwarp_rx_withdraw(struct iwarp_rx *rx, enum iwarp_refusal refusal);
/* The Terminate for the peer of a stream in IWARP_RX_REFUSED. */
void iwarp_rx_terminate(const struct iwarp_rx *rx, struct iwarp_terminate *terminate);

#endif
