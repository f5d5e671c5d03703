/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * receive.c - the responder, and completion of both directions.
 *
 * Whoever makes progress (a poller, the engine) takes a QP's lock and: places arrived messages into
 * posted receives, retires acknowledged sends, moves queued sends into the ring, and in the ERR
 * state flushes. A slot's head is copied once, checked and then only the copy is used; descriptors
 * likewise. A message without a receive stays in the ring (RNR) and is taken when one is posted.
 *
 * Owner: the QP's lock.
 */
#include <errno.h>
#include <string.h>

#include "soft/device_state.h"
#include "soft/object.h"
#include "soft/peer_internal.h"
#include "soft/soft.h"

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
    return ld(cq->ring_count) < cq->ring_capacity || ld(cq->dead);
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
    } else if (!ld(cq->dead)) {
        soft_cq_push(cq, wc, solicited);
    }
}

/* ---- error state -------------------------------------------------------------------------------- */

static bool head_acked(struct soft_qp *qp) {
    const struct soft_wqe *wqe = &qp->sq[qp->sq_head & qp->sq_mask];
    return qp->sq_head != qp->sq_next && (int32_t)(ld(qp->tx_acked) - wqe->end) >= 0 &&
           !wqe->waiting && wqe->status == IBV_WC_SUCCESS;
}

/* Enters ERR: no more traffic either way, the peer is shown, everything posted will be flushed. */
void soft_qp_fail(struct soft_qp *qp) {
    if (qp->state == IBV_QPS_ERR)
        return;
    struct soft_ring *rx = ld(qp->rx), *tx = ld(qp->tx);
    if (rx) {
        atomic_store_explicit(&rx->rx.acked, ld(qp->rx_pos), memory_order_release);
        atomic_store_explicit(&rx->rx.down, 1, memory_order_release);
    }
    if (tx)
        atomic_store_explicit(&tx->tx.down, 1, memory_order_release);
    qp->state = qp->ibv.state = IBV_QPS_ERR;
    qp->sq_broken = false;
    qp->answer_head = qp->answer_tail;
    qp->waiting = 0;
    qp->rx_left = 0;
    st(qp->unretired, 0);
    st(qp->rx_stalled, false);
    st(qp->attention, ATT_WORK);
}

static struct ibv_wc error_wc(const struct soft_qp *qp, uint64_t wr_id, enum ibv_wc_status status,
                              enum ibv_wc_opcode opcode) {
    return (struct ibv_wc){
        .wr_id = wr_id, .status = status, .opcode = opcode, .qp_num = qp->ibv.qp_num};
}

static inline struct soft_rqe *rqe_head(struct soft_recv_queue *rq) {
    return (struct soft_rqe *)(rq->entries + (size_t)(rq->head & rq->mask) * rq->stride);
}

