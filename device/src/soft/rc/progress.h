/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * progress.h - what the parts of progress share: where completions go, acknowledgements, whether
 * there is work.
 *
 * progress.c calls responder.c (messages into receives, by way of scatter.c) and completer.c (completion
 * of sends, errors, flush); poll.c has a short way for plain messages.
 *
 * Owner: the QP's lock, except for reads that are marked as a hint.
 */
#ifndef SOFT_RC_PROGRESS_H
#define SOFT_RC_PROGRESS_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/spinlock.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/object/srq.h"

#define SOFT_LOOK_EVERY 64   /* empty polls between looks at what is seldom there */
#define SOFT_KICK_AFTER 2048 /* and before a peer is rung that does not answer */

/* Where completions of one call go. */
struct sink {
    struct soft_cq *cq; /* completions of this CQ go to wc, others to their ring */
    struct ibv_wc *wc;
    int n, ne;
};

/* A flush waits for the poller rather than overrun the CQ; a dead one swallows what comes. */
static inline bool room_to_flush(const struct sink *sink, struct ibv_cq *ibcq) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (cq == sink->cq)
        return sink->n < sink->ne;
    return ld(cq->ring_count) < ld(cq->limit) || ld(cq->dead);
}

static inline bool room(const struct sink *sink, struct ibv_cq *ibcq) {
    bool any = room_to_flush(sink, ibcq);
    if (__builtin_expect(!any, 0) && soft_cq_of(ibcq) != sink->cq) {
        soft_cq_overrun(soft_cq_of(ibcq));
        return true;
    }
    return any;
}

static inline void emit(struct sink *sink, struct ibv_cq *ibcq, const struct ibv_wc *wc,
                        bool solicited) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (cq == sink->cq) {
        sink->wc[sink->n++] = *wc;
        if (__builtin_expect(ld(cq->armed) != 0, 0))
            soft_cq_signal(cq, solicited);
    } else if (!ld(cq->dead) && !soft_cq_push(cq, wc, solicited)) {
        soft_cq_overrun(cq); /* another queue pair took the last place since room() */
    }
}

static inline struct ibv_wc error_wc(const struct soft_qp *qp, uint64_t wr_id,
                                     enum ibv_wc_status status, enum ibv_wc_opcode opcode) {
    return (struct ibv_wc){
        .wr_id = wr_id, .status = status, .opcode = opcode, .qp_num = qp->ibv.qp_num};
}

/* An acknowledgement from the peer: believed only within what was sent. */
static inline bool note_ack(struct soft_qp *qp, uint32_t ack) {
    uint32_t acked = ld(qp->tx_acked);
    if ((int32_t)(ack - acked) <= 0)
        return true; /* slots and the ring's header tell the same story, not in step */
    if (ack - acked > ld(qp->tx_published) - acked)
        return false;
    soft_tsan_observe(qp->ibv.qp_num); /* it may have come since the lock was taken */
    st(qp->tx_acked, ack);
    return true;
}

static inline bool arrived(struct soft_qp *qp, struct soft_ring *ring) {
    const struct soft_slot *slot = &ring->slot[ld(qp->rx_index)];
    if (atomic_load_explicit(&slot->seq, memory_order_acquire) != ld(qp->rx_pos) + 1)
        return false;
    soft_tsan_observe(qp->ibv.qp_num);
    /* The second line comes from the other CPU too: ask for it while the first is looked at. */
    __builtin_prefetch((const uint8_t *)slot + 64);
    return true;
}

/* Waits for a receive, and none was posted since. */
static inline bool still_stalled(struct soft_qp *qp) {
    if (__builtin_expect(!ld(qp->rx_stalled), 1))
        return false;
    return !qp->srq ||
           atomic_load_explicit(&qp->srq->posts, memory_order_acquire) == ld(qp->srq_seen);
}

/* A send that a poller waits for was answered, or room came for those that wait for it. */
static inline bool answered(const struct soft_qp *qp) {
    bool backlog = ld(qp->backlog);
    if (__builtin_expect(!ld(qp->awaited) && !backlog, 1))
        return false;
    uint32_t acked = ld(qp->tx_acked), enough = backlog ? acked + 1 : ld(qp->due);
    if ((int32_t)(acked - enough) >= 0)
        return true;
    const struct soft_ring *tx = atomic_load_explicit(&qp->tx, memory_order_acquire);
    return tx && (int32_t)(ld(tx->rx.acked) - enough) >= 0;
}

/* The fields that a poller looks at. A hint, no lock. */
static inline bool soft_qp_has_work(struct soft_qp *qp) {
    struct soft_ring *rx = atomic_load_explicit(&qp->rx, memory_order_acquire);
    if (rx && arrived(qp, rx) && !still_stalled(qp))
        return true;
    return ld(qp->attention) || answered(qp);
}

/* Whether there is any work that the peer left, for callers that do not come again soon. */
static inline bool soft_qp_has_any_work(struct soft_qp *qp) {
    if (soft_qp_has_work(qp))
        return true;
    if (ld(qp->unretired)) {
        struct soft_ring *tx = atomic_load_explicit(&qp->tx, memory_order_acquire);
        if (tx && ((int32_t)(ld(tx->rx.acked) - ld(qp->tx_acked)) > 0 || ld(tx->rx.down) ||
                   ld(tx->rx.nak)))
            return true;
    }
    return false;
}

/* Makes all progress possible; completions go to the rings of their CQs. Takes qp->lock. */
void soft_qp_progress(struct soft_qp *qp);
void soft_progress_locked(struct soft_qp *qp, struct sink *sink); /* qp->lock */

#endif
