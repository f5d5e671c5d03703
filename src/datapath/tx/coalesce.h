/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * coalesce.h - the layout of an item of a COALESCED frame, and how one is read from a frame. docs/protocol.md
 * holds the byte table.
 *
 * The payload of a coalesced frame is hostile and may change while it is looked at: coalesce_item_get() reads
 * everything once. Pure functions, any thread.
 */
#ifndef DATAPATH_TX_COALESCE_H
#define DATAPATH_TX_COALESCE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/wire/frame.h"
#include "datapath/tx/post.h"

struct coalesce_item {
    uint32_t type;   /* FRAME_DATA, FRAME_REQUEST, FRAME_REPLY */
    uint32_t length; /* bytes of the message */
    uint32_t at;     /* where they begin in the payload */
    uint32_t next;   /* where the next item begins; the payload's length: this was the last */
    uint64_t total;
};

/* Where the item behind one that ends here begins. */
static inline uint32_t coalesce_round(uint32_t end) {
    return (end + 7) & ~7u;
}

/*
 * The item that begins at `at`, a multiple of 8 below `length`, of a payload of `length` bytes that is
 * aligned to 8. reserved: the frame has that flag, so that only replies may be in it. NULL, or what
 * is wrong; then *out is not to be used.
 */
static inline const char *coalesce_item_get(struct coalesce_item *out, const uint8_t *payload,
                                            uint32_t length, uint32_t at, bool reserved) {
    if (length - at < COALESCE_ITEM_BYTES)
        return "a coalesced frame that ends within an item";
    const uint64_t *word = (const uint64_t *)(const void *)(payload + at);
    uint64_t head = le64toh(__atomic_load_n(&word[0], __ATOMIC_RELAXED));
    out->total = le64toh(__atomic_load_n(&word[1], __ATOMIC_RELAXED));
    out->type = (uint32_t)head; /* with the three bytes that are 0 */
    out->length = (uint32_t)(head >> 32);
    out->at = at + COALESCE_ITEM_BYTES;
    if (out->length > length - out->at)
        return "an item longer than its coalesced frame";
    if (out->type == FRAME_DATA) {
        if (out->total != 0 || reserved)
            return "a coalesced message with content that it does not have";
    } else if (out->type == FRAME_REQUEST) {
        if (reserved)
            return "a request in a coalesced frame of replies";
    } else if (out->type != FRAME_REPLY) {
        return "an item of unknown type in a coalesced frame";
    }
    uint32_t end = out->at + out->length;
    out->next = end;
    if (end == length)
        return NULL;
    out->next = coalesce_round(end);
    if (out->next >= length)
        return "a coalesced frame that is longer than its items";
    if (out->next != end) {
        uint64_t last = le64toh(__atomic_load_n(&word[2 + out->length / 8], __ATOMIC_RELAXED));
        if (last >> (end & 7) * 8)
            return "a coalesced frame with bytes between its items";
    }
    return NULL;
}

/* Sets the bounds of what goes into one, of a session that was agreed upon. */
void coalesce_begin(struct session *s);

/*
 * Sending: takes what fits one frame off the head of this queue; room and, unless all of it are
 * replies, a credit were checked. NOTHING: no entry for a request.
 */
enum build_result coalesce_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                 struct msg_queue *queue);
/* An entry of the send queue that was a coalesced frame. msg: the first of those that were to hear of it. */
void coalesce_completed(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                        uint64_t bytes, sluice_status status);
/*
 * A frame at the end of a queue of the session, to which messages are added as they are sent; NULL: no memory. It takes
 * COALESCE_OPEN_BYTES of payload, and no more than a frame does.
 */
#define COALESCE_OPEN_BYTES 8192u
struct sluice_msg *coalesce_open(struct sluice_loop *l, struct session *s, struct msg_queue *queue);
/* It ends before it was posted: the requests in it. */
void coalesce_unsent(struct sluice_loop *l, struct session *s, const struct sluice_msg *frame);

/* Whether this message may share a frame. */
static inline bool coalesce_accepts(const struct session *s, const struct sluice_msg *msg) {
    return msg->size < s->tx.coalesce_bound && msg->kind <= MSG_REPLY;
}

#endif
