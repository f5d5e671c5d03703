/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * responder.c - arrived messages: into posted receives, or executed.
 *
 * A slot's head is copied once, checked (arrived_head.h), and then only the copy is used. A message without a receive
 * stays in the ring (RNR) and is taken when one is posted.
 *
 * Owner: the QP's lock.
 */
#include "soft/rc/responder.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "soft/fault/inject.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/async_event.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/device.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/recv_queue.h"
#include "soft/object/ring.h"
#include "soft/object/srq.h"
#include "soft/rc/arrived_head.h"
#include "soft/rc/completer.h"
#include "soft/rc/described.h"
#include "soft/rc/order.h"
#include "soft/rc/progress.h"
#include "soft/rc/rdma_target.h"
#include "soft/rc/requester.h"
#include "soft/rc/scatter.h"
#include "soft/rc/stage.h"
#include "soft/rc/window.h"
#include "soft/soft.h"

static void advance(struct soft_qp *qp, unsigned span) {
    unsigned index = ld(qp->rx_index) + span;
    st(qp->rx_index, index >= SOFT_RING_SLOTS ? index - SOFT_RING_SLOTS : index);
    st(qp->rx_pos, ld(qp->rx_pos) + span);
}

/* ---- receives ----------------------------------------------------------------------------------- */

static inline struct soft_rqe *receive_get(struct soft_qp *qp) {
    if (__builtin_expect(qp->srq != NULL, 0)) {
        if (!qp->srq_taken) {
            st(qp->srq_seen, atomic_load_explicit(&qp->srq->posts, memory_order_acquire));
            qp->srq_taken = soft_srq_take(qp->srq, qp->srq_rqe);
        }
        return qp->srq_taken ? qp->srq_rqe : NULL;
    }
    return qp->rq.head == qp->rq.tail ? NULL : rqe_head(&qp->rq);
}

static inline void receive_done(struct soft_qp *qp) {
    if (qp->srq) {
        qp->srq_taken = false;
        qp->srq_received++;
    } else {
        qp->rq.head++;
    }
}

struct soft_rqe *soft_receive_get(struct soft_qp *qp) {
    return receive_get(qp);
}

void soft_receive_done(struct soft_qp *qp) {
    receive_done(qp);
}

/* The receive at the head fails, the sender is told why, the QP goes down. */
static void refuse(struct soft_qp *qp, struct sink *sink, struct soft_rqe *rqe,
                   enum ibv_wc_status status, enum soft_nak nak) {
    struct soft_ring *rx = ld(qp->rx);
    uint32_t pos = ld(qp->rx_pos);
    if (rqe) {
        struct ibv_wc wc = error_wc(qp, rqe->wr_id, status, IBV_WC_RECV);
        receive_done(qp);
        emit(sink, qp->ibv.recv_cq, &wc, true);
    }
    soft_tsan_publish(qp->attr.dest_qp_num);
    atomic_store_explicit(&rx->rx.acked, pos, memory_order_release);
    atomic_store_explicit(&rx->rx.nak, (uint64_t)pos << 8 | nak, memory_order_release);
    soft_qp_fail(qp);
    soft_qp_kick(qp);
}

/* The peer asked for something one-sided it may not have: no receive is involved. */
static void refuse_request(struct soft_qp *qp, struct sink *sink, enum soft_nak nak) {
    bool access = nak == SOFT_NAK_REMOTE_ACCESS;
    if (access ? soft_profile()->tells_target_access : soft_profile()->tells_target_request)
        soft_async_event(qp->ibv.context, access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR,
                         &qp->ibv);
    refuse(qp, sink, NULL, IBV_WC_SUCCESS, nak);
}

_Atomic uint64_t soft_rnr;

/* UC: this segment, and what is to come of the message, goes nowhere. */
static bool drop_on(struct soft_qp *qp, const struct arrived_head *h) {
    advance(qp, arrived_span(h));
    qp->rx_drop = qp->rx_partial = !(h->flags & SOFT_F_LAST);
    qp->rx_op = (uint8_t)h->op;
    qp->rx_offset = 0;
    qp->rx_left = 0;
    return true;
}

static bool drop(struct soft_qp *qp, const struct arrived_head *h, enum soft_drop why) {
    soft_drop(qp, why);
    return drop_on(qp, h);
}

