/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tx.h - the sending end of a stream: messages to frames, many of them for one system call.
 *
 * A batch of frames is a list of pieces: headers, check values and small payload lie beside each other here, large
 * payload stays where it is. It is sent in as many parts as the socket likes, and begun anew when all of it was taken. A
 * message that does not fit goes on in the next.
 *
 * Positions count the bytes of the stream: a message is done with when `sent` has come to its end. Until then its payload
 * may not change, or its check value is wrong; but for one of up to IWARP_TX_COPY bytes that fits one frame, which
 * is copied when it begins, and one of which it is said that it may change: that is copied frame by frame, in shorter
 * segments, and the check value is the copy's. Without check values none needs to be.
 *
 * Owner: one thread at a time. Nothing here comes from the peer.
 */
#ifndef SOFT_IWARP_TX_H
#define SOFT_IWARP_TX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "soft/iwarp/ddp.h"
#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/rdmap.h"
#include "soft/iwarp/terminate.h"

/* In frames and not sent, when one more is made: what check values were computed of is copied while a cache has it. */
#define IWARP_TX_BYTES (256u << 10)
#define IWARP_TX_FRAMES 64u   /* of a batch */
#define IWARP_TX_PIECES 32u   /* of a message's payload */
#define IWARP_TX_IOV 256u     /* of a batch */
#define IWARP_TX_SIDE 16384u  /* headers, check values and what is copied of a batch */
#define IWARP_TX_LENT 131072u /* the same, where much is copied */
#define IWARP_TX_COPY 256u
/* A frame without its payload, at most. */
#define IWARP_TX_AROUND (IWARP_LENGTH_BYTES + IWARP_HEADER_MAX + IWARP_PAD_MAX + IWARP_CRC_BYTES)
/*
 * The payload of a segment that is copied, at most: two such fit a batch. With what is lent eight, which the peer sums as a whole
 * before it copies them.
 */
#define IWARP_TX_COPY_SEGMENT (IWARP_TX_SIDE / 2 - IWARP_TX_AROUND)
#define IWARP_TX_LENT_SEGMENT (IWARP_TX_LENT / 8 - IWARP_TX_AROUND)

struct iwarp_tx_message {
    uint8_t opcode;
    uint32_t
        stag; /* tagged: the target; one that invalidates: what; SEND with immediate data: that */
    uint64_t offset; /* tagged */
    /* Of requests, responses and immediate data what rdmap.h makes of them. */
    const struct iovec *piece;
    unsigned pieces;
    bool changing; /* the payload may change at any time, and be sent as it then is */
};

struct iwarp_tx {
    bool crc;
    bool ended;      /* by a Terminate: nothing follows */
    bool corrupt;    /* a fault plan's: a byte of the next frame changes behind its check value */
    unsigned mulpdu; /* of messages that begin from now on */
    uint64_t framed, sent; /* positions: the end of what is in frames, of what the socket took */
    uint32_t msn[IWARP_QUEUES]; /* the next of each */
    /* The message that is not in frames as a whole. */
    bool open, copied;
    unsigned segment_max, at, pieces;
    uint32_t left;        /* of its payload */
    struct iwarp_ddp ddp; /* of the next segment */
    struct iovec piece[IWARP_TX_PIECES];
    uint8_t terminate[IWARP_TERMINATE_MAX];
    /* The batch. */
    unsigned frames, iov_at, iov_count;
    size_t side_bytes; /* of `side`, or of what is lent */
    uint8_t *lent;     /* NULL: nothing is */
    struct iovec iov[IWARP_TX_IOV];
    uint8_t side[IWARP_TX_SIDE];
};

void iwarp_tx_init(struct iwarp_tx *tx, bool crc, unsigned mulpdu);
/*
 * 0: begun, and *end is its position; the list of pieces is not needed any more. EAGAIN: what began before is not in
 * frames yet, or the batch is full: send. EINVAL: it has too many pieces or 4 GiB and more. EPIPE: a Terminate was sent.
 */
int iwarp_tx_begin(struct iwarp_tx *tx, const struct iwarp_tx_message *message, uint64_t *end);
/* The last message: behind the frames that there are; what is left of an open message is dropped. */
void iwarp_tx_terminate(struct iwarp_tx *tx, const struct iwarp_terminate *terminate);
/*
 * IWARP_TX_LENT bytes to copy to, so that one system call sends more of what may change. Then nothing was lent yet, and no message is
 * open. They come back when all was sent, or when it is not to be sent any more.
 */
void iwarp_tx_lend(struct iwarp_tx *tx, uint8_t *bytes);
/* Nothing of it is in use. */
static inline bool iwarp_tx_is_sent(const struct iwarp_tx *tx) {
    return !tx->open && tx->iov_at == tx->iov_count;
}
/* NULL: nothing was lent. What was not sent is lost, and nothing follows. */
uint8_t *iwarp_tx_take_back(struct iwarp_tx *tx);
/* What is to be sent next. Returns how many pieces; 0: nothing. */
unsigned iwarp_tx_next(struct iwarp_tx *tx, const struct iovec **iov);
/* So much of it was. */
void iwarp_tx_sent(struct iwarp_tx *tx, size_t bytes);
/* Of this memory something is still to be sent. A stream whose payload goes away in the middle of a frame is to end. */
bool iwarp_tx_uses(const struct iwarp_tx *tx, const void *from, size_t bytes);

#endif
