/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * order.c - see order.h.
 *
 * The sends of other queue pairs are completed under their locks, which are tried only: a thread that has one QP's lock
 * waits for no other's. If one is taken, the messages wait for the next poll, or for the engine.
 */
#include "soft/rc/order.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "common/settings.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/cq_arrivals.h"
#include "soft/object/cq_pollset.h"
#include "soft/object/ring.h"
#include "soft/rc/completer.h"
#include "soft/rc/requester.h"

_Atomic unsigned soft_order_count;
static atomic_bool across; /* between queue pairs, too */

/* Inside of a QP's lock; those of others are tried with it held. */
static soft_spin list_lock;
static CDS_LIST_HEAD(list);

/* list_lock. The one that was alone has told what it took, or its lock is taken: false. */
static bool tell_one(struct soft_qp *qp) {
    if (!spin_try(&qp->lock))
        return false;
    soft_qp_flush_ack(qp);
    spin_unlock(&qp->lock);
    return true;
}

/* One that was alone relied on that: what it took is told before there is another way to answer. */
void soft_order_join(struct soft_qp *qp) {
    bool all = setting_value(SETTING_SOFT_ORDER, SETTING_ORDER_OFF) == SETTING_ORDER_ALL;
    spin_lock(&list_lock);
    st(across, all);
    cds_list_add_tail(&qp->order_link, &list);
    atomic_fetch_add(&soft_order_count, 1);
    while (ld(soft_order_count) == 2 &&
           !tell_one(cds_list_first_entry(&list, struct soft_qp, order_link))) {
        spin_unlock(&list_lock); /* its holder may wait for the list */
        sched_yield();
        spin_lock(&list_lock);
    }
    spin_unlock(&list_lock);
}

void soft_order_leave(struct soft_qp *qp) {
    spin_lock(&list_lock);
    cds_list_del(&qp->order_link);
    atomic_fetch_sub(&soft_order_count, 1);
    spin_unlock(&list_lock);
}

void soft_order_forked(void) {
    CDS_INIT_LIST_HEAD(&list);
    st(soft_order_count, 0);
    st(list_lock, 0);
}

/*
 * A program that sleeps on its receives may not poll again before the next message, and one that sleeps on its sends has
 * only the acknowledgement to wake it: neither may depend on later polls here.
 */
static bool is_slept_on(const struct soft_qp *qp) {
    return soft_cq_of(qp->own_recv_cq)->ibv.channel ||
           (qp->peer_send_armed && ld(*qp->peer_send_armed) != 0);
}

void soft_order_tell_early(struct soft_qp *qp) {
    if (ld(soft_order_count) > 1 && ld(across))
        soft_qp_flush_ack(qp);
}

void soft_order_tell(struct soft_qp *qp) {
    if (is_slept_on(qp))
        soft_qp_flush_ack(qp);
}

bool soft_order_waits(struct soft_qp *qp) {
    return qp->ordered && ld(qp->unretired) != 0 && soft_spin_wait_briefly(&qp->lock);
}

/* ---- sends first ------------------------------------------------------------------------------------- */

bool soft_order_own_first(struct soft_qp *qp, struct sink *sink) {
    soft_retire(qp, sink);
    return !soft_order_is_due(qp);
}

/* Its completions would go past older ones, which lie in the CQ's ring: the next poll takes those. */
static bool is_blocked(const struct soft_qp *qp, const struct sink *sink) {
    return soft_cq_of(qp->own_send_cq) == sink->cq &&
           atomic_load_explicit(&sink->cq->ring_count, memory_order_acquire) != 0;
}

/* Of another QP than the caller's. False: not now. */
static bool complete_one(struct soft_qp *qp, struct sink *sink) {
    if (__builtin_expect(!ld(qp->awaited) || !answered(qp), 1))
        return true;
    if (!spin_try(&qp->lock))
        return false;
    struct soft_ring *tx = ld(qp->tx);
    if (tx)
        (void)note_ack(qp, atomic_load_explicit(&tx->rx.acked, memory_order_acquire));
    bool done = !is_blocked(qp, sink) && soft_order_own_first(qp, sink);
    spin_unlock(&qp->lock);
    return done;
}

