/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * process_fence.c - membarrier(), and what the process does when a filter forbids it.
 *
 * Owner: the control lock, but for the flags, which any thread reads and a failed call sets.
 */
#define _GNU_SOURCE
#include "soft/ipc/process_fence.h"

#include <linux/membarrier.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/peer_queue.h"
#include "soft/ipc/spinlock.h"
#include "soft/ipc/upcalls.h"

static _Atomic bool able;       /* to make others see */
static _Atomic bool asking;     /* the engine shall ask the peers */
static _Atomic bool any_unsure; /* not all have confirmed */

void soft_fence_start(void) {
    soft_assert_locked();
    atomic_store(&able,
                 syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0);
    atomic_store(&asking, false);
    atomic_store(&any_unsure, false);
}

void soft_fence_forked(void) {
    atomic_store(&able, false);
    atomic_store(&asking, false);
    atomic_store(&any_unsure, false);
}

bool soft_fence_able(void) {
    return atomic_load(&able);
}

/* A thread that finds membarrier() lost must find the peers unsure as well: stored in this order. */
static void lost(void) {
    atomic_store(&any_unsure, true);
    atomic_store(&asking, true);
    atomic_store(&able, false);
    soft_engine_wake();
}

void soft_fence_all(void) {
    if (__builtin_expect(atomic_load(&able), 1)) {
        if (__builtin_expect(syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0,
                             1))
            return;
        lost();
    }
    soft_fence();
}

bool soft_fence_unsure(const struct soft_peer *peer) {
    return __builtin_expect(!atomic_load(&able), 0) && peer &&
           atomic_load(&peer->fences) != SOFT_FENCES_PUT;
}

bool soft_fence_any_unsure(void) {
    return __builtin_expect(atomic_load(&any_unsure), 0);
}

/* Control lock. Not before all have been asked: a call may have failed just now. */
void soft_fence_recount(void) {
    soft_assert_locked();
    if (!atomic_load(&any_unsure) || atomic_load(&asking))
        return;
    bool any = false;
    const struct soft_peer *peer;
    cds_list_for_each_entry(peer, &soft_peers, link)
        any |= soft_fence_unsure(peer);
    atomic_store(&any_unsure, any);
}

void soft_fence_if_wanted(void) {
    if (__builtin_expect(!atomic_load_explicit(&asking, memory_order_relaxed), 1) ||
        atomic_load(&able)) /* half said */
        return;
    atomic_store(&asking, false);
    uint32_t nothing = 0;
    struct soft_peer *peer, *next;
    cds_list_for_each_entry_safe(peer, next, &soft_peers, link) {
        if (atomic_load(&peer->fences) != SOFT_FENCES_OMITTED)
            continue;
        atomic_store(&peer->fences, SOFT_FENCES_ASKED);
        (void)soft_peer_send(peer, SOFT_MSG_FENCE, &nothing, sizeof nothing, -1);
    }
    soft_fence_recount();
}

/* Control lock. */
void soft_fence_on_ask(struct soft_peer *peer) {
    soft_assert_locked();
    uint32_t nothing = 0;
    peer->fence_free = false;
    soft_upcalls.peer_unordered(peer);
    (void)soft_peer_send(peer, SOFT_MSG_FENCE_OK, &nothing, sizeof nothing, -1);
}

void soft_fence_on_done(struct soft_peer *peer) {
    soft_assert_locked();
    if (atomic_load(&peer->fences) != SOFT_FENCES_ASKED)
        return;
    atomic_store(&peer->fences, SOFT_FENCES_PUT);
    soft_fence_recount();
}