/* False: a CQ has no room, call again. */
static bool flush(struct soft_qp *qp, struct sink *sink) {
    /* What was acknowledged before completes as such; from the first flush on nothing does any more. */
    if (!qp->flushing && head_acked(qp))
        return false;
    qp->flushing = true;
    while (qp->sq_head != qp->sq_tail) {
        if (!room_to_flush(sink, qp->ibv.send_cq))
            return false;
        struct soft_wqe *wqe = &qp->sq[qp->sq_head++ & qp->sq_mask];
        struct ibv_wc wc = error_wc(qp, wqe->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND);
        qp->sq_free = qp->sq_next = qp->sq_head; /* from here on no acknowledgement counts */
        emit(sink, qp->ibv.send_cq, &wc, true);
    }
    if (qp->srq) {
        /* shared receives stay for the others; one half filled is ours to end */
        if (qp->srq_taken) {
            if (!room_to_flush(sink, qp->ibv.recv_cq))
                return false;
            struct ibv_wc wc =
                error_wc(qp, qp->srq_rqe->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
            qp->srq_taken = false;
            emit(sink, qp->ibv.recv_cq, &wc, true);
        }
        if (!qp->last_wqe_told) {
            qp->last_wqe_told = true;
            soft_async_event(qp->ibv.context, IBV_EVENT_QP_LAST_WQE_REACHED, &qp->ibv);
        }
        return true;
    }
    while (qp->rq.head != qp->rq.tail) {
        if (!room_to_flush(sink, qp->ibv.recv_cq))
            return false;
        struct ibv_wc wc =
            error_wc(qp, rqe_head(&qp->rq)->wr_id, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV);
        qp->rq.head++;
        emit(sink, qp->ibv.recv_cq, &wc, true);
    }
    return true;
}

/* The send at the head ends with this status and takes the QP down. False: no room yet. */
static bool fail_head(struct soft_qp *qp, struct sink *sink, enum ibv_wc_status status) {
    if (!room(sink, qp->ibv.send_cq)) {
        st(qp->attention, ATT_WORK);
        return false;
    }
    struct soft_wqe *wqe = &qp->sq[qp->sq_head++ & qp->sq_mask];
    struct ibv_wc wc = error_wc(qp, wqe->wr_id, status, IBV_WC_SEND);
    qp->sq_free = qp->sq_next = qp->sq_head; /* no success may follow */
    soft_qp_fail(qp);
    emit(sink, qp->ibv.send_cq, &wc, true);
    return true;
}

/* ---- completion of sends ------------------------------------------------------------------------ */

/* An acknowledgement from the peer: believed only within what was sent. */
static inline bool note_ack(struct soft_qp *qp, uint32_t ack) {
    uint32_t acked = ld(qp->tx_acked);
    if ((int32_t)(ack - acked) <= 0)
        return true; /* slots and the ring's header tell the same story, not in step */
    if (ack - acked > qp->tx_published - acked)
        return false;
    st(qp->tx_acked, ack);
    return true;
}

static enum ibv_wc_status nak_status(uint64_t nak) {
    switch ((enum soft_nak)(nak & 0xff)) {
    case SOFT_NAK_REMOTE_ACCESS:
        return IBV_WC_REM_ACCESS_ERR;
    case SOFT_NAK_REMOTE_OPERATION:
        return IBV_WC_REM_OP_ERR;
    case SOFT_NAK_NONE:
    case SOFT_NAK_INVALID_REQUEST:
        break;
    }
    return IBV_WC_REM_INV_REQ_ERR;
}

static enum ibv_wc_opcode wc_opcode(unsigned opcode) {
    switch ((enum ibv_wr_opcode)opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
        return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
        return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return IBV_WC_FETCH_ADD;
    case IBV_WR_LOCAL_INV:
        return IBV_WC_LOCAL_INV;
    case IBV_WR_BIND_MW:
        return IBV_WC_BIND_MW;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_TSO:
    case IBV_WR_DRIVER1:
    case IBV_WR_ATOMIC_WRITE:
        break;
    }
    return IBV_WC_SEND;
}

static void retire(struct soft_qp *qp, struct sink *sink) {
    uint32_t acked = ld(qp->tx_acked);
    while (qp->sq_head != qp->sq_next) {
        struct soft_wqe *wqe = &qp->sq[qp->sq_head & qp->sq_mask];
        if ((int32_t)(acked - wqe->end) < 0 || wqe->waiting || wqe->status != IBV_WC_SUCCESS)
            break;
        if (wqe->flags & IBV_SEND_SIGNALED) {
            if (!room(sink, qp->ibv.send_cq)) {
                st(qp->attention, ATT_WORK);
                break;
            }
            struct ibv_wc wc = {.wr_id = wqe->wr_id,
                                .status = IBV_WC_SUCCESS,
                                .opcode = wc_opcode(wqe->opcode),
                                .byte_len = wqe->total,
                                .qp_num = qp->ibv.qp_num};
            qp->sq_free = ++qp->sq_head;
            emit(sink, qp->ibv.send_cq, &wc, false);
        } else {
            qp->sq_head++; /* its place is free again when a later one completes */
        }
    }
    st(qp->unretired, qp->sq_tail - qp->sq_head);
}

/* Acknowledgements, refusals and the end of the peer. */
static void requester(struct soft_qp *qp, struct sink *sink) {
    if (qp->flushing)
        return;
    struct soft_ring *tx = ld(qp->tx), *rx = ld(qp->rx);
    uint64_t nak = 0;
    bool down = qp->peer_gone;
    if (tx) {
        /* read the verdicts before the acknowledgement that was stored before them */
        down |= atomic_load_explicit(&tx->rx.down, memory_order_acquire) != 0;
        nak = atomic_load_explicit(&tx->rx.nak, memory_order_acquire);
        if (!note_ack(qp, atomic_load_explicit(&tx->rx.acked, memory_order_acquire)))
            down = true;
    }
    if (rx && atomic_load_explicit(&rx->tx.down, memory_order_acquire))
        down |= atomic_load_explicit(&rx->slot[ld(qp->rx_index)].seq, memory_order_acquire) !=
                ld(qp->rx_pos) + 1; /* what it sent before still counts */
    retire(qp, sink);
    if (qp->sq_head == qp->sq_tail || qp->state != IBV_QPS_RTS)
        return;
    struct soft_wqe *wqe = &qp->sq[qp->sq_head & qp->sq_mask];
    if (head_acked(qp))
        return; /* waits for room in the CQ */
    if (nak)
        fail_head(qp, sink, nak_status(nak));
    else if (down)
        fail_head(qp, sink, IBV_WC_RETRY_EXC_ERR);
    else if (wqe->status != IBV_WC_SUCCESS && !wqe->waiting &&
             (qp->sq_head == qp->sq_next || (int32_t)(ld(qp->tx_acked) - wqe->end) >= 0))
        fail_head(qp, sink, (enum ibv_wc_status)wqe->status);
    else if (qp->give_up)
        fail_head(qp, sink, (enum ibv_wc_status)qp->give_up);
}

/* ---- placing messages --------------------------------------------------------------------------- */

struct head { /* private copy of a slot's head */
    uint32_t ack, imm;
    unsigned op, flags, len;
};

enum placed { PLACED, TOO_LONG, BAD_BUFFER };

static enum placed place(struct soft_qp *qp, const struct soft_rqe *rqe, const uint8_t *from,
                         uint64_t bytes) {
    uint64_t at = qp->rx_offset;
    qp->rx_offset += bytes;
    for (unsigned i = 0; bytes && i < rqe->num_sge; i++) {
        const struct ibv_sge *sge = &rqe->sge[i];
        if (at >= sge->length) {
            at -= sge->length;
            continue;
        }
        struct soft_mr *mr = soft_mr_find(sge->lkey, qp->ibv.pd);
        uint8_t *to =
            mr ? soft_mr_range(mr, sge->addr, sge->length, IBV_ACCESS_LOCAL_WRITE) : NULL;
        if (!to)
            return BAD_BUFFER;
        uint64_t n = sge->length - at < bytes ? sge->length - at : bytes;
        memcpy(to + at, from, n);
        from += n;
        bytes -= n;
        at = 0;
    }
    return bytes ? TOO_LONG : PLACED;
}

static enum placed place_slots(struct soft_qp *qp, const struct soft_rqe *rqe,
                               struct soft_ring *ring, unsigned len) {
    unsigned index = ld(qp->rx_index);
    enum placed placed = PLACED;
    do {
        unsigned n = len < SOFT_SLOT_PAYLOAD ? len : SOFT_SLOT_PAYLOAD;
        placed = place(qp, rqe, ring->slot[index].data, n);
        len -= n;
        index = soft_slot_next(index);
    } while (len && placed == PLACED);
    return placed;
}

static enum placed place_desc(struct soft_qp *qp, const struct soft_rqe *rqe,
                              struct soft_ring *ring, unsigned count) {
    struct soft_desc desc[SOFT_MAX_SGE];
    unsigned index = ld(qp->rx_index), per_slot = SOFT_SLOT_PAYLOAD / sizeof *desc;
    for (unsigned i = 0; i < count; i++) {
        memcpy(&desc[i], ring->slot[index].data + (i % per_slot) * sizeof *desc, sizeof *desc);
        if (i % per_slot == per_slot - 1)
            index = soft_slot_next(index);
    }
    for (unsigned i = 0; i < count; i++) {
        if (desc[i].region >= SOFT_MAX_REGIONS || !qp->link_peer)
            return BAD_BUFFER;
        const struct soft_peer_region *region = &qp->link_peer->regions[desc[i].region];
        const uint8_t *from = atomic_load_explicit(&region->addr, memory_order_acquire);
        if (!from || desc[i].length > region->bytes ||
            desc[i].offset > region->bytes - desc[i].length)
            return BAD_BUFFER;
        enum placed placed = place(qp, rqe, from + desc[i].offset, desc[i].length);
        if (placed != PLACED)
            return placed;
    }
    return PLACED;
}

/* ---- receives ----------------------------------------------------------------------------------- */

/* The receive the present message goes to; taken off a shared queue when it begins. NULL: none. */
static inline struct soft_rqe *receive_get(struct soft_qp *qp) {
    if (__builtin_expect(qp->srq != NULL, 0)) {
        if (!qp->srq_taken) {
            st(qp->srq_seen,
               atomic_load_explicit(&qp->srq->posts, memory_order_acquire));
            qp->srq_taken = soft_srq_take(qp->srq, qp->srq_rqe);
        }
        return qp->srq_taken ? qp->srq_rqe : NULL;
    }
    return qp->rq.head == qp->rq.tail ? NULL : rqe_head(&qp->rq);
}

static inline void receive_done(struct soft_qp *qp) {
    if (qp->srq) {
        qp->srq_taken = false;
        qp->fault.received++;
    } else {
        qp->rq.head++;
    }
}

/* The receive at the head fails, the sender is told why, the QP goes down. */
static void refuse(struct soft_qp *qp, struct sink *sink, struct soft_rqe *rqe,
                   enum ibv_wc_status status, enum soft_nak nak) {
    struct soft_ring *rx = ld(qp->rx);
    uint32_t pos = ld(qp->rx_pos);
    atomic_store_explicit(&rx->rx.acked, pos, memory_order_release);
    atomic_store_explicit(&rx->rx.nak, (uint64_t)pos << 8 | nak, memory_order_release);
    if (rqe) {
        struct ibv_wc wc = error_wc(qp, rqe->wr_id, status, IBV_WC_RECV);
        receive_done(qp);
        emit(sink, qp->ibv.recv_cq, &wc, true);
    }
    soft_qp_fail(qp);
    soft_qp_kick(qp);
}

/* The peer asked for something one-sided it may not have: no receive is involved. */
static void refuse_request(struct soft_qp *qp, struct sink *sink, enum soft_nak nak) {
    soft_async_event(qp->ibv.context,
                     nak == SOFT_NAK_REMOTE_ACCESS ? IBV_EVENT_QP_ACCESS_ERR
                                                   : IBV_EVENT_QP_REQ_ERR,
                     &qp->ibv);
    refuse(qp, sink, NULL, IBV_WC_SUCCESS, nak);
}

static bool head_valid(const struct soft_qp *qp, const struct head *h) {
    unsigned known =
        SOFT_F_FIRST | SOFT_F_LAST | SOFT_F_IMM | SOFT_F_SOLICITED | SOFT_F_INVALIDATE;
    unsigned whole = SOFT_F_FIRST | SOFT_F_LAST;
    if (h->flags & ~known)
        return false;
    switch ((enum soft_op)h->op) {
    case SOFT_OP_SEND:
    case SOFT_OP_WRITE:
        if (((h->flags & SOFT_F_FIRST) != 0) == qp->rx_partial ||
            (qp->rx_partial && qp->rx_op != h->op))
            return false;
        if (h->op == SOFT_OP_WRITE && !qp->rx_partial && h->len < sizeof(struct soft_reth))
            return false;
        return h->len <= SOFT_SEGMENT_MAX;
    case SOFT_OP_SEND_DESC:
        return !qp->rx_partial && (h->flags & whole) == whole && h->len >= 1 &&
               h->len <= SOFT_MAX_SGE;
    case SOFT_OP_WRITE_DONE:
        return !qp->rx_partial && (h->flags & whole) == whole && (h->flags & SOFT_F_IMM) &&
               h->len == sizeof(struct soft_reth);
    case SOFT_OP_READ:
        return !qp->rx_partial && h->len == sizeof(struct soft_reth);
    case SOFT_OP_ATOMIC:
        return !qp->rx_partial &&
               h->len == sizeof(struct soft_reth) + sizeof(struct soft_atomic);
    case SOFT_OP_READ_RESPONSE:
    case SOFT_OP_ATOMIC_RESPONSE:
        return h->len <= SOFT_SEGMENT_MAX;
    case SOFT_OP_VIOLATION:
        return h->len == SOFT_NAK_REMOTE_ACCESS || h->len == SOFT_NAK_INVALID_REQUEST;
    }
    return false;
}

static unsigned head_span(const struct head *h) {
    switch ((enum soft_op)h->op) {
    case SOFT_OP_SEND_DESC:
        return soft_span(h->len * (unsigned)sizeof(struct soft_desc));
    case SOFT_OP_VIOLATION:
        return 1;
    case SOFT_OP_SEND:
    case SOFT_OP_WRITE:
    case SOFT_OP_WRITE_DONE:
    case SOFT_OP_READ:
    case SOFT_OP_ATOMIC:
    case SOFT_OP_READ_RESPONSE:
    case SOFT_OP_ATOMIC_RESPONSE:
        break;
    }
    return soft_span(h->len);
}

static void advance(struct soft_qp *qp, unsigned span) {
    unsigned index = ld(qp->rx_index) + span;
    st(qp->rx_index, index >= SOFT_RING_SLOTS ? index - SOFT_RING_SLOTS : index);
    st(qp->rx_pos, ld(qp->rx_pos) + span);
}

static bool stall(struct soft_qp *qp, struct soft_ring *ring) {
    atomic_store_explicit(&ring->rx.stalled, ld(qp->rx_pos) + 1, memory_order_release);
    st(qp->rx_stalled, true); /* until a receive is posted */
    return false;
}

static void complete_receive(struct soft_qp *qp, struct sink *sink, const struct soft_rqe *rqe,
                             const struct head *h, enum ibv_wc_opcode opcode, uint32_t bytes) {
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
    qp->rx_offset = 0;
    receive_done(qp);
    emit(sink, qp->ibv.recv_cq, &wc, (h->flags & SOFT_F_SOLICITED) != 0);
}

static bool take_send(struct soft_qp *qp, struct sink *sink, struct soft_ring *ring,
                      const struct head *h) {
    if ((h->flags & SOFT_F_LAST) && !room(sink, qp->ibv.recv_cq))
        return false;
    /* Its regions may be known here before its LINK was handled; attach() looks again. */
    if (h->op == SOFT_OP_SEND_DESC && !qp->link_peer)
        return false;
    struct soft_rqe *rqe = receive_get(qp);
    if (!rqe)
        return stall(qp, ring);
    enum placed placed = h->op == SOFT_OP_SEND ? place_slots(qp, rqe, ring, h->len)
                                               : place_desc(qp, rqe, ring, h->len);
    if (placed != PLACED) {
        bool too_long = placed == TOO_LONG;
        refuse(qp, sink, rqe, too_long ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR,
               too_long ? SOFT_NAK_INVALID_REQUEST : SOFT_NAK_REMOTE_OPERATION);
        return false;
    }
    if ((h->flags & (SOFT_F_INVALIDATE | SOFT_F_LAST)) == (SOFT_F_INVALIDATE | SOFT_F_LAST) &&
        !soft_mw_invalidate(qp, h->imm)) {
        refuse_request(qp, sink, SOFT_NAK_REMOTE_ACCESS);
        return false;
    }
    advance(qp, head_span(h));
    qp->rx_partial = !(h->flags & SOFT_F_LAST);
    qp->rx_op = (uint8_t)h->op;
    if (!qp->rx_partial)
        complete_receive(qp, sink, rqe, h, IBV_WC_RECV, (uint32_t)qp->rx_offset);
    return true;
}

/* Bytes of the slots of a message that starts at the reader's index, from offset on. */
static void copy_slots(struct soft_qp *qp, struct soft_ring *ring, unsigned offset, void *out,
                       unsigned bytes) {
    unsigned index = ld(qp->rx_index) + offset / SOFT_SLOT_PAYLOAD;
    uint8_t *to = out;
    for (offset %= SOFT_SLOT_PAYLOAD; bytes; offset = 0, index++) {
        unsigned n = SOFT_SLOT_PAYLOAD - offset < bytes ? SOFT_SLOT_PAYLOAD - offset : bytes;
        memcpy(to, ring->slot[index % SOFT_RING_SLOTS].data + offset, n);
        to += n;
        bytes -= n;
    }
}

static bool take_write(struct soft_qp *qp, struct sink *sink, struct soft_ring *ring,
                       const struct head *h) {
    bool last = (h->flags & SOFT_F_LAST) != 0, imm = last && (h->flags & SOFT_F_IMM);
    struct soft_rqe *rqe = NULL;
    if (imm) {
        if (!room(sink, qp->ibv.recv_cq))
            return false;
        rqe = receive_get(qp);
        if (!rqe)
            return stall(qp, ring);
    }
    unsigned skip = 0, bytes = h->len;
    enum soft_nak nak = SOFT_NAK_NONE;
    if (h->flags & SOFT_F_FIRST) {
        struct soft_reth reth;
        skip = sizeof reth;
        bytes -= skip;
        copy_slots(qp, ring, 0, &reth, sizeof reth);
        nak = soft_execute(qp, SOFT_OP_WRITE, &reth, NULL);
        qp->rx_offset = 0;
    }
    if (nak == SOFT_NAK_NONE && (bytes > qp->rx_left || last != (bytes == qp->rx_left)))
        nak = SOFT_NAK_INVALID_REQUEST;
    if (nak != SOFT_NAK_NONE) {
        refuse_request(qp, sink, nak);
        return false;
    }
    copy_slots(qp, ring, skip, qp->rx_target, bytes);
    if (bytes)
        qp->rx_target += bytes;
    qp->rx_left -= bytes;
    qp->rx_offset += bytes;
    advance(qp, head_span(h));
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
                            const struct head *h) {
    struct soft_reth reth;
    if (!room(sink, qp->ibv.recv_cq))
        return false;
    struct soft_rqe *rqe = receive_get(qp);
    if (!rqe)
        return stall(qp, ring);
    copy_slots(qp, ring, 0, &reth, sizeof reth);
    advance(qp, 1);
    complete_receive(qp, sink, rqe, h, IBV_WC_RECV_RDMA_WITH_IMM, reth.length);
    return true;
}

static bool take_request(struct soft_qp *qp, struct sink *sink, struct soft_ring *ring,
                         const struct head *h) {
    struct soft_reth reth;
    struct soft_atomic atomic = {0};
    copy_slots(qp, ring, 0, &reth, sizeof reth);
    if (h->op == SOFT_OP_ATOMIC)
        copy_slots(qp, ring, sizeof reth, &atomic, sizeof atomic);
    enum soft_nak nak = soft_execute(qp, h->op, &reth, &atomic);
    if (nak != SOFT_NAK_NONE) {
        refuse_request(qp, sink, nak);
        return false;
    }
    advance(qp, 1);
    return true;
}

static bool takes_receive(const struct head *h) {
    switch ((enum soft_op)h->op) {
    case SOFT_OP_SEND:
    case SOFT_OP_SEND_DESC:
        return (h->flags & SOFT_F_FIRST) != 0;
    case SOFT_OP_WRITE:
    case SOFT_OP_WRITE_DONE:
        return (h->flags & (SOFT_F_LAST | SOFT_F_IMM)) == (SOFT_F_LAST | SOFT_F_IMM);
    case SOFT_OP_READ:
    case SOFT_OP_ATOMIC:
    case SOFT_OP_READ_RESPONSE:
    case SOFT_OP_ATOMIC_RESPONSE:
    case SOFT_OP_VIOLATION:
        break;
    }
    return false;
}

static enum soft_nak nak_of(enum ibv_wc_status status) {
    return status == IBV_WC_LOC_LEN_ERR ? SOFT_NAK_INVALID_REQUEST : SOFT_NAK_REMOTE_OPERATION;
}

/* What a fault plan says about the message next in line. */
static bool may_take(struct soft_qp *qp, struct sink *sink, struct soft_ring *ring,
                     const struct head *h) {
    int status = 0;
    struct soft_rqe *rqe;
    if (atomic_load(&soft_port_down))
        return false;
    if (!takes_receive(h))
        return true;
    switch (soft_fault_receive(qp, ring, &status)) {
    case SOFT_FAULT_PASS:
        return true;
    case SOFT_FAULT_HOLD:
        return false;
    case SOFT_FAULT_BREAK:
        rqe = receive_get(qp);
        if (rqe && room(sink, qp->ibv.recv_cq))
            refuse(qp, sink, rqe, (enum ibv_wc_status)status, nak_of((enum ibv_wc_status)status));
        return rqe ? false : stall(qp, ring);
    }
    return true;
}

/* One message segment. False: stop (no receive, no room, or the QP went down). */
static bool take_segment(struct soft_qp *qp, struct sink *sink, struct soft_ring *ring) {
    struct soft_slot *slot = &ring->slot[ld(qp->rx_index)];
    uint32_t word = slot->word;
    struct head h = {.ack = slot->ack,
                     .imm = slot->imm,
                     .op = word & 0xff,
                     .flags = word >> 8 & 0xff,
                     .len = word >> 16};
    if (!note_ack(qp, h.ack) || !head_valid(qp, &h)) {
        refuse(qp, sink, NULL, IBV_WC_SUCCESS, SOFT_NAK_INVALID_REQUEST);
        return false;
    }
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
        if (!soft_answer_take(qp, ring, ld(qp->rx_index), h.op, h.flags, h.len)) {
            refuse(qp, sink, NULL, IBV_WC_SUCCESS, SOFT_NAK_INVALID_REQUEST);
            return false;
        }
        advance(qp, head_span(&h));
        return true;
    case SOFT_OP_VIOLATION:
        refuse_request(qp, sink, (enum soft_nak)h.len);
        return false;
    }
    return false;
}