static bool complete_all(const struct soft_qp *but, struct sink *sink) {
    struct cds_list_head *at;
    bool done = true;
    spin_lock(&list_lock);
    cds_list_for_each(at, &list) {
        struct soft_qp *qp = cds_list_entry(at, struct soft_qp, order_link);
        if (qp != but && !complete_one(qp, sink)) {
            done = false;
            break;
        }
    }
    spin_unlock(&list_lock);
    return done;
}

/* Those that the CQ listens to: an acknowledgement that came without a message is announced (soft_qp_news()). */
static bool complete_told(const struct soft_qp *but, struct sink *sink) {
    struct soft_cq *cq = sink->cq;
    struct soft_arrival told[SOFT_ARRIVAL_MAX];
    uint32_t at = 0, left = cq->arrival_lines * (uint32_t)SOFT_TOLD_LINE;
    while (left > 0) {
        unsigned count = soft_arrivals_next(cq, &at, &left, told);
        for (unsigned i = 0; i < count; i++) {
            const struct soft_arrivals *line = &cq->arrivals[told[i].at / SOFT_TOLD_LINE];
            struct soft_qp *qp = line->qp[told[i].at % SOFT_TOLD_LINE];
            if (qp && qp != but &&
                line->seen.one[told[i].at % SOFT_TOLD_LINE].news != told[i].news &&
                !complete_one(qp, sink))
                return false;
        }
    }
    return true;
}

/* The poller has the poll lock. A QP with sends that are not complete is hot, or it is listened to. */
static bool complete_polled(const struct soft_qp *but, struct sink *sink) {
    struct soft_cq *cq = sink->cq;
    if (__builtin_expect(ld(cq->warm) != NULL, 0))
        soft_cq_pollset_take_warm(cq);
    for (unsigned i = 0; i < cq->hot_count; i++) {
        struct soft_qp *qp = cq->polled[i].qp;
        if (qp != but && !complete_one(qp, sink))
            return false;
    }
    return cq->arrival_lines == 0 || complete_told(but, sink);
}

/*
 * A poller of the receive CQ looks at the queue pairs of that. Sends that complete in another CQ only are found there when
 * that is polled; but if it is armed, its event goes first.
 */
static bool others_first(struct soft_qp *qp, struct sink *sink) {
    const struct soft_cq *cq = soft_cq_of(qp->own_recv_cq);
    if (sink->cq != cq || ld(cq->armed) != 0)
        return complete_all(qp, sink);
    return cq->qp_count == 1 || complete_polled(qp, sink);
}

static uint32_t visible_end(const struct soft_qp *qp) {
    struct soft_ring *ring = ld(qp->rx);
    uint32_t pos = ld(qp->rx_pos);
    unsigned index = ld(qp->rx_index);
    for (unsigned n = 0; n < SOFT_RING_SLOTS; n++, pos++, index = soft_slot_next(index))
        if (atomic_load_explicit(&ring->slot[index].seq, memory_order_acquire) != pos + 1)
            break;
    return pos;
}

/* A part of a message is enough: all of it was posted before. */
uint32_t soft_order_until(struct soft_qp *qp, struct sink *sink) {
    spin_assert_held(&qp->lock);
    if (__builtin_expect(ld(soft_order_count) == 1 || !ld(across), 1))
        return ld(qp->rx_pos) + SOFT_RING_SLOTS;
    uint32_t until = visible_end(qp);
    qp->held_back = false;
    if (until == ld(qp->rx_pos) || others_first(qp, sink))
        return until;
    if (sink->cq != soft_cq_of(qp->own_recv_cq)) { /* else the poller comes again */
        qp->held_back = true;
        soft_qp_attend(qp);
        st(qp->need_tick, true);
        soft_qp_timer_want();
    }
    return ld(qp->rx_pos);
}