/* No receive is posted: the sender waits, or does not care. */
static bool stall(struct soft_qp *qp, struct sink *sink, struct soft_ring *ring,
                  const struct arrived_head *h) {
    if (qp->unreliable)
        return drop(qp, h, SOFT_DROP_NO_RECEIVE);
    if (qp->iwarp) { /* iWARP has no RNR wait: it is an error, and ends the connection */
        refuse(qp, sink, NULL, IBV_WC_SUCCESS, SOFT_NAK_REMOTE_OPERATION);
        return false;
    }
    atomic_fetch_add_explicit(&soft_rnr, 1, memory_order_relaxed);
    atomic_store_explicit(&ring->rx.stalled, ld(qp->rx_pos) + 1, memory_order_release);
    st(qp->rx_stalled, true); /* until a receive is posted */
    return false;
}

static void complete_receive(struct soft_qp *qp, struct sink *sink, const struct soft_rqe *rqe,
                             const struct arrived_head *h, enum ibv_wc_opcode opcode,
                             uint32_t bytes) {
    struct ibv_wc wc = {.wr_id = rqe->wr_id,
                        .status = IBV_WC_SUCCESS,
                        .opcode = opcode,
                        .byte_len = bytes,
                        .imm_data = h->imm,
                        .qp_num = qp->ibv.qp_num,
                        .src_qp = qp->attr.dest_qp_num,
                        .wc_flags = h->flags & SOFT_F_IMM          ? IBV_WC_WITH_IMM
                                    : h->flags & SOFT_F_INVALIDATE ? IBV_WC_WITH_INV
                                                                   : 0};
    if (__builtin_expect(wc.wc_flags == IBV_WC_WITH_INV, 0) && !soft_profile()->shows_invalidation)
        wc.wc_flags = 0;
    qp->rx_offset = 0;
    receive_done(qp);
    if (__builtin_expect(qp->ordered, 0))
        soft_order_tell_early(qp);
    emit(sink, qp->ibv.recv_cq, &wc, (h->flags & SOFT_F_SOLICITED) != 0);
    if (__builtin_expect(qp->ordered, 0))
        soft_order_tell(qp);
}

/* The window the message names is the application's again. False: not yet, or that ended the QP. */
static bool invalidated(struct soft_qp *qp, struct sink *sink, uint32_t rkey) {
    enum ibv_wc_status status;
    if (!soft_mw_invalidate(qp, rkey, &status)) {
        soft_qp_attend(qp);
        st(qp->need_tick, true);
        soft_qp_timer_want();
        return false;
    }
    if (status != IBV_WC_SUCCESS)
        refuse_request(qp, sink, SOFT_NAK_REMOTE_ACCESS);
    return status == IBV_WC_SUCCESS;
}

/* A described message whose sender is down. */
static bool withdrawn(struct soft_qp *qp, const struct soft_ring *ring) {
    if (__builtin_expect(!described_withdrawn(ring), 1))
        return false;
    qp->rx_offset = 0; /* the receive is as good as new, and the message never arrives */
    if (qp->srq)
        st(qp->srq_seen, atomic_load_explicit(&qp->srq->posts, memory_order_acquire));
    st(qp->rx_stalled, true);
    return true;
}

static bool take_send(struct soft_qp *qp, struct sink *sink, struct soft_ring *ring,
                      const struct arrived_head *h) {
    if ((h->flags & SOFT_F_LAST) && !room(sink, qp->ibv.recv_cq))
        return false;
    /* Its regions may be known here before its LINK was handled; attach() looks again. */
    bool described = h->op == SOFT_OP_SEND_DESC;
    if (described && (!qp->link_peer || withdrawn(qp, ring)))
        return false;
    struct soft_rqe *rqe = receive_get(qp);
    if (!rqe)
        return stall(qp, sink, ring, h);
    if (__builtin_expect((h->flags & (SOFT_F_INVALIDATE | SOFT_F_LAST)) ==
                             (SOFT_F_INVALIDATE | SOFT_F_LAST),
                         0) &&
        !invalidated(qp, sink, h->imm))
        return false;
    enum scatter_result placed = described ? soft_scatter_desc(qp, rqe, ring, h->len)
                                           : soft_scatter_slots(qp, rqe, ring, h->len);
    if (described && withdrawn(qp, ring))
        return false;
    if (placed == SCATTER_TOO_LONG && qp->unreliable)
        return drop(qp, h, SOFT_DROP_TOO_LONG); /* the receive serves the next one */
    if (placed != SCATTER_DONE) {
        const struct soft_profile *like = soft_profile();
        bool too_long = placed == SCATTER_TOO_LONG;
        refuse(qp, sink, rqe,
               (enum ibv_wc_status)(too_long ? like->too_long_receive : like->wrong_receive),
               too_long ? (enum soft_nak)like->too_long_nak : SOFT_NAK_REMOTE_OPERATION);
        return false;
    }
    advance(qp, arrived_span(h));
    qp->rx_partial = !(h->flags & SOFT_F_LAST);
    qp->rx_op = (uint8_t)h->op;
    if (!qp->rx_partial)
        complete_receive(qp, sink, rqe, h, IBV_WC_RECV, (uint32_t)qp->rx_offset);
    else if (described && ld(qp->rx_pos) - ld(qp->rx_told) >= SOFT_STAGE_QP / 2)
        soft_qp_flush_ack(qp); /* the sender waits for blocks */
    return true;
}

