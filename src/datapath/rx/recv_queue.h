/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * recv_queue.h - receive buffers: posted, given back, posted again.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RX_RECV_QUEUE_H
#define DATAPATH_RX_RECV_QUEUE_H

#include "datapath/loop/loop.h"

/* The first receives, before the QP may connect. False: no memory or the device refused. */
bool recv_queue_prime(struct sluice_loop *l, struct connection *c);
/* Its queue pair is gone, and it has no receives any more. */
void recv_queue_unprime(struct connection *c);
/* Posts receives again, and grants the peer more if it wants more. */
void recv_queue_repost(struct sluice_loop *l, struct connection *c);
/* Frees its own buffers that wait to be posted. */
void recv_queue_forget(struct sluice_loop *l, struct connection *c);
/* Receives set aside for replies that are posted: none has taken them. */
uint32_t recv_queue_reserved(const struct connection *c);
/* The queue pair is in ERR and its completions are back: receives that it will never give back. */
void recv_queue_swallowed(struct sluice_loop *l, struct connection *c);
/* Where there is a trail: whether the device has it; if so, it counts as the oldest from here on. */
bool recv_queue_is_out(struct connection *c, const struct sluice_msg *msg);
/* Tries again later, when there may be memory. */
void recv_queue_retry(struct sluice_loop *l, struct session *s);
/* One of the reserve, for receives. cache may be NULL: any thread. */
struct sluice_msg *recv_buffer_get(struct pool *pool, struct pool_cache *cache, uint32_t bytes);
/* A received message or receive buffer back to its pool. */
void recv_buffer_put(struct sluice_loop *l, struct sluice_msg *msg);
/* A new loop: what is the same in every list of receives it posts. */
void recv_queue_prepare(struct sluice_loop *l);
/* Posts all of a queue's repost list, for this connection (NULL: none). False: the device refused. */
bool recv_queue_post(struct sluice_loop *l, struct recv_queue *q, const struct connection *self);
/*
 * Asserts that the receives which the device has are those that peers may use, are set aside for replies or are spare,
 * for each queue of the loop. Between two turns; of no more than a few sessions, and nothing without assertions.
 */
void recv_queue_assert_conserved(struct sluice_loop *l);
/* What receives are for: how much of the reserve may be receives for that is in recv_queue.c. */
enum recv_purpose {
    RECV_FIRST,  /* of a connection */
    RECV_REPLY,  /* of a request */
    RECV_NEEDED, /* without them a peer could send nothing more */
    RECV_SPEED,  /* a peer that uses what it has gets more */
};
/* Sees to spare receives; returns how many of those wanted there are. */
uint32_t recv_queue_spare(struct sluice_loop *l, struct connection *c, uint32_t want,
                          enum recv_purpose purpose);

/* A receive buffer whose frame is done with, to the connection that it came by; its credit was counted. */
static inline void recv_queue_give_back(struct sluice_loop *l, struct sluice_msg *msg) {
    struct connection *c = msg->owner;
    if (unlikely(!connection_takes_receives(c))) {
        recv_buffer_put(l, msg);
        return;
    }
    struct recv_queue *q = c->rx.queue;
    msg->state = MSG_RECEIVE;
    msg->next = q->repost;
    q->repost = msg;
    bool many = ++c->rx.repost_count + c->recv.missing >= c->rx.repost_batch;
    /* Where many sessions share receives, those of the others fill the list soon: one posting for all of them. */
    if ((many && !l->mixed) || c->rx.granted <= CREDIT_RESERVE ||
        (q->srq && ++q->waiting % LOOP_WR_BATCH == 0))
        loop_dirty(l, c->session);
}

#endif