static inline bool arrived(struct soft_qp *qp, struct soft_ring *ring) {
    return atomic_load_explicit(&ring->slot[ld(qp->rx_index)].seq, memory_order_acquire) ==
           ld(qp->rx_pos) + 1;
}

static void responder(struct soft_qp *qp, struct sink *sink) {
    struct soft_ring *ring = ld(qp->rx);
    if (ring && qp->srq && ld(qp->rx_stalled) &&
        atomic_load_explicit(&qp->srq->posts, memory_order_acquire) != ld(qp->srq_seen)) {
        st(qp->rx_stalled, false);
        atomic_store_explicit(&ring->rx.stalled, 0, memory_order_release);
    }
    if (!ring || (qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_SQD))
        return;
    /* Bounded: a sender that never stops must not keep the lock from our own posts. */
    for (unsigned n = 0; n < 4 * SOFT_RING_SLOTS && !ld(qp->rx_stalled) && arrived(qp, ring); n++) {
        if (sink->cq == soft_cq_of(qp->ibv.recv_cq) && sink->n == sink->ne)
            break;
        if (!take_segment(qp, sink, ring))
            break;
        if (ld(qp->rx_pos) - ld(qp->rx_told) >= SOFT_RING_SLOTS / 4)
            soft_qp_flush_ack(qp);
    }
}

