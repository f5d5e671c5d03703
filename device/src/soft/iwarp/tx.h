/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tx.h - the sending end of a stream: puts messages into frames, many of them for one system call.
 *
 * A batch of frames is a list of pieces: headers, check values and small payload lie beside each other in `side`, large
 * payload stays in the application's memory. The socket takes a batch in any number of parts; the next batch begins
 * when all of it was taken. A message that does not fit continues in the next batch.
 *
 * Positions count the bytes of the stream: a message is sent when `sent` has reached its end. Until then its payload
 * may not change, or the check value is wrong. There are two exceptions: a message of up to IWARP_TX_COPY bytes that
 * fits one frame is copied when it begins, and a message marked as `changing` is copied frame by frame, in shorter
 * segments, with the check value of the copy. Without check values `changing` payload is only copied if it is
 * `unpinned`.
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

/*
 * No frame is added to so many unsent bytes. With check values the kernel so copies payload that a cache still has from the
 * summing; without them a call is worth more. Large messages come in multiples of 256 KiB: so the end of one, and what asks for
 * its acknowledgement, are no system call of their own.
 */
#define IWARP_TX_BYTES ((256u << 10) + 4096u)
#define IWARP_TX_BYTES_UNSUMMED ((512u << 10) + 4096u)
#define IWARP_TX_FRAMES 64u   /* of a batch */
#define IWARP_TX_PIECES 32u   /* of a message's payload */
#define IWARP_TX_IOV 256u     /* of a batch */
#define IWARP_TX_SIDE 16384u  /* headers, check values and copied payload of a batch */
#define IWARP_TX_LENT 131072u /* the same, for long payload that is copied */
#define IWARP_TX_COPY 256u
/* The bytes of a frame around its payload, at most. */
#define IWARP_TX_AROUND (IWARP_LENGTH_BYTES + IWARP_HEADER_MAX + IWARP_PAD_MAX + IWARP_CRC_BYTES)
/*
 * The payload of a copied segment, at most: two such segments fit a batch; with lent memory eight, each of which the
 * peer sums as a whole before it copies it.
 */
#define IWARP_TX_COPY_SEGMENT (IWARP_TX_SIDE / 2 - IWARP_TX_AROUND)
#define IWARP_TX_LENT_SEGMENT (IWARP_TX_LENT / 8 - IWARP_TX_AROUND)

struct iwarp_tx_message {
    uint8_t opcode;
    uint32_t stag;   /* tagged: the target; SEND: the STag to invalidate, or the immediate data */
    uint64_t offset; /* tagged */
    /* The payload; for requests, responses and immediate data the bytes that rdmap.h makes. */
    const struct iovec *piece;
    unsigned pieces;
    bool changing; /* the payload may change at any time, and either content may be sent */
    bool unpinned; /* and may be unmapped: it is copied, so that no frame ends in the middle */
};

struct iwarp_tx {
    bool crc;
    bool ended;      /* no message follows: a Terminate was made, or lent memory left unsent */
    bool corrupt;    /* fault plan: a byte of the next frame changes behind its check value */
    unsigned mulpdu; /* of messages that begin from now on */
    uint64_t framed, sent;      /* positions: the end of the last frame, of what the socket took */
    uint32_t msn[IWARP_QUEUES]; /* the next of each queue */
    /* The open message: a part of it is not in frames yet. */
    bool open, copied, guarded;
    bool gone; /* the memory of an `unpinned` payload is not there: its message is cut off */
    unsigned segment_max, at, pieces;
    uint32_t left;        /* of its payload */
    struct iwarp_ddp ddp; /* of the next segment */
    struct iovec piece[IWARP_TX_PIECES];
    uint8_t terminate[IWARP_TERMINATE_MAX];
    /* The batch. */
    unsigned frames, iov_at, iov_count;
    size_t side_bytes; /* in use of `side`, or of `lent` */
    uint8_t *lent;     /* in place of `side`; NULL: none */
    struct iovec iov[IWARP_TX_IOV];
    uint8_t side[IWARP_TX_SIDE];
};

void iwarp_tx_init(struct iwarp_tx *tx, bool crc, unsigned mulpdu);
/*
 * 0: the message is begun, and *end is the position of its end; the list of pieces may go. EAGAIN: the message before
 * is still open, or the batch is full: send first. EINVAL: too many pieces, or 4 GiB and more. EPIPE: tx->ended.
 * EFAULT: tx->gone.
 */
int iwarp_tx_begin(struct iwarp_tx *tx, const struct iwarp_tx_message *message, uint64_t *end);
/* A whole SEND of bytes that lie in one piece, which it copies. False: nothing happened; iwarp_tx_begin() knows more. */
bool iwarp_tx_small(struct iwarp_tx *tx, const void *from, uint32_t bytes);
/* Adds a Terminate as the last message, behind the frames of the batch; the rest of an open message is dropped. */
void iwarp_tx_terminate(struct iwarp_tx *tx, const struct iwarp_terminate *terminate);
/*
 * Lends IWARP_TX_LENT bytes to copy `changing` payload to, so that one system call sends more of it. Only while none
 * are lent and no message is open. The caller takes them back when all was sent, or when the stream is given up.
 */
void iwarp_tx_lend(struct iwarp_tx *tx, uint8_t *bytes);
/* The socket took all: no memory of the batch is in use. */
static inline bool iwarp_tx_is_sent(const struct iwarp_tx *tx) {
    return !tx->open && tx->iov_at == tx->iov_count;
}
/* What is not sent yet is lost, and the stream takes no more messages: its memory may not be read any more. */
void iwarp_tx_drop(struct iwarp_tx *tx);
/* NULL: none was lent. If bytes are still unsent, they are lost and the stream takes no more messages. */
uint8_t *iwarp_tx_take_back(struct iwarp_tx *tx);
/* The pieces to send next. Returns how many; 0: none. */
unsigned iwarp_tx_next(struct iwarp_tx *tx, const struct iovec **iov);
/* The socket took so many bytes of them. */
void iwarp_tx_sent(struct iwarp_tx *tx, size_t bytes);
/* Bytes of this memory are still to be sent. If the memory goes away in the middle of a frame, the stream must end. */
bool iwarp_tx_uses(const struct iwarp_tx *tx, const void *from, size_t bytes);

#endif
