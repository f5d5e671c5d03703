/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_timer.c - progress for queue pairs whose application does not poll, or whose peer does not.
 *
 * A QP with work that only time can finish (sends that found no room, sends of a CQ that a thread sleeps
 * on, a receiver that is not ready) asks for the tick: the engine then looks at it every
 * millisecond until nothing is outstanding. Pollers need none of it.
 *
 * Owner: engine thread, control lock.
 */
#include "soft/rc/qp_timer.h"

#include <stdatomic.h>

#include "soft/fault/inject.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/process_fence.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_engine.h"
#include "soft/object/attention.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/object/ring.h"
#include "soft/object/upcalls.h"
#include "soft/rc/progress.h"
#include "soft/rc/requester.h"
#include "soft/ud/ud.h"

#define TICK_NS 1000000u
#define TICK_SLOW 10
/* An acknowledgement in a slot waits behind a message the peer has no receive for: tell it again. */
#define TELL_AGAIN_POLLS 1024
#define NO_PEER_TIMEOUT_NS_MAX 10000000000ull
#define UNRELIABLE_PATIENCE_NS 200000000u

static struct soft_timer timer;

/* qp->lock. True when the head send has to die. */
static enum ibv_wc_status patience(struct soft_qp *qp, uint64_t now) {
    spin_assert_held(&qp->lock);
    struct soft_ring *tx = ld(qp->tx);
    if (!tx || ld(tx->rx.dark)) { /* no process answers for the destination number */
        if (qp->attr.timeout == 0)
            return IBV_WC_SUCCESS;
        uint64_t limit = (4096ull << qp->attr.timeout) * (qp->attr.retry_cnt + 1u);
        limit = limit < NO_PEER_TIMEOUT_NS_MAX ? limit : NO_PEER_TIMEOUT_NS_MAX;
        if (qp->stall_since_ns == 0)
            qp->stall_since_ns = now;
        return now - qp->stall_since_ns > limit ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS;
    }
    uint32_t stalled = atomic_load_explicit(&tx->rx.stalled, memory_order_acquire);
    if (stalled == 0 || qp->attr.rnr_retry == 7) {
        qp->stall_since_ns = 0;
        return IBV_WC_SUCCESS;
    }
    if (qp->stall_since_ns == 0 || qp->stall_acked != stalled) {
        qp->stall_since_ns = now;
        qp->stall_acked = stalled;
    }
    uint64_t limit = soft_rnr_ns(ld(tx->rx.rnr_timer)) * (qp->attr.rnr_retry + 1u);
    return now - qp->stall_since_ns > limit ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_SUCCESS;
}

/* qp->lock. True: an unreliable message that waits for so long may be dropped. */
static bool loses_patience(struct soft_qp *qp, uint64_t now) {
    spin_assert_held(&qp->lock);
    if (qp->stall_since_ns == 0 || qp->stall_acked != qp->sq_next) {
        qp->stall_since_ns = now;
        qp->stall_acked = qp->sq_next;
    }
    if (now - qp->stall_since_ns <= UNRELIABLE_PATIENCE_NS || soft_fault_active())
        return false;
    qp->stall_since_ns = 0;
    qp->impatient = true;
    return true;
}

/*
 * Rings the peer's process because sends stay unanswered. One ring is for all of its queue pairs (ring_exchange.c), so of
 * those that wait for it one rings in half a tick: each of a thousand would cost a system call of its own. qp->lock.
 */
static void remind(struct soft_qp *qp, uint64_t now) {
    spin_assert_held(&qp->lock);
    struct soft_peer *peer = qp->link_peer;
    if (!peer)
        return;
    uint64_t last = atomic_load_explicit(&peer->reminded_ns, memory_order_relaxed);
    if (now - last >= TICK_NS / 2 && atomic_compare_exchange_strong(&peer->reminded_ns, &last, now))
        soft_qp_kick(qp);
}

