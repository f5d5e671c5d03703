/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tx.c - puts messages into frames, in batches.
 *
 * Owner: one thread at a time. The pieces of `iov` from iov_at on are not sent yet; bytes of `side` that follow each
 * other are one piece.
 */
#include "soft/iwarp/tx.h"

#include <errno.h>
#include <string.h>

#include "common/guarded_copy.h"
#include "soft/iwarp/crc32c.h"
#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/wire.h"

void iwarp_tx_init(struct iwarp_tx *tx, bool crc, unsigned mulpdu) {
    memset(tx, 0, offsetof(struct iwarp_tx, iov)); /* the rest stays untouched until used */
    tx->crc = crc;
    tx->mulpdu = mulpdu;
    for (unsigned i = 0; i < IWARP_QUEUES; i++)
        tx->msn[i] = 1;
}

/* ---- the batch ------------------------------------------------------------------------------------------- */

#define COPY_AT_ONCE 8192u /* copied, then summed while the first-level cache still has the copy */

static size_t side_room(const struct iwarp_tx *tx) {
    return (tx->lent ? IWARP_TX_LENT : IWARP_TX_SIDE) - tx->side_bytes;
}

static unsigned copy_segment(const struct iwarp_tx *tx) {
    return tx->lent ? IWARP_TX_LENT_SEGMENT : IWARP_TX_COPY_SEGMENT;
}

static uint8_t *side_at(struct iwarp_tx *tx) {
    return (tx->lent ? tx->lent : tx->side) + tx->side_bytes;
}

static uint64_t bytes_max(const struct iwarp_tx *tx) {
    return tx->crc ? IWARP_TX_BYTES : IWARP_TX_BYTES_UNSUMMED;
}

/* For one more frame, with so many pieces that are not copied, or so many bytes that are. */
static bool has_room(const struct iwarp_tx *tx, unsigned pieces, uint64_t copy) {
    copy = copy < IWARP_TX_COPY ? IWARP_TX_COPY : copy;
    copy = copy < copy_segment(tx) ? copy : copy_segment(tx);
    return tx->frames < IWARP_TX_FRAMES && tx->framed - tx->sent < bytes_max(tx) &&
           tx->iov_count + pieces + 2 <= IWARP_TX_IOV && side_room(tx) >= IWARP_TX_AROUND + copy;
}

static void add_piece(struct iwarp_tx *tx, const void *at, size_t bytes) {
    tx->iov[tx->iov_count++] = (struct iovec){(void *)(uintptr_t)at, bytes};
}

/* Adds so many bytes, which the caller wrote at side_at(), to the batch. */
static void add_side(struct iwarp_tx *tx, size_t bytes) {
    uint8_t *at = side_at(tx);
    struct iovec *last = tx->iov_count > tx->iov_at ? &tx->iov[tx->iov_count - 1] : NULL;
    tx->side_bytes += bytes;
    if (last && (uint8_t *)last->iov_base + last->iov_len == at)
        last->iov_len += bytes;
    else
        add_piece(tx, at, bytes);
}

/* Into the batch. */
static bool copy_to_side(struct iwarp_tx *tx, uint8_t *to, const void *from, size_t bytes) {
    if (__builtin_expect(!tx->guarded, 1))
        memcpy(to, from, bytes);
    else if (!copy_guarded_from(to, from, bytes))
        tx->gone = true;
    return !tx->gone;
}

static void consume(struct iwarp_tx *tx, size_t bytes) {
    struct iovec *piece = &tx->piece[tx->at];
    piece->iov_base = (uint8_t *)piece->iov_base + bytes;
    piece->iov_len -= bytes;
    if (piece->iov_len == 0)
        tx->at++;
}

/* A fault: sums the first byte of payload as it is, and sends another. */
static uint32_t add_corrupt(struct iwarp_tx *tx, uint32_t crc) {
    uint8_t *to = side_at(tx);
    memcpy(to, tx->piece[tx->at].iov_base, 1);
    if (tx->crc)
        crc = iwarp_crc32c(crc, to, 1);
    *to ^= 1;
    add_side(tx, 1);
    consume(tx, 1);
    tx->corrupt = false;
    return crc;
}