/* ---- progress ----------------------------------------------------------------------------------- */

/* Waits for a receive, and none was posted since. */
static inline bool still_stalled(struct soft_qp *qp) {
    if (__builtin_expect(!ld(qp->rx_stalled), 1))
        return false;
    return !qp->srq ||
           atomic_load_explicit(&qp->srq->posts, memory_order_acquire) == ld(qp->srq_seen);
}

bool soft_qp_has_work(struct soft_qp *qp) {
    struct soft_ring *rx = atomic_load_explicit(&qp->rx, memory_order_acquire);
    if (rx && arrived(qp, rx) && !still_stalled(qp))
        return true;
    if (ld(qp->attention))
        return true;
    if (ld(qp->unretired)) {
        struct soft_ring *tx = atomic_load_explicit(&qp->tx, memory_order_acquire);
        if (tx && ((int32_t)(ld(tx->rx.acked) - ld(qp->tx_acked)) > 0 || ld(tx->rx.down) || ld(tx->rx.nak)))
            return true;
    }
    return false;
}

static void answers(struct soft_qp *qp) {
    soft_answers_transmit(qp);
    if (qp->answer_head != qp->answer_tail) { /* the ring is full: go on when it is not */
        st(qp->attention, ATT_WORK);
        st(qp->need_tick, true);
        soft_tick_want();
    }
}

