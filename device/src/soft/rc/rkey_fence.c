/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rkey_fence.c - seeing, at the target, that requesters have left its memory.
 *
 * A requester says that it is inside before it looks at a key (rkey_reach_begin() in rkey_reach.h), and stays for
 * no longer than a piece of what it copies. A thread that revokes a key stores that first, sees to it that
 * requesters see it, and waits for those that are inside: so a revoked key opens nothing.
 *
 * No other thread waits for them. A queue pair that ends, or invalidates a window, goes on later and lets its
 * own queue wait. A call that must know before it returns (destroy_qp, dereg_mr) waits without any lock, and
 * not for long: a requester that is still inside then has lost its CPU in the middle of it, or lies.
 *
 * Owner: the QP's lock; the control lock where all QPs of a PD are looked at.
 */
#define _GNU_SOURCE
#include "soft/rc/rkey_fence.h"

#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/process_fence.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/mr.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/object/ring.h"

/* A peer that is alive may lose its CPU while it is inside: how long that is not taken for its end. */
#define QUEUE_WAIT_NS 2000000000u /* where only the QP's own queue waits */
#define FLUSH_WAIT_NS 1000000000u /* where its flush does: shorter than applications wait for one */
#define CALL_WAIT_NS 80000000u    /* where a call of the application does, whatever it is about */

/* The engine, which would say so, may come later. */
static bool died(const struct soft_peer *peer) {
    struct pollfd death = {.fd = peer ? peer->death.fd : -1, .events = POLLIN};
    return death.fd >= 0 && poll(&death, 1, 0) > 0;
}

/*
 * True for another user, which has no memory of ours. A process that is ours may have been given memory by another of
 * its connections; and a process that was ours keeps what it was given.
 */
static bool has_nothing(const struct soft_peer *peer) {
    return peer && !ld(peer->own) && !ld(peer->has_memory);
}

/* The value of the peer's word, 0: it is not inside. */
static uint32_t word(const struct soft_qp *qp) {
    const struct soft_ring *rx = ld(qp->rx);
    if (!rx || has_nothing(qp->peer))
        return 0;
    uint32_t now =
        atomic_load_explicit(&rx->tx.touching, memory_order_acquire); /* rkey_reach_end() */
    return now & 1 ? now : 0;
}

/* Instead of the word's value: the peer may be inside without showing it, as it has no fence behind its store. */
#define UNSURE 2u

/* Behind soft_fence_all(): 0, what the word says, or UNSURE. */
static uint32_t look(const struct soft_qp *qp) {
    return !has_nothing(qp->peer) && ld(qp->rx) && soft_fence_unsure(qp->peer) ? UNSURE : word(qp);
}

/* True: the peer has left. If it was unsure and has become sure meanwhile, its word counts from then on. */
static bool left(const struct soft_qp *qp, uint32_t *seen) {
    if (*seen == UNSURE) {
        *seen = look(qp);
        return *seen == 0;
    }
    return word(qp) != *seen;
}

void soft_rkey_fence_begin(struct soft_qp *qp) {
    soft_fence_all(); /* a requester not marked inside sees earlier stores: rkey_reach_begin() */
    qp->leaving = (struct soft_rkey_wait){.seen = look(qp)};
}

/* For a window every requester fences: rkey_reach_read_window() is the partner. */
struct soft_rkey_wait soft_rkey_fence_begin_window(const struct soft_qp *qp) {
    soft_fence();
    return (struct soft_rkey_wait){.seen = word(qp)};
}

enum soft_rkey_fence soft_rkey_fence_poll(const struct soft_qp *qp, struct soft_rkey_wait *inside) {
    enum soft_rkey_fence touch = SOFT_RKEY_FENCE_LEFT;
    if (inside->seen && !left(qp, &inside->seen) && !died(qp->peer)) {
        uint64_t now = soft_now_ns();
        if (inside->since_ns == 0)
            inside->since_ns = now;
        if (now - inside->since_ns < (inside == &qp->leaving ? FLUSH_WAIT_NS : QUEUE_WAIT_NS))
            return SOFT_RKEY_FENCE_INSIDE;
        touch = SOFT_RKEY_FENCE_STUCK;
    }
    *inside = (struct soft_rkey_wait){0};
    return touch;
}

/* ---- calls that wait ----------------------------------------------------------------------------- */

/*
 * Calls do not wait again for a while for a peer that stayed inside as long as one call waits: else it could delay
 * each of them, whatever it writes meanwhile. For all queue pairs of that process.
 */
#define IN_VAIN_NS 1000000000u

static bool in_vain(const struct soft_qp *qp) {
    uint64_t until =
        qp->peer ? atomic_load_explicit(&qp->peer->in_vain_ns, memory_order_relaxed) : 0;
    return until != 0 && soft_now_ns() < until;
}

/* QP's lock. */
static void give_up(struct soft_qp *qp) {
    if (qp->peer)
        atomic_store_explicit(&qp->peer->in_vain_ns, soft_now_ns() + IN_VAIN_NS,
                              memory_order_relaxed);
}

/* `last`: it is not waited for any longer. */
static bool still_inside(struct soft_qp *qp, uint32_t *seen, bool last) {
    spin_lock(&qp->lock);
    bool is = !left(qp, seen) && !died(qp->peer) && !in_vain(qp);
    if (is && last)
        give_up(qp);
    spin_unlock(&qp->lock);
    return is;
}

void soft_rkey_fence_wait_qp(struct soft_qp *qp) {
    spin_lock(&qp->lock); /* the engine may still look after its flush */
    uint32_t seen = qp->leaving.seen;
    spin_unlock(&qp->lock);
    uint64_t deadline = soft_now_ns() + CALL_WAIT_NS;
    for (bool last = false; seen && still_inside(qp, &seen, last) && !last; sched_yield())
        last = soft_now_ns() >= deadline;
}

/* Control lock. Notes the peers that are inside. */
static bool note(struct soft_pd *pd) {
    soft_assert_locked();
    bool any = false;
    for (unsigned b = 0; b < soft_qp_block_count; b++)
        for (unsigned i = 0; i < SOFT_QP_BLOCK; i++) {
            struct soft_qp *qp = ld(soft_qp_blocks[b]->qps[i]);
            if (!qp || soft_pd_of(qp->ibv.pd) != pd)
                continue;
            qp->inside = look(qp);
            any |= qp->inside != 0;
        }
    return any;
}

/* Control lock. Whether one of them still is. */
static bool any_inside(struct soft_pd *pd, bool last) {
    soft_assert_locked();
    bool any = false;
    for (unsigned b = 0; b < soft_qp_block_count; b++)
        for (unsigned i = 0; i < SOFT_QP_BLOCK && (last || !any); i++) {
            struct soft_qp *qp = ld(soft_qp_blocks[b]->qps[i]);
            if (!qp || soft_pd_of(qp->ibv.pd) != pd || qp->inside == 0)
                continue;
            if (still_inside(qp, &qp->inside, last))
                any = true;
            else
                qp->inside = 0;
        }
    return any;
}

/*
 * All of them at a time, so that peers that do not leave are known after one wait. The control lock is given up
 * meanwhile: QPs come and go; a later note of another call is as good, for a peer that has left since is not inside.
 */
void soft_rkey_fence_wait(struct soft_pd *pd) {
    soft_assert_locked();
    soft_fence_all();
    uint64_t deadline = soft_now_ns() + CALL_WAIT_NS;
    bool last = false;
    if (!note(pd))
        return;
    while (any_inside(pd, last) && !last) {
        soft_unlock();
        sched_yield();
        soft_lock();
        last = soft_now_ns() >= deadline;
    }
}
