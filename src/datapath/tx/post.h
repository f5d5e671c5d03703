/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * post.h - the pieces of posting that sending one message and flushing a queue share.
 *
 * Owner: the loop's thread.
 */
#ifndef DATAPATH_TX_POST_H
#define DATAPATH_TX_POST_H

#include "datapath/datapath.h"

#define MSG_FOREIGN (1u << 31) /* in msg->send_flags: accepted from another thread */

/* What a call that sends was given. */
struct send_args {
    uint64_t tag, deadline_ns;
    uint64_t request_id; /* of the request a reply answers */
    uint32_t flags, id;
    uint8_t kind; /* enum msg_kind */
};

/* Takes the caller's options apart: 0 or EINVAL. */
int send_options(struct send_args *args, const sluice_send_options *o);
int iov_send_options(struct send_args *args,
                     const sluice_send_options *o); /* IN_PLACE is allowed */
/* A message of the application's, of any size; any thread. NULL and errno. */
struct sluice_msg *message_get(struct pool *pool, size_t bytes);
/* sluice_send() for every kind of message; any thread. 0: taken. */
int send_submit(sluice_session handle, struct sluice_msg *msg, const struct send_args *args);

/*
 * Work requests that are posted with one call. Whoever builds one takes an entry of the send queue
 * for it, in the same order; room for both was checked (batch->count < l->wr_batch_max, sq_used()).
 */
struct wr_batch {
    unsigned count;
    unsigned frameless; /* of these: no frames */
    bool waited_for;    /* somebody waits for an entry behind the last signalled one */
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
/* The work requests of one message, or some of them: room and, where it needs one, a credit were checked. */
enum build_result wr_batch_message(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                   struct sluice_msg *msg);
/* What the window gets back with the entry at which this message ends. */
uint64_t wr_batch_counted(const struct sluice_msg *msg);
/* The message ends before any of it was posted. */
void finish_unsent(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   sluice_status status);
/* ---- confirm.c: where a completion says only that this side has sent it ------------------------- */

#define CONFIRMS_MAX 4u /* READs of nothing on their way, of one session */

void confirm_init(struct session *s);
/* The peer has named a byte to READ. */
void confirm_begin(struct session *s, uint64_t address, uint32_t rkey);
/* The last entries of the send queue, so many, were posted from l->send_wr[]. */
void confirm_batch(struct sluice_loop *l, struct session *s, unsigned count);
/* Entries were retired: what could not be posted before may be now. */
void confirm_again(struct sluice_loop *l, struct session *s);

#define HEADER_BYTES 64u /* a place in the ring of headers: a frame header and a short payload */

static inline uint32_t sq_used(const struct session *s) {
    return s->sq_tail - s->sq_head;
}

/* Writes a header and with it gives the peer back what it is owed. */
static inline void post_header(struct session *s, uint8_t *at, unsigned type, unsigned flags,
                               uint32_t length, uint64_t total) {
    struct frame f = {
        .type = (uint8_t)type,
        .flags = (uint8_t)flags,
        .credits = (uint16_t)s->rx_unreported,
        .sequence = s->tx_sequence,
        .ack = s->rx_sequence,
        .length = length,
        .total = total,
    };
    s->rx_granted += s->rx_unreported;
    s->rx_unreported = 0;
    s->rx_updated = s->rx_sequence;
    s->update_due = false;
    frame_put(at, &f);
}

/* The share of the window of so many messages is free again. */
static inline void window_release(struct session *s, uint32_t count, uint64_t bytes, bool foreign) {
    if (foreign) {
        atomic_fetch_sub_explicit(&s->foreign_bytes, bytes, memory_order_relaxed);
        s->foreign_taken -= count;
        atomic_fetch_sub_explicit(&s->ref, count, memory_order_release);
        return;
    }
    /* One writer: plain loads and stores that others may read. */
    atomic_store_explicit(&s->own_messages,
                          atomic_load_explicit(&s->own_messages, memory_order_relaxed) - count,
                          memory_order_relaxed);
    atomic_store_explicit(&s->own_bytes,
                          atomic_load_explicit(&s->own_bytes, memory_order_relaxed) - bytes,
                          memory_order_relaxed);
}

/* A message the data path is done with, and nobody wants to hear of. */
static inline void msg_discard(struct sluice_loop *l, struct sluice_msg *msg) {
    msg->state = MSG_FREE;
    pool_put(msg->pool, msg->pool == l->pool ? l->cache : l->rx_cache, msg);
}

/* Whether this message may share a frame. */
static inline bool coalesce_accepts(const struct session *s, const struct sluice_msg *msg) {
    return msg->size < s->coalesce_bound && msg->kind <= MSG_REPLY;
}

/* Entries from `from` on never reached the device. */
void post_failed(struct sluice_loop *l, struct session *s, uint32_t from, int error);

#endif
