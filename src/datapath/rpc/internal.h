/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * internal.h - the two tables of a session that has requests: this side's without a reply (client.c),
 * and of the peer's that are not answered (server.c).
 *
 * Each is allocated when the first request is sent, or arrives, and freed with the session's slot,
 * because other threads look into them while they hold a reference. Everything is the loop
 * thread's but what is marked as atomic or under the lock.
 */
#ifndef DATAPATH_RPC_INTERNAL_H
#define DATAPATH_RPC_INTERNAL_H

#include <pthread.h>

#include "datapath/rpc/server.h"
#include "datapath/loop/upward.h"
#include "datapath/rx/recv_result.h"

#define RPC_LEFT_LATER                                                                             \
    UINT32_MAX           /* time left, in microseconds: more than this, so as good as no limit */
#define RPC_IDS_MAX 256u /* an id has its entry in the lowest 8 bits */
#define RPC_ID_BITS 8u   /* and a count in the rest */
#define CANCELS_MAX 256u /* tags that wait for the loop: more requests cannot be in flight */

enum rpc_pending_state {
    RPC_PENDING_FREE,
    RPC_PENDING_WAITING, /* the outcome is the reply */
    RPC_PENDING_DEAD,    /* the outcome was told; the entry is free when the reply comes */
};

struct rpc_pending {
    struct sluice_msg *msg; /* WAITING: the request */
    uint64_t deadline_ns;
    uint32_t id;
    uint8_t state;   /* enum rpc_pending_state */
    bool foreign;    /* accepted from another thread */
    bool cancel_due; /* CANCEL waits for a credit */
    bool unposted;   /* the device refused it */
};

struct rpc_client {
    uint32_t limit;    /* entries in use, at most */
    uint32_t waiting;  /* entries WAITING */
    uint32_t taken;    /* entries not FREE */
    uint32_t reserved; /* frames with RESERVED that arrived and whose reply was not looked at */
    bool want;         /* EAGAIN for want of an entry: WRITABLE is owed */
    uint32_t free_count;
    uint8_t free[RPC_IDS_MAX];
    /* Accepted and without a free entry again; as the window, one for the owner, one for others. */
    _Atomic uint32_t own, foreign;
    struct rpc_pending pending[RPC_IDS_MAX];

    pthread_mutex_t lock; /* of what follows: only sluice_cancel() of other threads takes it */
    uint32_t cancel_count, cancel_ripe;
    uint64_t cancel[CANCELS_MAX];
};

/* Low bits of an inbound entry's word; the rest is the token. */
#define RPC_INBOUND_OPEN 1u     /* the application has it */
#define RPC_INBOUND_ANSWERED 2u /* a reply, or a code, waits to be posted */
#define RPC_INBOUND_STATES 3u
#define RPC_INBOUND_SHIFT 2u

struct rpc_inbound {
    _Atomic uint64_t word; /* 0: free. The thread that sets ANSWERED answers, once */
    uint64_t deadline_ns;
    uint32_t id, code;
    uint32_t cancelled_id; /* CANCEL came before its request was looked at, or after the reply */
    bool cancelled;
    bool cancelled_ahead; /* cancelled_id is valid */
};

struct rpc_server {
    uint64_t count; /* in a token above its entry: one is never given twice */
    _Atomic uint64_t due[RPC_IDS_MAX / 64]; /* entries whose code waits to be posted */
    struct rpc_inbound inbound[RPC_IDS_MAX];
};

/* ---- client.c -------------------------------------------------------------------------------- */

/* receive_broken() for code that returns what became of a frame. Always RECV_DONE. */
static inline enum recv_result rpc_broken(struct sluice_loop *l, struct session *s,
                                          struct sluice_msg *msg, const char *text) {
    receive_broken(l, s, msg, text);
    return RECV_DONE;
}

/* The outcome is delivered before the reply came; the application does not wait for the reply any more. */
void rpc_client_give_up(struct sluice_loop *l, struct session *s, struct rpc_client *r,
                        struct rpc_pending *pending, sluice_status status);

static inline struct rpc_client *rpc_client_of(struct session *s) {
    return atomic_load_explicit(&s->rpc.client, memory_order_acquire);
}

/* Accepted and not through. */
static inline uint32_t rpc_client_accepted(struct rpc_client *r) {
    return atomic_load_explicit(&r->own, memory_order_relaxed) +
           atomic_load_explicit(&r->foreign, memory_order_relaxed);
}

/* There is one, and room for the reply. */
static inline struct rpc_pending *rpc_pending_take(struct rpc_client *r, struct sluice_msg *msg) {
    struct rpc_pending *pending = &r->pending[r->free[--r->free_count]];
    pending->id += RPC_IDS_MAX;
    pending->msg = msg;
    pending->state = RPC_PENDING_WAITING;
    pending->foreign = msg->foreign;
    pending->deadline_ns = msg->tx.deadline_ns;
    msg->tx.id = pending->id;
    r->taken++;
    r->waiting++;
    return pending;
}

/* ---- server.c -------------------------------------------------------------------------------- */

/* Any thread that owns the session or holds a reference. True: the caller is the one thread that answers. */
bool rpc_server_claim(struct session *s, uint64_t token);
/* Undoes it: the caller did not answer after all. */
void rpc_server_unclaim(struct session *s, uint64_t token);
void rpc_server_assign(struct session *s, struct sluice_msg *msg, uint64_t *total);
/* Whether codes wait to be posted. */
bool rpc_server_due(struct session *s);

#endif
