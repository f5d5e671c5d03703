/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_bell.h - a completion queue's bell for one peer: by it the peer's process wakes the thread that sleeps, and not the engine.
 *
 * The bell of a process (ipc/peer.h) wakes its engine, which completes what came and tells the channel, which wakes the
 * thread: two threads get a CPU one after the other for one message. A thread that sleeps on the bells of its CQ
 * as well (verbs/cq_sleep.c) says so in the CQ's armed word, and a peer that has the CQ's bell rings that.
 *
 * One bell is for all queue pairs of a CQ that are connected with one process, however many they are. It is made when a thread first
 * sleeps on the CQ, or when the first of them connects later, is given to the peer, and goes with the last of them. The peer knows
 * which of its queue pairs are connected to that CQ by the armed word that they look at. Until it has the bell, and where it is another
 * user's or of an earlier version, it rings the process's as before. So it does where bells would take too many of the descriptors
 * of this process, and for a CQ that shares its armed word with an older one.
 *
 * A bell leaves the CQ's set, and then the poll_lock is taken once, before it is freed: so one that is found in the set is there
 * while its finder holds that lock.
 */
#ifndef SOFT_RC_CQ_BELL_H
#define SOFT_RC_CQ_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soft_cq;
struct soft_peer;
struct soft_qp;

struct soft_bell { /* of a CQ of this process */
    int fd;        /* the end that is heard; constant */
    struct soft_cq *cq;
    struct soft_peer *peer; /* held by the queue pairs that use it */
    _Atomic bool misused;   /* the peer put a descriptor into it: heard no more */
    /* control lock */
    unsigned users;         /* queue pairs */
    struct soft_bell *next; /* of the peer's */
};

struct soft_peer_bell {            /* of a CQ of the peer's */
    int fd;                        /* the end that is rung; constant */
    const _Atomic uint32_t *armed; /* the word of that CQ */
    /* control lock */
    unsigned users;
    struct soft_peer_bell *next;
};

/* qp->lock. The peer sleeps, as this armed word of its said. */
void soft_qp_ring(struct soft_qp *qp, const _Atomic uint32_t *armed);

/* The CQ's poll_lock. Takes what rang before a thread sleeps on the bells. False: there are none. */
bool soft_bells_hear(struct soft_cq *cq);
/* Threads sleep on this CQ: the engine gives its bells to the peers of its queue pairs. Any thread. */
void soft_bells_want(struct soft_cq *cq);
/* A reason to give none is gone, perhaps. Any thread; the engine's next turn. */
void soft_bells_again(void);
/* The engine, every turn. Hangs up, too, on a peer that put a descriptor into a bell. */
void soft_bells_if_wanted(void);
void soft_bells_forked(void); /* before the queue pairs are forgotten */
/* Control lock. The queue pair is connected: it rings the bell that its peer's CQ has, and its own CQ gives one if it wants to. */
void soft_bell_connect(struct soft_qp *qp);
void soft_bell_give(struct soft_qp *qp); /* only the latter */
/* Control lock. Here is the bell of the CQ of the peer's queue pair. *file: what came with it; -1 afterwards if it is kept. */
void soft_bell_on_message(struct soft_peer *peer, const void *data, size_t bytes, int *file);
/* Control lock. The connection of these two queue pairs is over: this one rings nothing any more. */
void soft_bell_disconnect(struct soft_qp *qp);

/* The epoll set of a CQ's bells, edge-triggered to sleep on; -1: it has none. */
int soft_bells_set(const struct soft_cq *cq);
void soft_bells_free(struct soft_cq *cq);

#endif