int soft_qp_progress(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    struct sink sink = {.cq = cq, .wc = wc, .ne = ne};
    /* A poller that finds the lock taken comes again; the engine has to get its turn. */
    if (cq ? !spin_try(&qp->lock) : (spin_lock(&qp->lock), false))
        return 0;
    /* Older completions of this QP may wait in the CQ's ring: they come first. */
    if (cq && atomic_load_explicit(&cq->ring_count, memory_order_acquire)) {
        spin_unlock(&qp->lock);
        return 0;
    }
    st(qp->attention, 0);
    soft_tsan_observe(qp->ibv.qp_num);
    if (__builtin_expect(ld(soft_cq_of(qp->ibv.send_cq)->dead) ||
                             ld(soft_cq_of(qp->ibv.recv_cq)->dead),
                         0) &&
        qp->state != IBV_QPS_RESET)
        soft_qp_fail(qp);
    responder(qp, &sink);
    requester(qp, &sink);
    if (qp->state == IBV_QPS_ERR) {
        if (!flush(qp, &sink))
            st(qp->attention, ATT_WORK);
    } else if (ld(qp->tx)) {
        uint32_t before = qp->tx_published;
        if (qp->answer_head != qp->answer_tail)
            answers(qp);
        if (qp->sq_next != qp->sq_tail)
            soft_qp_transmit(qp);
        if (qp->tx_published != before)
            soft_qp_bell_receiver(qp);
        if (qp->kick_wanted) {
            qp->kick_wanted = false;
            soft_qp_kick(qp);
        }
        if (qp->sq_head != qp->sq_next)
            requester(qp, &sink); /* what needed no answer is complete already */
    }
    if (!cq)
        soft_qp_flush_ack(qp);
    spin_unlock(&qp->lock);
    return sink.n;
}