/* Returns the check value with the payload: of the copy, if there is one, as the original may have changed since. */
static uint32_t add_payload(struct iwarp_tx *tx, size_t bytes, uint32_t crc) {
    bool copy = tx->copied || bytes <= IWARP_TX_COPY;
    if (__builtin_expect(tx->corrupt && bytes > 0, 0)) {
        crc = add_corrupt(tx, crc);
        bytes--;
    }
    while (bytes > 0) {
        const struct iovec *piece = &tx->piece[tx->at];
        size_t n = piece->iov_len < bytes ? piece->iov_len : bytes;
        const uint8_t *from = piece->iov_base;
        if (copy) {
            n = n < COPY_AT_ONCE ? n : COPY_AT_ONCE;
            if (!copy_to_side(tx, side_at(tx), from, n))
                return crc;
            from = side_at(tx);
            add_side(tx, n);
        } else {
            add_piece(tx, from, n);
        }
        if (tx->crc)
            crc = iwarp_crc32c(crc, from, n);
        consume(tx, n);
        bytes -= n;
    }
    return crc;
}

/* Pad, check value, and the whole frame of that segment into the batch: it lies at side_at(), up to `end`. */
static void end_small(struct iwarp_tx *tx, uint8_t *end, unsigned segment) {
    uint8_t *head = side_at(tx);
    memset(end, 0, IWARP_PAD_MAX);
    end += iwarp_pad(segment);
    iwarp_put16(head, (uint16_t)segment);
    iwarp_crc32c_put(end, tx->crc ? iwarp_crc32c(0, head, (size_t)(end - head)) : 0);
    add_side(tx, iwarp_fpdu_bytes(segment));
    tx->frames++;
    tx->framed += iwarp_fpdu_bytes(segment);
}

/* The last segment of a message, with so little payload that it is copied: the frame is made and summed in one piece. */
static void add_small(struct iwarp_tx *tx) {
    uint8_t *to = side_at(tx) + IWARP_LENGTH_BYTES;
    tx->ddp.last = true;
    unsigned header = (unsigned)iwarp_ddp_put(to, &tx->ddp);
    to += header;
    for (; tx->at < tx->pieces; tx->at++) {
        if (!copy_to_side(tx, to, tx->piece[tx->at].iov_base, tx->piece[tx->at].iov_len)) {
            tx->open = false;
            return;
        }
        to += tx->piece[tx->at].iov_len;
    }
    end_small(tx, to, header + tx->left);
    tx->left = 0;
    tx->open = false;
}

struct batch_end {
    unsigned pieces;
    size_t last, side; /* bytes of the last piece, of the side */
};

static struct batch_end batch_end(const struct iwarp_tx *tx) {
    size_t last = tx->iov_count > 0 ? tx->iov[tx->iov_count - 1].iov_len : 0;
    return (struct batch_end){tx->iov_count, last, tx->side_bytes};
}

/* The batch ends where it ended before the frame that has no payload, and so does the message. */
static void drop_behind(struct iwarp_tx *tx, const struct batch_end *end) {
    tx->iov_count = end->pieces;
    if (end->pieces > 0)
        tx->iov[end->pieces - 1].iov_len = end->last;
    tx->side_bytes = end->side;
    tx->open = false;
}

