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
#ifndef DATAPATH_RX_RECEIVE_PLAIN_H
#define DATAPATH_RX_RECEIVE_PLAIN_H

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

static inline bool receive_is_plain(const struct session *s) {
    const struct connection *c = session_connection(s);
    return s->state == SESSION_UP && s->announced && !s->rx.stopped && !s->rx.held.head &&
           !c->handshake && !s->tx.queue.head && !c->credits.returned && !s->rpc.cancels &&
           !c->sq.blocked;
}

/* Calls the session's handler; its loan is the last. */
void receive_plain_handled(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                           uint32_t length);

/* Whether its header is that of the next plain message, which brought a credit; then it is taken. */
static inline bool receive_plain_header(struct session *s, const struct sluice_msg *msg,
                                        uint32_t byte_len, uint32_t *length) {
    const uint64_t *word = (const uint64_t *)(const void *)(msg->data - FRAME_BYTES);
    uint64_t a = le64toh(__atomic_load_n(&word[0], __ATOMIC_RELAXED));
    uint64_t b = le64toh(__atomic_load_n(&word[1], __ATOMIC_RELAXED));
    uint64_t c = le64toh(__atomic_load_n(&word[2], __ATOMIC_RELAXED));
    struct connection *n = session_connection(s);
    uint32_t ack = (uint32_t)b, credits = n->tx.credits + ((uint32_t)a >> 16);
    uint32_t sequence = n->rx.sequence + 1, granted = n->rx.granted - 1;
    *length = (uint32_t)(b >> 32);
    if (unlikely((a & ~(uint64_t)0xffff0000) != (FRAME_DATA | (uint64_t)sequence << 32) || c != 0 ||
                 (uint64_t)*length + FRAME_BYTES != byte_len || *length > n->rx.payload_max ||
                 credits > n->tx.credits_max || ack - n->tx.acked > n->tx.sequence - n->tx.acked ||
                 (int32_t)granted < 0 || granted < n->credits.low))
        return false;
    n->rx.queue->posted--;
    n->rx.granted = granted;
    n->rx.sequence = sequence;
    n->tx.acked = ack;
    n->tx.credits = credits;
    return true;
}

/* The completion at l->wc_next, of this message and session. False: nothing happened. */
static inline __attribute__((always_inline)) bool
receive_plain(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
              const struct ibv_wc *wc, struct receive_plain *sum) {
    uint32_t length;
    if (unlikely(((uint32_t)wc->status | ((uint32_t)wc->opcode ^ IBV_WC_RECV)) != 0 ||
                 !s->plain_rx || loop_is_closing(l) ||
                 (s->handler ? l->defer_events
                             : l->out_count >= l->out_max || l->loan_count >= LOOP_LOANS_MAX) ||
                 !receive_plain_header(s, msg, wc->byte_len, &length)))
        return false;
    ASSERT(receive_is_plain(s));
    l->wc_next++;
    sum->count++;
    sum->bytes += length;
    msg->size = length;
    loop_loan_begin(l, s, msg);
    l->loan_count++;
    if (unlikely(s->handler != NULL))
        receive_plain_handled(l, s, msg, length);
    else
        event_fill(s, msg, SLUICE_MESSAGE, length, &l->out[l->out_count++]);
    return true;
}

#endif
