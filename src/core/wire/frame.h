/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * frame.h - the 24 bytes in front of every SEND: what kind of frame it is and what it acknowledges.
 *
 * Little endian, naturally aligned: the header lies in the headroom of the buffer whose payload it
 * describes, so that one sge is a whole frame. docs/protocol.md holds the byte table.
 *
 * A received header is hostile: frame_get() reads it once into a private copy, and only the copy is
 * looked at. Pure functions, any thread.
 */
#ifndef CORE_WIRE_FRAME_H
#define CORE_WIRE_FRAME_H

#include <endian.h>
#include <stdint.h>

#define FRAME_BYTES 24u

enum frame_type {
    FRAME_DATA = 1,   /* a whole message */
    FRAME_FRAG = 2,   /* a piece of a message; flags say first and last */
    FRAME_CREDIT = 3, /* nothing but the header */
    FRAME_BYE = 4,    /* the sender sends nothing after this frame and wants the session closed */
    FRAME_HELLO =
        5, /* dialer's first frame, where a handshake was agreed: proof and private data */
    FRAME_WELCOME = 6,    /* listener's answer: the session is up */
    FRAME_REFUSE = 7,     /* or not: a REJ record; like BYE otherwise */
    FRAME_ALIVE = 8,      /* nothing but the header: the sender lives */
    FRAME_REQUEST = 9,    /* a message to be answered; total: its id and the time that is left */
    FRAME_REPLY = 10,     /* the answer; total: the request's id and a code. Of both perhaps only
                             the first piece: then FRAME_FIRST, and FRAGs follow */
    FRAME_COALESCED = 11, /* several small messages, requests and replies */
    FRAME_RTS = 12,       /* a large message is there: to be read, or to be written (rndv.h) */
    FRAME_RTR = 13,       /* the answer to an announcement: where the message may be written */
    FRAME_ATS = 14,       /* the other answer: it was read, or is not wanted */
    FRAME_CANCEL = 15,    /* the requester gave up; total: the request's id */
    FRAME_NOTIFY = 16,    /* the put before it is complete; total: a value of the application's */
    FRAME_RECALL = 17,    /* the receiver wants credits back; total: how many may be kept */
    FRAME_RETURN = 18,    /* here they are; total: how many */
    FRAME_AGAIN = 19, /* an RTS whose connection was lost: where the message is to be found now */
    FRAME_SWITCH =
        20, /* the sender posts no numbered frame over this connection any more: on over the other */
    FRAME_MOVE = 21, /* a listener's session is to move: its dialer is asked for a connection */
    FRAME_TYPES
};

#define FRAME_FIRST 1u
#define FRAME_LAST 2u
#define FRAME_RESERVED 4u /* takes the room a request brought for its reply, and no credit */
#define FRAME_ASKS 8u     /* numbered, with RESUME: the sender waits for the acknowledgement */

#define FRAME_BIT(type) (1u << (type))
/* Numbered by `sequence`, delivered in order. */
#define FRAME_NUMBERED                                                                             \
    (FRAME_BIT(FRAME_DATA) | FRAME_BIT(FRAME_FRAG) | FRAME_BIT(FRAME_REQUEST) |                    \
     FRAME_BIT(FRAME_REPLY) | FRAME_BIT(FRAME_COALESCED) | FRAME_BIT(FRAME_RTS) |                  \
     FRAME_BIT(FRAME_NOTIFY))
/* Taken when they arrive, whatever waits before them. (BYE is in order too, and has no number.) */
#define FRAME_CONTROLS                                                                             \
    (FRAME_BIT(FRAME_CREDIT) | FRAME_BIT(FRAME_ALIVE) | FRAME_BIT(FRAME_RTR) |                     \
     FRAME_BIT(FRAME_ATS) | FRAME_BIT(FRAME_CANCEL) | FRAME_BIT(FRAME_RECALL) |                    \
     FRAME_BIT(FRAME_RETURN) | FRAME_BIT(FRAME_AGAIN) | FRAME_BIT(FRAME_SWITCH) |                  \
     FRAME_BIT(FRAME_MOVE))

#define COALESCE_ITEM_BYTES 16u /* in front of each message of a COALESCED frame */
#define FRAME_WHOLE_BYTES 8u /* in front of the first piece of a request or reply: bytes in all */
#define FRAME_RTS_BYTES 40u  /* payload of RTS, AGAIN */
#define FRAME_RTR_BYTES 24u

struct frame {
    uint8_t type;
    uint8_t flags;
    uint16_t credits;  /* receives posted again since the sender's last frame */
    uint32_t sequence; /* numbered: one more than the last of these; others: that of the last */
    uint32_t ack;      /* sequence of the last numbered frame the sender received */
    uint32_t length;   /* payload bytes of this frame */
    uint64_t total;    /* first FRAG, RTS: bytes of the whole message; others: by type, or 0 */
};
_Static_assert(sizeof(struct frame) == FRAME_BYTES, "frame header layout");

static inline void frame_put(uint8_t *at, const struct frame *f) {
    uint64_t *word = (uint64_t *)(void *)at;
    word[0] = htole64((uint64_t)f->type | (uint64_t)f->flags << 8 | (uint64_t)f->credits << 16 |
                      (uint64_t)f->sequence << 32);
    word[1] = htole64((uint64_t)f->ack | (uint64_t)f->length << 32);
    word[2] = htole64(f->total);
}

/* Atomic loads, because each word must be read exactly once even if the compiler knew better. */
static inline struct frame frame_get(const uint8_t *at) {
    const uint64_t *word = (const uint64_t *)(const void *)at;
    uint64_t a = le64toh(__atomic_load_n(&word[0], __ATOMIC_RELAXED));
    uint64_t b = le64toh(__atomic_load_n(&word[1], __ATOMIC_RELAXED));
    uint64_t c = le64toh(__atomic_load_n(&word[2], __ATOMIC_RELAXED));
    return (struct frame){
        .type = (uint8_t)a,
        .flags = (uint8_t)(a >> 8),
        .credits = (uint16_t)(a >> 16),
        .sequence = (uint32_t)(a >> 32),
        .ack = (uint32_t)b,
        .length = (uint32_t)(b >> 32),
        .total = c,
    };
}

/* NULL, or what is wrong with a frame of this type, DATA excepted. */
const char *frame_wrong(const struct frame *f);

#endif