static bool soft_qp_timer_tick(struct soft_qp *qp, uint64_t now) {
    if (qp->tcp)
        return soft_tcp_tick(qp, now);
    spin_lock(&qp->lock);
    bool moving = qp->sq_head != qp->tick_head;
    qp->tick_head = qp->sq_head;
    spin_unlock(&qp->lock);
    if (moving) /* a poller works on it: leave it alone */
        return false;
    soft_qp_progress(qp);
    spin_lock(&qp->lock);
    bool sends = (qp->state == IBV_QPS_RTS && qp->sq_head != qp->sq_tail) || qp->fault.holding;
    bool again = sends || qp->leaving.seen || qp->rx_inside.seen || qp->held_back || qp->copy;
    bool lose = sends && qp->unreliable && loses_patience(qp, now);
    enum ibv_wc_status status = sends && !qp->unreliable ? patience(qp, now) : IBV_WC_SUCCESS;
    if (status != IBV_WC_SUCCESS)
        qp->give_up = (uint8_t)status;
    if (!again && !soft_fence_any_unsure()) /* else a peer may not ring when it sends */
        st(qp->need_tick, false);
    bool ends = status != IBV_WC_SUCCESS || lose;
    if (!ends && again && !qp->ud)
        remind(qp, now); /* its process may not be polling either */
    spin_unlock(&qp->lock);
    if (ends)
        soft_qp_progress(qp);
    else if (again && qp->ud)
        soft_ud_kick(qp);
    return again;
}

/*
 * A queue pair that falls, by the peer's doing or its own, is in ERR at once; its receives come back when the
 * kernel's thread for the connection comes to it, or it is destroyed. Only modify_qp() flushes before it returns.
 */
void soft_iwarp_flush(struct soft_qp *qp) {
    spin_lock(&qp->lock);
    qp->flush_late = false;
    spin_unlock(&qp->lock);
    soft_qp_progress(qp);
}

/* Of a CQ that was armed since the last tick, and whose thread looked only at queue pairs that have something: this one has sends out. */
static bool is_watched(const struct soft_qp *qp, uint32_t round) {
    const struct soft_cq *cq = soft_cq_of(qp->ibv.recv_cq);
    return ld(cq->watch_round) == round && ld(cq->armed) != 0 && ld(qp->unretired) != 0;
}

static void on_tick(struct soft_timer *t) {
    uint64_t now = soft_now_ns();
    bool again = false, any = false;
    uint32_t round = ld(soft_qp_timer_round) + 1;
    atomic_store(&soft_qp_timer_wanted, false);
    atomic_store(&soft_qp_timer_round, round); /* a CQ that is armed later is for the next one */
    soft_fence();                              /* partner: verbs/notify.c, watch() */
    for (unsigned b = 0; b < soft_qp_block_count; b++)
        for (unsigned i = 0; i < SOFT_QP_BLOCK; i++) {
            struct soft_qp *qp = ld(soft_qp_blocks[b]->qps[i]);
            if (qp && ld(qp->fell)) {
                st(qp->fell, false);
                soft_object_upcalls.iwarp_down(qp);
                soft_iwarp_flush(qp);
            }
            if (qp && !qp->ud && !ld(qp->need_tick) && is_watched(qp, round))
                st(qp->need_tick, true);
            if (qp && ld(qp->need_tick)) {
                again |= soft_qp_timer_tick(qp, now);
                any |= ld(qp->need_tick);
            }
        }
    if (any)
        atomic_store(&soft_qp_timer_wanted, true);
    if (atomic_load(&soft_qp_timer_wanted))
        soft_timer_arm(t, now + (again ? TICK_NS : TICK_SLOW * TICK_NS), on_tick);
}

void soft_qp_timer_if_wanted(void) {
    if (atomic_load_explicit(&soft_qp_timer_wanted, memory_order_relaxed) && timer.due_ns == 0)
        soft_timer_arm(&timer, soft_now_ns() + TICK_NS, on_tick);
}

void soft_qp_timer_forked(void) {
    timer = (struct soft_timer){0};
    atomic_store(&soft_qp_timer_wanted, false);
}

void soft_qp_timer_stop(void) {
    soft_timer_cancel(&timer);
    atomic_store(&soft_qp_timer_wanted, false);
}

/*
 * Whether nothing was acknowledged for a tick, which pollers that rest between polls find: many polls would take them long.
 * One poll in SOFT_LOOK_EVERY looks at the clock.
 */