/* The next segment of the open message. */
static void add_frame(struct iwarp_tx *tx) {
    uint8_t *head = side_at(tx);
    struct batch_end before = batch_end(tx);
    uint32_t n = tx->left < tx->segment_max ? tx->left : tx->segment_max;
    if (n == tx->left && n <= IWARP_TX_COPY && !tx->corrupt) {
        add_small(tx);
        return;
    }
    tx->ddp.last = n == tx->left;
    size_t header = iwarp_ddp_put(head + IWARP_LENGTH_BYTES, &tx->ddp);
    unsigned segment = (unsigned)header + n, pad = iwarp_pad(segment);
    iwarp_put16(head, (uint16_t)segment);
    uint32_t crc = tx->crc ? iwarp_crc32c(0, head, IWARP_LENGTH_BYTES + header) : 0;
    add_side(tx, IWARP_LENGTH_BYTES + header);
    crc = add_payload(tx, n, crc);
    if (__builtin_expect(tx->gone, 0)) {
        drop_behind(tx, &before);
        return;
    }
    uint8_t *tail = side_at(tx);
    memset(tail, 0, IWARP_PAD_MAX);
    if (tx->crc)
        crc = iwarp_crc32c(crc, tail, pad);
    crc ^= tx->corrupt; /* without payload the fault changes the check value */
    tx->corrupt = false;
    iwarp_crc32c_put(tail + pad, crc);
    add_side(tx, pad + IWARP_CRC_BYTES);
    tx->frames++;
    tx->framed += iwarp_fpdu_bytes(segment);
    tx->left -= n;
    tx->ddp.mo += n;
    tx->ddp.offset += n;
    tx->open = !tx->ddp.last;
}

static void fill(struct iwarp_tx *tx) {
    while (tx->open && has_room(tx, tx->pieces - tx->at, tx->copied ? tx->left : 0))
        add_frame(tx);
}

/* ---- messages -------------------------------------------------------------------------------------------- */

/* The bytes of the stream that a message takes. */
static uint64_t message_bytes(uint32_t payload, unsigned segment_max, unsigned header) {
    uint64_t full = payload > segment_max ? (payload - 1) / segment_max : 0;
    unsigned rest = (unsigned)(payload - full * segment_max);
    return full * iwarp_fpdu_bytes(segment_max + header) + iwarp_fpdu_bytes(rest + header);
}

static void open_message(struct iwarp_tx *tx, const struct iwarp_tx_message *message,
                         uint32_t bytes) {
    bool tagged = iwarp_opcode_tagged(message->opcode);
    unsigned header = tagged ? IWARP_TAGGED_BYTES : IWARP_UNTAGGED_BYTES;
    tx->ddp = (struct iwarp_ddp){.opcode = message->opcode, .stag = message->stag};
    if (tagged) {
        tx->ddp.offset = message->offset;
    } else {
        tx->ddp.queue = iwarp_opcode_queue(message->opcode);
        tx->ddp.msn = tx->msn[tx->ddp.queue]++;
    }
    tx->segment_max = tx->mulpdu - header;
    tx->copied = message->changing && (tx->crc || message->unpinned);
    tx->guarded = message->unpinned;
    if (tx->copied && tx->segment_max > copy_segment(tx))
        tx->segment_max = copy_segment(tx);
    tx->at = tx->pieces = 0;
    for (unsigned i = 0; i < message->pieces; i++)
        if (message->piece[i].iov_len > 0)
            tx->piece[tx->pieces++] = message->piece[i];
    tx->left = bytes;
    tx->open = true;
}

int iwarp_tx_begin(struct iwarp_tx *tx, const struct iwarp_tx_message *message, uint64_t *end) {
    uint64_t bytes = 0;
    if (message->pieces > IWARP_TX_PIECES)
        return EINVAL;
    for (unsigned i = 0; i < message->pieces; i++) {
        if (message->piece[i].iov_len > UINT32_MAX - bytes)
            return EINVAL;
        bytes += message->piece[i].iov_len;
    }
    if (tx->ended)
        return EPIPE;
    if (tx->open || !has_room(tx, message->pieces, message->changing ? bytes : 0))
        return EAGAIN;
    open_message(tx, message, (uint32_t)bytes);
    unsigned header =
        iwarp_opcode_tagged(message->opcode) ? IWARP_TAGGED_BYTES : IWARP_UNTAGGED_BYTES;
    *end = tx->framed + message_bytes((uint32_t)bytes, tx->segment_max, header);
    add_frame(tx);
    if (tx->open)
        fill(tx);
    return tx->gone ? EFAULT : 0;
}

