/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_bell.h - a queue pair's own bell: by it the peer wakes the thread that sleeps, and not the engine.
 *
 * The bell of a process (ipc/peer.h) wakes its engine, which completes what came and tells the channel, which wakes the
 * thread: two threads get a CPU one after the other for one message. A thread that sleeps on the bells of its CQ's queue
 * pairs as well (verbs/cq_sleep.c) says so in the CQ's armed word, and a peer that has the queue pair's bell rings that.
 *
 * A bell is made when a thread first sleeps on the CQ, or when the queue pair connects later, and is given to the peer. Until
 * the peer has it, and where it is another user's or of an earlier version, the peer rings its process's as before. So is it
 * for queue pairs beyond SOFT_BELLS of a CQ, and where bells would take too many of the descriptors of this process.
 *
 * A queue pair leaves the CQ's set of bells before the CQ's list, which takes the poll_lock: so one that is found in the set
 * is in the list while its finder holds that lock.
 */
#ifndef SOFT_RC_QP_BELL_H
#define SOFT_RC_QP_BELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soft_cq;
struct soft_peer;
struct soft_qp;

/* qp->lock. The peer sleeps, as this armed word of its said. */
void soft_qp_ring(struct soft_qp *qp, const _Atomic uint32_t *armed);

#define SOFT_BELLS 64u /* of a CQ */
/* The CQ's poll_lock. Takes what rang before a thread sleeps on the bells. False: there are none. */
bool soft_bells_hear(struct soft_cq *cq);
/* Threads sleep on this CQ: the engine gives its queue pairs' bells to their peers. Any thread. */
void soft_bells_want(struct soft_cq *cq);
/* A reason to give none is gone, perhaps. Any thread; the engine's next turn. */
void soft_bells_again(void);
/* The engine, every turn. Hangs up, too, on a peer that put a descriptor into a bell. */
void soft_bells_if_wanted(void);
void soft_bells_forked(void); /* before the queue pairs are forgotten */
/* Control lock. The queue pair is connected: gives its bell, if its CQ wants them. */
void soft_qp_bell_give(struct soft_qp *qp);
/* Control lock. Here is the bell of the peer's queue pair. *file: what came with it; -1 afterwards if it is kept. */
void soft_qp_bell_on_message(struct soft_peer *peer, const void *data, size_t bytes, int *file);
/* Control lock. The connection of these two queue pairs is over: neither is rung any more. */
void soft_qp_bell_close(struct soft_qp *qp);

/* The epoll set of a CQ's bells, edge-triggered to sleep on; -1: it has none. */
int soft_bells_set(const struct soft_cq *cq);
void soft_bells_free(struct soft_cq *cq);

#endif
