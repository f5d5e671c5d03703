/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * client.h - the two tables of a session that has requests: of mine without a reply (client.c),
 * and of the peer's that are not answered (server.c).
 *
 * Each is allocated when the first request is sent, or arrives, and freed with the session's slot,
 * because other threads look into them while they hold a reference. Everything is the loop
 * thread's but what is marked as atomic or under the lock.
 */
#ifndef DATAPATH_RPC_CLIENT_H
#define DATAPATH_RPC_CLIENT_H

#include <pthread.h>

#include "datapath/tx/post.h"

#define PLACES 256u      /* an id has its place in the lowest 8 bits */
#define PLACE_BITS 8u    /* and a count in the rest */
#define CANCELS_MAX 256u /* tags that wait for the loop: more requests cannot be in flight */

/* msg->flags of a request that has its place */
#define MSG_BUSY 128u   /* the device, or a transfer, still reads it */
#define MSG_ORPHAN 256u /* the outcome was told without it: to be freed when it is not busy */
#define MSG_LATE 512u   /* the outcome, in deadline_ns, is told when it is not busy */

/* The code of a REPLY. */
enum reply_code {
    CODE_REPLY = 0,
    CODE_EXPIRED = 1,
    CODE_CANCELLED = 2,
    CODE_FAILED = 3,
    CODE_APPLICATION = 256, /* and above: refused by the application with what is above */
};

enum place_state {
    PLACE_FREE,
    PLACE_WAITING, /* the outcome is the reply */
    PLACE_DEAD,    /* the outcome was told; the place is free when the reply comes */
};

struct place {
    struct sluice_msg *msg; /* WAITING: the request */
    uint64_t deadline_ns;
    uint32_t id;
    uint8_t state;   /* enum place_state */
    bool foreign;    /* accepted from another thread */
    bool cancel_due; /* CANCEL waits for a credit */
    bool unposted;   /* the device refused it */
};

struct requests {
    uint32_t limit;    /* places in use, at most */
    uint32_t waiting;  /* places WAITING */
    uint32_t taken;    /* places not FREE */
    uint32_t reserved; /* frames with RESERVED that arrived and whose reply was not looked at */
    bool want;         /* EAGAIN for want of a place: WRITABLE is owed */
    uint32_t free_count;
    uint8_t free[PLACES];
    /* Accepted and without a free place again; as the window, one for the owner, one for others. */
    _Atomic uint32_t own, foreign;
    struct place place[PLACES];

    pthread_mutex_t lock; /* of what follows: only sluice_cancel() of other threads takes it */
    uint32_t cancel_count, cancel_ripe;
    uint64_t cancel[CANCELS_MAX];
};

/* Low bits of a serving place's word; the rest is the token. */
#define SERVING_OPEN 1u     /* the application has it */
#define SERVING_ANSWERED 2u /* a reply, or a code, waits to be posted */
#define SERVING_STATES 3u
#define SERVING_SHIFT 2u

struct serving_place {
    _Atomic uint64_t word; /* 0: free. Whoever makes OPEN ANSWERED answers: once, on any thread */
    uint64_t deadline_ns;
    uint32_t id, code;
    uint32_t cancelled_id; /* CANCEL came before its request was looked at, or after the reply */
    bool cancelled;
    bool cancelled_ahead; /* cancelled_id is valid */
};

struct serving {
    uint64_t count;                    /* in a token above its place: one is never given twice */
    _Atomic uint64_t due[PLACES / 64]; /* places whose code waits to be posted */
    struct serving_place place[PLACES];
};

/* ---- client.c -------------------------------------------------------------------------------- */

/* receive_broken() for those who say what became of a frame. Always RECV_DONE. */
static inline enum recv_result request_broken(struct sluice_loop *l, struct session *s,
                                              struct sluice_msg *msg, const char *text) {
    receive_broken(l, s, msg, text);
    return RECV_DONE;
}

/* The outcome is told before the reply came; nobody waits for that any more. */
void request_give_up(struct sluice_loop *l, struct session *s, struct requests *r,
                     struct place *place, sluice_status status);

static inline struct requests *requests_of(struct session *s) {
    return atomic_load_explicit(&s->requests, memory_order_acquire);
}

/* ---- server.c -------------------------------------------------------------------------------- */

/* Any thread that owns the session or holds a reference: makes the caller the one who answers. */
bool serving_claim(struct session *s, uint64_t token);
/* It was not, after all. */
void serving_unclaim(struct session *s, uint64_t token);
void serving_assign(struct session *s, struct sluice_msg *msg, uint64_t *total);
/* Whether codes wait to be posted. */
bool serving_due(struct session *s);

#endif
