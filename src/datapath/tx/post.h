/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * post.h - the pieces of posting that sending one message and flushing a queue share.
 *
 * Owner: the loop's thread.
 */
#ifndef DATAPATH_TX_POST_H
#define DATAPATH_TX_POST_H

#include "core/connection_table.h"
#include "core/wire/frame.h"
#include "datapath/loop/discard.h"
#include "datapath/loop/loop.h"
#include "datapath/loop/upward.h"

#define HEADER_BYTES 64u /* a slot in the ring of headers: a frame header and a short payload */

/* ibv_post_send() on the connection's queue pair. */
static inline int post_wrs(struct connection *c, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    if (unlikely(c->session->node->traits.posts_by_call))
        return uncancelled(ibv_post_send(c->qp, wr, bad));
    return ibv_post_send(c->qp, wr, bad);
}

/* send_control_total() of no total. */
bool send_control(struct sluice_loop *l, struct session *s, enum frame_type type);
/* send_control_total() with a payload, which is copied; false also for want of memory. */
bool send_control_with(struct sluice_loop *l, struct session *s, enum frame_type type,
                       const void *payload, uint32_t bytes);
/* After the QP went to ERR: its completion is the last of this QP's sends. */
bool send_marker(struct sluice_loop *l, struct connection *c);
void send_nothing(struct sluice_loop *l, struct session *s); /* a WRITE of no bytes */

/*
 * Work requests that are posted with one call. The code that builds one takes an entry of the send queue
 * for it, in the same order; room for both was checked (batch->count < l->wr_batch_max, sq_used()).
 */
struct wr_batch {
    unsigned count;
    unsigned frameless; /* of these: no frames */
    bool waited_for;    /* an entry behind the last signalled one is waited for */
    unsigned done_count;
    struct sluice_msg *done[LOOP_WR_BATCH]; /* inline and untagged: free once posted */
};

/* A work request of type SEND with so many sges (in l->send_sge[], filled by the caller). */
struct ibv_send_wr *wr_batch_add(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                 unsigned sges, unsigned flags);
/* Its entry; a frame takes a credit besides: s->tx_credits--. */
struct sq_entry *wr_batch_entry(struct session *s, struct sluice_msg *msg, uint64_t bytes,
                                enum sq_what what);
void wr_batch_begin(struct wr_batch *batch);
/* Posts them, if there are any; the batch is empty afterwards. */
void wr_batch_post(struct sluice_loop *l, struct session *s, struct wr_batch *batch);
/* One in signal_every; batch->waited_for makes the last of the batch signalled. */
void wr_batch_signal(struct session *s, struct wr_batch *batch, struct ibv_send_wr *wr);
/* Registered memory for this entry's header, HEADER_BYTES; NULL: no memory, tried again later. */
uint8_t *wr_batch_header(struct sluice_loop *l, struct session *s, uint32_t *lkey);
/* The work request of a plain message that fits into one frame. */
void wr_batch_whole(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                    struct sluice_msg *msg);
/* The share of the window that the entry at which this message ends gives back. */
uint64_t wr_batch_counted(const struct sluice_msg *msg);
static inline uint32_t sq_used(const struct connection *c) {
    return c->sq.tail - c->sq.head;
}

/* A header gives the peer back what it is owed. */
static inline void post_header_sent(struct connection *c) {
    c->rx.granted += c->rx.unreported;
    c->rx.unreported = 0;
    c->rx.updated = c->rx.sequence;
    c->credits.update_due = false;
}

/* Writes one. */
static inline void post_header(struct connection *c, uint8_t *at, unsigned type, unsigned flags,
                               uint32_t length, uint64_t total) {
    struct frame f = {
        .type = (uint8_t)type,
        .flags = (uint8_t)flags,
        .credits = (uint16_t)c->rx.unreported,
        .sequence = c->tx.sequence,
        .ack = c->rx.sequence,
        .length = length,
        .total = total,
    };
    post_header_sent(c);
    frame_put(at, &f);
}

/* Entries from `from` on never reached the device. */
void post_failed(struct sluice_loop *l, struct session *s, uint32_t from, int error);

#endif