int soft_recv_push(struct soft_recv_queue *rq, struct ibv_recv_wr **at) {
    for (; *at; *at = (*at)->next) {
        const struct ibv_recv_wr *wr = *at;
        if (rq->tail - rq->head >= rq->max_wr)
            return ENOMEM;
        if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
            return EINVAL;
        struct soft_rqe *rqe =
            (struct soft_rqe *)(rq->entries + (size_t)(rq->tail & rq->mask) * rq->stride);
        rqe->wr_id = wr->wr_id;
        rqe->num_sge = (uint32_t)wr->num_sge;
        for (int i = 0; i < wr->num_sge; i++)
            rqe->sge[i] = wr->sg_list[i];
        rq->tail++;
    }
    return 0;
}

int soft_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    if (__builtin_expect(soft_stale(qp), 0)) {
        *bad = wr;
        return EPERM;
    }
    spin_lock(&qp->lock);
    int rc = qp->state == IBV_QPS_RESET || qp->srq ? EINVAL : soft_recv_push(&qp->rq, &wr);
    bool stalled = ld(qp->rx_stalled), tick = false;
    if (stalled) {
        st(qp->rx_stalled, false);
        atomic_store_explicit(&ld(qp->rx)->rx.stalled, 0, memory_order_release);
    }
    if (qp->state == IBV_QPS_ERR)
        st(qp->attention, ATT_WORK);
    if (__builtin_expect(stalled || qp->state == IBV_QPS_ERR, 0)) {
        /* Something can complete now. A sleeper will not poll for it: look after what we stored. */
        soft_fence();
        tick = ld(soft_cq_of(qp->ibv.recv_cq)->armed) != 0;
        if (tick)
            st(qp->need_tick, true);
    }
    spin_unlock(&qp->lock);
    if (tick)
        soft_tick_want();
    if (rc != 0)
        *bad = wr;
    return rc;
}