static bool take_write(struct soft_qp *qp, struct sink *sink, struct soft_ring *ring,
                       const struct arrived_head *h) {
    bool last = (h->flags & SOFT_F_LAST) != 0, imm = last && (h->flags & SOFT_F_IMM);
    struct soft_rqe *rqe = NULL;
    if (imm) {
        if (!room(sink, qp->ibv.recv_cq))
            return false;
        rqe = receive_get(qp);
        if (!rqe)
            return stall(qp, sink, ring, h);
    }
    unsigned skip = 0, bytes = h->len;
    enum soft_nak nak = SOFT_NAK_NONE;
    if (h->flags & SOFT_F_FIRST) {
        struct soft_reth reth;
        skip = sizeof reth;
        bytes -= skip;
        soft_copy_slots(qp, ring, 0, &reth, sizeof reth);
        nak = soft_rdma_target_execute(qp, SOFT_OP_WRITE, &reth, NULL);
        qp->rx_offset = 0;
    }
    if (nak == SOFT_NAK_NONE && (bytes > qp->rx_left || last != (bytes == qp->rx_left)))
        nak = SOFT_NAK_INVALID_REQUEST;
    if (nak != SOFT_NAK_NONE && qp->unreliable)
        return drop(qp, h, SOFT_DROP_REFUSED);
    if (nak != SOFT_NAK_NONE) {
        refuse_request(qp, sink, nak);
        return false;
    }
    if (bytes && !soft_place_slots(qp, ring, skip, qp->rx_target, bytes)) {
        refuse(qp, sink, NULL, IBV_WC_SUCCESS, SOFT_NAK_REMOTE_OPERATION);
        return false;
    }
    if (bytes)
        qp->rx_target += bytes;
    qp->rx_left -= bytes;
    qp->rx_offset += bytes;
    advance(qp, arrived_span(h));
    qp->rx_partial = !last;
    qp->rx_op = (uint8_t)h->op;
    uint32_t total = (uint32_t)qp->rx_offset;
    if (last)
        qp->rx_offset = 0;
    if (imm)
        complete_receive(qp, sink, rqe, h, IBV_WC_RECV_RDMA_WITH_IMM, total);
    return true;
}

static bool take_write_done(struct soft_qp *qp, struct sink *sink, struct soft_ring *ring,
                            const struct arrived_head *h) {
    struct soft_reth reth;
    if (!room(sink, qp->ibv.recv_cq))
        return false;
    struct soft_rqe *rqe = receive_get(qp);
    if (!rqe)
        return stall(qp, sink, ring, h);
    soft_copy_slots(qp, ring, 0, &reth, sizeof reth);
    advance(qp, 1);
    complete_receive(qp, sink, rqe, h, IBV_WC_RECV_RDMA_WITH_IMM, reth.length);
    return true;
}

static bool take_request(struct soft_qp *qp, struct sink *sink, struct soft_ring *ring,
                         const struct arrived_head *h) {
    struct soft_reth reth;
    struct soft_atomic atomic = {0};
    soft_copy_slots(qp, ring, 0, &reth, sizeof reth);
    if (h->op == SOFT_OP_ATOMIC)
        soft_copy_slots(qp, ring, sizeof reth, &atomic, sizeof atomic);
    enum soft_nak nak = soft_rdma_target_execute(qp, h->op, &reth, &atomic);
    if (nak != SOFT_NAK_NONE) {
        refuse_request(qp, sink, nak);
        return false;
    }
    advance(qp, 1);
    return true;
}

static enum soft_nak nak_of(enum ibv_wc_status status) {
    return status == IBV_WC_LOC_LEN_ERR ? SOFT_NAK_INVALID_REQUEST : SOFT_NAK_REMOTE_OPERATION;
}

