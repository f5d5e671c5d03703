/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_engine.c - see qp_engine.h.
 */
#include "soft/iwarp/qp_engine.h"

#include <sys/epoll.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_end.h"
#include "soft/iwarp/qp_heat.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"
#include "soft/object/upcalls.h"
#include "soft/rc/progress.h"

#define INSIDE_NS 20000000000ull
#define STARVED_NS 5000000000ull
#define MISSED_MAX 64u         /* ticks in a row that found another thread making a turn */
#define MEASURE_NS 1000000000u /* between two readings of TCP's segment size */

static void engine_turn(struct soft_qp *qp) { /* qp->lock */
    spin_assert_held(&qp->lock);
    struct sink sink = {.cq = NULL};
    qp->tcp->by_engine = true;
    soft_progress_locked(qp, &sink);
    qp->tcp->by_engine = false;
}

/* qp->lock, control lock. The dialer's first frame is here: the connection is established. */
static void tell(struct soft_qp *qp) {
    soft_assert_locked();
    spin_assert_held(&qp->lock);
    struct soft_tcp *tcp = qp->tcp;
    if (!tcp->listens || tcp->heard || tcp->rx.frames == 0)
        return;
    tcp->heard = true;
    soft_object_upcalls.tcp_heard(qp->cm);
}

bool soft_tcp_event(struct soft_qp *qp, uint32_t events, bool unpolled) {
    bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
    spin_lock(&qp->lock);
    struct soft_tcp *tcp = qp->tcp;
    bool polled = !unpolled && !soft_tcp_armed(qp) && soft_tcp_polled(qp);
    if (!tcp->down && !broken && !tcp->mute && polled) {
        soft_tcp_heat_up(qp);
    } else if (!tcp->down) {
        tcp->dry = tcp->left = false;
        engine_turn(qp);
        if (!tcp->down && soft_tcp_is_unread(qp) && soft_tcp_ends_unread(qp, events))
            engine_turn(qp);
    }
    tell(qp);
    bool reads = tcp->down || (!polled && (tcp->dry || tcp->left)); /* else polls read it */
    if (tcp->down)
        soft_tcp_leave(qp);
    spin_unlock(&qp->lock);
    return reads;
}

static void starve(struct soft_qp *qp, uint64_t now) {
    struct soft_tcp *tcp = qp->tcp;
    uint64_t limit = soft_rnr_ns(qp->attr.min_rnr_timer) * (qp->attr.rnr_retry + 1u);
    if (qp->attr.rnr_retry == 7 || limit > STARVED_NS)
        limit = STARVED_NS;
    if (!ld(qp->rx_stalled) && !(tcp->take_held && qp->fault.recv.rnr))
        tcp->starved_ns = 0;
    else if (tcp->starved_ns == 0)
        tcp->starved_ns = now;
    else if (now - tcp->starved_ns > limit)
        soft_tcp_terminate(qp, &(struct iwarp_terminate){.refusal = IWARP_UNTAGGED_NO_BUFFER});
}

/* Ends the stream if the peer does not finish a frame, or a message, that it began. */
static void wait_inside(struct soft_qp *qp, uint64_t now) {
    struct soft_tcp *tcp = qp->tcp;
    bool kept = ld(qp->rx_stalled) || tcp->full || tcp->dark || tcp->take_held;
    bool inside = !kept && iwarp_rx_inside(&tcp->rx);
    if (!inside || tcp->tick_frames != tcp->rx.frames || tcp->inside_ns == 0)
        tcp->inside_ns = inside ? now : 0;
    else if (now - tcp->inside_ns > INSIDE_NS)
        soft_tcp_terminate(qp, &(struct iwarp_terminate){.refusal = IWARP_MPA_LOST});
    tcp->tick_frames = tcp->rx.frames;
}

/* The path, and so TCP's segment size, may have changed. Only called for a QP that sends. */
static void measure(struct soft_tcp *tcp, uint64_t now) {
    tcp->tx.mulpdu = iwarp_stream_mulpdu(tcp->fd);
    tcp->measured_ns = now;
    tcp->tick_framed = tcp->tx.framed;
}

/*
 * A thread that has the lock makes a turn, in which it may lose its CPU: waiting for it, the engine would keep others from the
 * control lock, and contend for a CPU. Only limits of seconds need its look in any case, now and then.
 */
static bool tick_lock(struct soft_qp *qp) {
    struct soft_tcp *tcp = qp->tcp; /* control lock */
    if (!spin_try(&qp->lock)) {
        st(tcp->tick_missed, ld(tcp->tick_missed) + 1);
        if (ld(tcp->tick_missed) < MISSED_MAX)
            return false;
        spin_lock(&qp->lock);
    }
    st(tcp->tick_missed, 0);
    return true;
}

bool soft_tcp_tick(struct soft_qp *qp, uint64_t now) {
    if (!tick_lock(qp))
        return true;
    struct soft_tcp *tcp = qp->tcp;
    bool turned = tcp->tick_turns != tcp->turns; /* by another thread, since the last tick */
    if (!tcp->down && !turned && !soft_tcp_waits_to_be_told(qp)) {
        (void)soft_tcp_polled(qp); /* only polls from now on count */
        engine_turn(qp);
    }
    tcp->tick_turns = tcp->turns;
    if (!tcp->down)
        starve(qp, now);
    if (!tcp->down)
        wait_inside(qp, now);
    if (!tcp->down && tcp->tx.framed != tcp->tick_framed && now - tcp->measured_ns > MEASURE_NS)
        measure(tcp, now);
    bool shared = qp->srq && ld(qp->rx_stalled); /* a post to a shared queue wakes no QP */
    bool held = tcp->dark || tcp->send_held || tcp->take_held || tcp->ack_held;
    bool told = soft_tcp_waits_to_be_told(qp);
    /* That turn may have been before what the tick was asked for. */
    bool missed = turned && (ld(qp->attention) || qp->sq_head != qp->sq_tail);
    bool again = !tcp->down && ((tcp->hot && !told) || tcp->error != 0 || shared || held || missed);
    bool later = !tcp->down && (ld(qp->rx_stalled) || tcp->inside_ns != 0 || tcp->full);
    if (!again && !later)
        st(qp->need_tick, false);
    tell(qp);
    if (tcp->down) {
        soft_tcp_leave(qp);
        engine_turn(qp); /* flushes */
    }
    spin_unlock(&qp->lock);
    return again;
}