bool iwarp_tx_small(struct iwarp_tx *tx, const void *from, uint32_t bytes) {
    if (tx->open || tx->ended || tx->corrupt || bytes > IWARP_TX_COPY ||
        bytes > tx->mulpdu - IWARP_UNTAGGED_BYTES || !has_room(tx, 1, 0))
        return false;
    uint8_t *to = side_at(tx) + IWARP_LENGTH_BYTES;
    struct iwarp_ddp ddp = {.opcode = IWARP_SEND,
                            .last = true,
                            .queue = IWARP_QUEUE_SEND,
                            .msn = tx->msn[IWARP_QUEUE_SEND]++};
    to += iwarp_ddp_put(to, &ddp);
    if (bytes > 0)
        memcpy(to, from, bytes);
    end_small(tx, to + bytes, IWARP_UNTAGGED_BYTES + bytes);
    return true;
}

void iwarp_tx_terminate(struct iwarp_tx *tx, const struct iwarp_terminate *terminate) {
    if (tx->ended)
        return;
    struct iovec piece = {tx->terminate, iwarp_terminate_put(tx->terminate, terminate)};
    struct iwarp_tx_message message = {.opcode = IWARP_TERMINATE, .piece = &piece, .pieces = 1};
    open_message(tx, &message, (uint32_t)piece.iov_len);
    tx->ended = true;
    fill(tx);
}

/* ---- lent memory ----------------------------------------------------------------------------------------- */

/* Frames that were made before stay in `side`. */
void iwarp_tx_lend(struct iwarp_tx *tx, uint8_t *bytes) {
    tx->lent = bytes;
    tx->side_bytes = 0;
}

void iwarp_tx_drop(struct iwarp_tx *tx) {
    tx->iov_at = tx->iov_count = tx->frames = 0;
    tx->framed = tx->sent;
    tx->open = false;
    tx->ended = true;
}

uint8_t *iwarp_tx_take_back(struct iwarp_tx *tx) {
    uint8_t *bytes = tx->lent;
    if (bytes && !iwarp_tx_is_sent(tx))
        iwarp_tx_drop(tx);
    if (bytes)
        tx->side_bytes = 0;
    tx->lent = NULL;
    return bytes;
}

/* ---- sending --------------------------------------------------------------------------------------------- */

unsigned iwarp_tx_next(struct iwarp_tx *tx, const struct iovec **iov) {
    if (tx->open)
        fill(tx);
    *iov = &tx->iov[tx->iov_at];
    return tx->iov_count - tx->iov_at;
}

void iwarp_tx_sent(struct iwarp_tx *tx, size_t bytes) {
    tx->sent += bytes;
    while (bytes > 0 && tx->iov_at < tx->iov_count) {
        struct iovec *piece = &tx->iov[tx->iov_at];
        size_t n = piece->iov_len < bytes ? piece->iov_len : bytes;
        piece->iov_base = (uint8_t *)piece->iov_base + n;
        piece->iov_len -= n;
        bytes -= n;
        if (piece->iov_len == 0)
            tx->iov_at++;
    }
    if (tx->iov_at == tx->iov_count) {
        tx->iov_at = tx->iov_count = tx->frames = 0;
        tx->side_bytes = 0;
    }
}

static bool overlaps(const struct iovec *piece, unsigned count, uintptr_t start, size_t bytes) {
    for (unsigned i = 0; i < count; i++) {
        uintptr_t at = (uintptr_t)piece[i].iov_base;
        if (at < start + bytes && start < at + piece[i].iov_len)
            return true;
    }
    return false;
}

bool iwarp_tx_uses(const struct iwarp_tx *tx, const void *from, size_t bytes) {
    return overlaps(tx->iov + tx->iov_at, tx->iov_count - tx->iov_at, (uintptr_t)from, bytes) ||
           (tx->open && overlaps(tx->piece + tx->at, tx->pieces - tx->at, (uintptr_t)from, bytes));
}
