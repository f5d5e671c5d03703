/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * process_fence.h - orders stores of this process before loads of its peers, without a fence in the peers.
 *
 * A sender stores a message for a peer and then loads whether the peer sleeps; a requester in a peer's memory
 * stores that it is inside and then loads whether the key is valid. Each would need a fence in between, for every
 * message. Instead the peer, which takes the key back or goes to sleep, makes all of them see it by membarrier(), and
 * says in its HELLO that it can.
 *
 * A process may lose that later: a seccomp filter forbids the call. After the first failure it is not used again.
 * The peers are then asked to put their fences in, and until a peer has confirmed that, it counts as one that
 * may not have seen what was stored: as inside of memory (rkey_fence.c), and as one that did not see a
 * sleeping thread (notify.c, qp_timer.c).
 */
#ifndef SOFT_IPC_PROCESS_FENCE_H
#define SOFT_IPC_PROCESS_FENCE_H

#include <stdbool.h>

struct soft_peer;

/* The order that a peer puts between a store and the load behind it. peer->fences. */
enum soft_fences {
    SOFT_FENCES_PUT = 0,     /* a fence; we never told it otherwise, or it has confirmed */
    SOFT_FENCES_OMITTED = 1, /* none: our HELLO said so */
    SOFT_FENCES_ASKED = 2    /* none, perhaps: it was asked */
};

void soft_fence_start(void); /* control lock */
void soft_fence_forked(void);
/* Can this process make others see? */
bool soft_fence_able(void);
/*
 * After this call every thread here sees what was stored before; a peer's threads do unless the peer is unsure.
 * Any thread, any lock.
 */
void soft_fence_all(void);
/* It may not see what was stored before soft_fence_all(). Any thread that may look at the peer. */
bool soft_fence_unsure(const struct soft_peer *peer);
bool soft_fence_any_unsure(void); /* any thread */

void soft_fence_if_wanted(void);                 /* engine: asks the peers */
void soft_fence_on_ask(struct soft_peer *peer);  /* control lock: it asks us */
void soft_fence_on_done(struct soft_peer *peer); /* control lock: it has put them in */
void soft_fence_recount(void);                   /* control lock: a peer went */

#endif
