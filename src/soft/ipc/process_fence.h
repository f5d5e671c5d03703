/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * process_fence.h - ordering what is stored here before what others look at, without a fence of theirs.
 *
 * Who gives something to a peer stores it and looks whether the peer sleeps; who is inside of a peer's memory
 * says so and looks whether the key is good. Each would need a fence in between, for every message. Instead
 * the peer, who takes the key back or goes to sleep, makes all of them see it by membarrier(), and says in its
 * HELLO that it can.
 *
 * A process may lose that later: a seccomp filter forbids the call. The first call that fails is the end of it.
 * The peers are then asked to put their fences in, and until a peer has said that it did it counts as one that
 * may not have seen what was stored: as inside of memory (rkey_fence.c), and as one that did not see that somebody
 * sleeps (notify.c, qp_timer.c).
 */
#ifndef SOFT_IPC_PROCESS_FENCE_H
#define SOFT_IPC_PROCESS_FENCE_H

#include <stdbool.h>

struct soft_peer;

/* What a peer does between what it stores and what it looks at. peer->fences. */
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
 * What was stored before is seen by everybody who looks after this, by peers only if they are not unsure.
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
