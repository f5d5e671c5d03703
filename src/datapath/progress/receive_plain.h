/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * receive_plain.h - the path of nearly every completion: a plain message of a session that has nothing queued or held,
 * with room for its event. From the completion to the event in one pass.
 *
 * A session's `plain_rx` says that this path may be used: receive_completed() sets it when it finds that so, and
 * session_disturb() clears it when that changes.
 *
 * Owner: the loop's thread. Everything read from a frame is hostile: it is read once, and the copy is checked.
 */
#ifndef DATAPATH_PROGRESS_RECEIVE_PLAIN_H
#define DATAPATH_PROGRESS_RECEIVE_PLAIN_H

#include <endian.h>

#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/loop/loop.h"
#include "datapath/rx/recv_queue.h"

/* Messages received on this path, to be added to the totals. */
struct receive_plain {
    unsigned count;
    uint64_t bytes;
};

static inline void receive_plain_count(struct sluice_loop *l, const struct receive_plain *sum) {
    l->totals.frames_received += sum->count;
    l->totals.messages_received += sum->count;
    l->totals.bytes_received += sum->bytes;
    l->totals_moved = true;
}

/* receive_plain() of a session whose frames are acknowledged: that is noted, too. */
bool receive_plain_acked(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
                         const struct ibv_wc *wc);

/* Calls the session's handler; its loan is the last. */
void receive_plain_handled(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                           uint32_t length);

/* Whether its header is that of the next plain message, which brought a credit; then it is taken. */
static inline bool receive_plain_header(struct connection *c, const struct sluice_msg *msg,
                                        uint32_t byte_len, uint32_t *length) {
    const uint64_t *word = (const uint64_t *)(const void *)(msg->data - FRAME_BYTES);
    uint64_t a = le64toh(__atomic_load_n(&word[0], __ATOMIC_RELAXED));
    uint64_t b = le64toh(__atomic_load_n(&word[1], __ATOMIC_RELAXED));
    uint64_t d = le64toh(__atomic_load_n(&word[2], __ATOMIC_RELAXED));
    uint32_t ack = (uint32_t)b, credits = c->tx.credits + ((uint32_t)a >> 16);
    uint32_t sequence = c->rx.sequence + 1, granted = c->rx.granted - 1;
    *length = (uint32_t)(b >> 32);
    if (unlikely((a & ~(uint64_t)0xffff0000) != (FRAME_DATA | (uint64_t)sequence << 32) || d != 0 ||
                 (uint64_t)*length + FRAME_BYTES != byte_len || *length > c->rx.payload_max ||
                 credits > c->tx.credits_max || ack - c->tx.acked > c->tx.sequence - c->tx.acked ||
                 (int32_t)granted < 0 || granted < c->credits.low))
        return false;
    c->rx.queue->posted--;
    c->rx.granted = granted;
    c->rx.sequence = sequence;
    c->tx.acked = ack;
    c->tx.credits = credits;
    return true;
}

/* The completion at l->wc_next, of this message and connection. False: nothing happened. as: its SESSION_RX_... */
static inline __attribute__((always_inline)) bool
receive_plain(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
              const struct ibv_wc *wc, uint8_t as, struct receive_plain *sum) {
    struct session *s = c->session;
    uint32_t length;
    if (unlikely(((uint32_t)wc->status | ((uint32_t)wc->opcode ^ IBV_WC_RECV)) != 0 ||
                 s->plain_rx != as || loop_is_closing(l) ||
                 (s->handler ? l->defer_events
                             : l->out_count >= l->out_max || l->loan_count >= LOOP_LOANS_MAX) ||
                 !receive_plain_header(c, msg, wc->byte_len, &length)))
        return false;
    ASSERT(session_receives_plain(s));
    l->wc_next++;
    sum->count++;
    sum->bytes += length;
    msg->size = length;
    loop_loan_begin(l, msg);
    l->loan_count++;
    if (unlikely(s->handler != NULL))
        receive_plain_handled(l, s, msg, length);
    else
        event_fill(s, msg, SLUICE_MESSAGE, length, &l->out[l->out_count++]);
    return true;
}

#endif
