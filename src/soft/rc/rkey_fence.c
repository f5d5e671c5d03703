/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rkey_fence.c - waiting, at the target, for requesters that are inside of its memory.
 *
 * A requester says that it is inside before it looks at a key (touch_begin() in rdma.c). Whoever takes
 * a key back stores that first, sees to it that requesters see it, and waits for those that are inside: so
 * a key that was taken back opens nothing.
 *
 * Owner: the QP's lock, or the control lock where all QPs of a PD are waited for.
 */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "soft/verbs/object.h"
#include "soft/ipc/peer_internal.h"

/* A peer that is alive may lose its CPU while it is inside: how long that is not taken for its end. */
#define TOUCH_WAIT_NS 2000000000u
#define TOUCH_LOOK_TURNS 64u /* between two looks whether it is alive */

static bool inside_since(const struct soft_qp *qp, uint32_t seen) {
    const struct soft_ring *rx = ld(qp->rx);
    return rx && atomic_load_explicit(&rx->tx.touching, memory_order_acquire) == seen;
}

/* Control lock. The engine, which would say so, may be waiting for us. */
static bool died(const struct soft_peer *peer) {
    struct pollfd death = {.fd = peer ? peer->death.fd : -1, .events = POLLIN};
    return death.fd >= 0 && poll(&death, 1, 0) > 0;
}

/* Who belongs to another user has nothing of ours mapped, whatever its ring says. */
static bool may_be_inside(const struct soft_qp *qp) {
    return !qp->peer || qp->peer->uid == geteuid();
}

/* False: the peer was inside all the time until then, or died there. peer: NULL where nobody may ask. */
static bool outside(struct soft_qp *qp, uint64_t deadline, const struct soft_peer *peer) {
    const struct soft_ring *rx = ld(qp->rx);
    uint32_t seen = rx ? atomic_load_explicit(&rx->tx.touching, memory_order_acquire) : 0;
    for (unsigned turn = 1; (seen & 1) && inside_since(qp, seen); turn++) {
        if (soft_now_ns() >= deadline || (turn % TOUCH_LOOK_TURNS == 0 && died(peer)))
            return false;
        sched_yield();
    }
    return true;
}

/* From here on every requester that did not say it is inside sees what was stored before. */
static void touch_order(void) {
    soft_fence_all();
}

void soft_rkey_fence_wait(struct soft_pd *pd) {
    touch_order();
    uint64_t deadline = soft_now_ns() + TOUCH_WAIT_NS; /* for all: a peer may have died inside */
    for (unsigned b = 0; b < soft_qp_block_count; b++)
        for (unsigned i = 0; i < SOFT_QP_BLOCK; i++) {
            struct soft_qp *qp = ld(soft_qp_blocks[b]->qps[i]);
            if (qp && soft_pd_of(qp->ibv.pd) == pd && may_be_inside(qp))
                (void)outside(qp, deadline, qp->peer);
        }
}

void soft_rkey_fence_wait_qp(struct soft_qp *qp) {
    touch_order();
    if (may_be_inside(qp))
        (void)outside(qp, soft_now_ns() + TOUCH_WAIT_NS, qp->peer);
}

bool soft_touch_wait_window(struct soft_qp *qp) {
    return soft_touch_window(qp) == 0 || outside(qp, soft_now_ns() + TOUCH_WAIT_NS, NULL);
}

uint32_t soft_touch_window(struct soft_qp *qp) {
    soft_fence();
    const struct soft_ring *rx = ld(qp->rx);
    uint32_t seen = rx ? atomic_load_explicit(&rx->tx.touching, memory_order_acquire) : 0;
    return seen & 1 ? seen : 0;
}

enum soft_rkey_fence soft_touch_again(struct soft_qp *qp, uint32_t seen) {
    if (!inside_since(qp, seen))
        return SOFT_RKEY_FENCE_LEFT;
    uint64_t now = soft_now_ns();
    if (qp->inside_ns == 0)
        qp->inside_ns = now;
    return now - qp->inside_ns < TOUCH_WAIT_NS ? SOFT_RKEY_FENCE_INSIDE : SOFT_RKEY_FENCE_STUCK;
}