/* The decision of a fault plan about the next message. */
static bool may_take(struct soft_qp *qp, struct sink *sink, struct soft_ring *ring,
                     const struct arrived_head *h) {
    int status = 0;
    struct soft_rqe *rqe;
    if (atomic_load(&soft_port_down))
        return false;
    if (!arrived_takes_receive(h))
        return true;
    switch (soft_fault_receive(qp, ring, &status)) {
    case SOFT_FAULT_PASS:
        return true;
    case SOFT_FAULT_HOLD:
        return false;
    case SOFT_FAULT_LOSE: /* asked for again where it is taken */
        return true;
    case SOFT_FAULT_BREAK:
        rqe = receive_get(qp);
        if (rqe && room(sink, qp->ibv.recv_cq))
            refuse(qp, sink, rqe, (enum ibv_wc_status)status, nak_of((enum ibv_wc_status)status));
        if (!rqe)
            (void)stall(qp, sink, ring, h);
        return false;
    }
    return true;
}

/* One message segment. False: stop (no receive, no room, or the QP went down). */
static bool take_segment(struct soft_qp *qp, struct sink *sink, struct soft_ring *ring) {
    struct soft_slot *slot = &ring->slot[ld(qp->rx_index)];
    uint32_t word = ld(slot->word);
    struct arrived_head h = {.ack = ld(slot->ack),
                             .imm = ld(slot->imm),
                             .op = word & 0xff,
                             .flags = word >> 8 & 0xff,
                             .len = word >> 16};
    if (!note_ack(qp, h.ack) || !arrived_valid(qp, &h)) {
        refuse(qp, sink, NULL, IBV_WC_SUCCESS, SOFT_NAK_INVALID_REQUEST);
        return false;
    }
    if (__builtin_expect(qp->ordered, 0) && !soft_order_own_first(qp, sink))
        return false;
    if (__builtin_expect(qp->rx_drop, 0)) {
        qp->rx_drop = qp->rx_partial;
        if (qp->rx_drop)
            return drop_on(qp, &h);
    }
    if (qp->unreliable && atomic_load(&soft_port_down))
        return drop(qp, &h, SOFT_DROP_STATE);
    if (soft_fault_active() && !may_take(qp, sink, ring, &h))
        return false;
    switch ((enum soft_op)h.op) {
    case SOFT_OP_SEND:
    case SOFT_OP_SEND_DESC:
        return take_send(qp, sink, ring, &h);
    case SOFT_OP_WRITE:
        return take_write(qp, sink, ring, &h);
    case SOFT_OP_WRITE_DONE:
        return take_write_done(qp, sink, ring, &h);
    case SOFT_OP_READ:
    case SOFT_OP_ATOMIC:
        return take_request(qp, sink, ring, &h);
    case SOFT_OP_READ_RESPONSE:
    case SOFT_OP_ATOMIC_RESPONSE:
        if (!soft_rdma_target_take(qp, ring, ld(qp->rx_index), h.op, h.flags, h.len)) {
            refuse(qp, sink, NULL, IBV_WC_SUCCESS, SOFT_NAK_INVALID_REQUEST);
            return false;
        }
        advance(qp, arrived_span(&h));
        return true;
    case SOFT_OP_VIOLATION:
        refuse_request(qp, sink, (enum soft_nak)h.len);
        return false;
    }
    return false;
}

void soft_responder(struct soft_qp *qp, struct sink *sink) {
    spin_assert_held(&qp->lock);
    struct soft_ring *ring = ld(qp->rx);
    if (ring && qp->srq && ld(qp->rx_stalled) &&
        atomic_load_explicit(&qp->srq->posts, memory_order_acquire) != ld(qp->srq_seen)) {
        st(qp->rx_stalled, false);
        atomic_store_explicit(&ring->rx.stalled, 0, memory_order_release);
    }
    if (!ring || (qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD))
        return;
    uint32_t until = 0;
    if (__builtin_expect(qp->ordered, 0))
        until = soft_order_until(qp, sink);
    /* Bounded: a sender that never stops must not keep the lock from our own posts. */
    for (unsigned n = 0; n < 4 * SOFT_RING_SLOTS && !ld(qp->rx_stalled) && arrived(qp, ring); n++) {
        if (__builtin_expect(qp->ordered, 0) && (int32_t)(until - ld(qp->rx_pos)) <= 0)
            break;
        if (sink->cq == soft_cq_of(qp->ibv.recv_cq) && sink->n == sink->ne)
            break;
        if (!take_segment(qp, sink, ring))
            break;
        if (ld(qp->rx_pos) - ld(qp->rx_told) >= SOFT_RING_SLOTS / 4)
            soft_qp_flush_ack(qp);
    }
}