static bool is_late(struct soft_qp *qp, uint32_t polls) {
    if (polls == 0 || polls % SOFT_LOOK_EVERY != 0)
        return false;
    uint64_t now = soft_now_ns();
    uint32_t acked = ld(qp->tx_acked);
    if (polls > SOFT_LOOK_EVERY && acked == ld(qp->idle_acked))
        return now - ld(qp->idle_ns) >= TICK_NS;
    st(qp->idle_ns, now);
    st(qp->idle_acked, acked);
    return false;
}

/* qp->lock. Nothing of ours waits for the peer: requests, for its answer or for room, and slots. */
static bool is_answered(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    const struct soft_ring *tx = ld(qp->tx);
    return tx && note_ack(qp, atomic_load_explicit(&tx->rx.acked, memory_order_acquire)) &&
           ld(qp->tx_acked) == ld(qp->tx_published) && !qp->waiting && qp->sq_next == qp->sq_tail;
}

/*
 * qp->lock. Tells the peer what was taken. If a slot that the peer has taken said so already, only the header is written, and the
 * peer is not made to look at it: positions wrap, and a header that is 2^31 slots old would seem to be ahead of them.
 */
static void tell_taken(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    struct soft_ring *rx = ld(qp->rx);
    uint32_t pos = ld(qp->rx_pos);
    if (rx && ld(qp->rx_told) == pos && is_answered(qp)) {
        atomic_store_explicit(&rx->rx.acked, pos, memory_order_release);
        st(qp->rx_word, pos);
    } else {
        soft_qp_flush_ack(qp);
    }
}

/*
 * Polls that found nothing. Tells the peer what was consumed. With sends out, has the long way look now
 * and then for what pollers do not look at, and when they stay unanswered for many polls, or for long, rings the
 * peer's bell: its application may not be polling. No lock unless needed.
 */
void soft_qp_idle(struct soft_qp *qp) {
    uint32_t pos = ld(qp->rx_pos), polls = ld(qp->empty_polls);
    if (ld(qp->rx_word) != pos) {
        if ((ld(qp->rx_told) != pos || polls >= TELL_AGAIN_POLLS) && spin_try(&qp->lock)) {
            tell_taken(qp);
            spin_unlock(&qp->lock);
        }
    } else if (ld(qp->unretired) == 0) {
        st(qp->empty_polls, 0);
    }
    if (ld(qp->unretired) == 0)
        return;
    if (polls % SOFT_LOOK_EVERY == 0 || polls >= SOFT_KICK_AFTER)
        st(qp->attention, true);
    if (polls < SOFT_KICK_AFTER && !is_late(qp, polls))
        return;
    st(qp->empty_polls, 0);
    uint64_t now = soft_now_ns();
    if (now - ld(qp->kick_ns) < TICK_NS)
        return;
    /* The way to the peer may be coming or going: look at it under the lock. */
    if (spin_try(&qp->lock)) {
        bool answered = is_answered(qp);
        if (!answered)
            remind(qp, now);
        spin_unlock(&qp->lock);
        if (answered) { /* no poller waits for that, so none has looked */
            st(qp->attention, true);
            return;
        }
    }
    st(qp->kick_ns, now);
    st(qp->need_tick, true);
    soft_qp_timer_want();
}

void soft_qp_idle_lately(struct soft_qp *qp, uint32_t polls) {
    uint32_t acked = ld(qp->tx_acked);
    polls += ld(qp->empty_polls);
    if (acked ==
        ld(qp->tx_published)) { /* no send is out: the wait for the next one has not begun */
        if (ld(qp->idle_acked) != acked - 1)
            st(qp->idle_acked, acked - 1);
    } else if (ld(qp->unretired) != 0 &&
               acked != ld(qp->idle_acked)) { /* it begins with this look */
        st(qp->idle_acked, acked);
        st(qp->idle_ns, soft_now_ns());
        polls = 0;
    } else if (ld(qp->unretired) != 0 && polls < SOFT_KICK_AFTER &&
               soft_now_ns() - ld(qp->idle_ns) >= TICK_NS) {
        polls = SOFT_KICK_AFTER;
    }
    st(qp->empty_polls, polls);
    if (polls >= SOFT_KICK_AFTER || ld(qp->rx_told) != ld(qp->rx_pos))
        soft_qp_idle(qp);
}
