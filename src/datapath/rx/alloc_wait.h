/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * alloc_wait.h - no memory to send with: EAGAIN, and the SLUICE_WRITABLE that follows when some is back.
 *
 * Only calls that just failed to get a buffer come here, and no call blocks in them. The head of alloc_wait.c
 * says why no return of memory is missed. Receiving has a pool of its own and is not concerned.
 *
 * Owner: the calls are for any thread that is inside of no loop of its own (a handler may call); the
 * rest is for the loop's thread.
 */
#ifndef DATAPATH_RX_ALLOC_WAIT_H
#define DATAPATH_RX_ALLOC_WAIT_H

#include "datapath/loop/loop.h"

/* Bits of a loop's `alloc_wait`. */
#define ALLOC_WAIT_ARMED 1u /* it is to be told when memory comes back */
#define ALLOC_WAIT_ALL 2u   /* and with it every session: it is not known for which one it was */
#define ALLOC_WAIT_CHECK 4u /* memory came back */
#define ALLOC_WAIT_FLUSH 8u /* another session has none: free buffers of its cache go to all */

/* Before the pool of the node is used. */
void alloc_wait_open(struct sluice_node *n);

/*
 * Tries once more, in case memory came back meanwhile. OK and *out; EMSGSIZE; ENOMEM: no memory is on its
 * way back that could help; EAGAIN: the sessions of the loop that is the calling thread's get WRITABLE,
 * those of every loop of the node if it has none.
 */
int alloc_wait_get(struct sluice_node *n, size_t bytes, struct sluice_msg **out);
/* alloc_wait_get() for a message of this session, which gets the WRITABLE; ECLOSED too. */
int alloc_wait_get_for(sluice_session handle, size_t bytes, struct sluice_msg **out);

/* Another thread's alloc_wait_get_for() answered EAGAIN: its message was taken. */
void alloc_wait_requested(struct sluice_loop *l, struct session *s);
/* A session of this loop waits for memory, and waited on another loop before: it is looked at. */
void alloc_wait_again(struct sluice_loop *l);
/* An alloc_wait_get() returned EAGAIN to a caller without a session: all sessions of the loop wait. Any thread. */
bool alloc_wait_pending(const struct sluice_loop *l);
/* LOOP_WAKE_ALLOC_WAIT is set. Returns how many sessions were noticed. */
unsigned alloc_wait_progress(struct sluice_loop *l);

#endif
