/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * receive_short.h - the short way of a message into a receive: straight from the ring, and its completion straight into
 * the poller's array.
 *
 * Owner: the CQ's poll lock, and inside it the QP's. Bytes in the ring are read once; the copies are checked and used.
 */
#ifndef SOFT_VERBS_RECEIVE_SHORT_H
#define SOFT_VERBS_RECEIVE_SHORT_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/copy_short.h"
#include "soft/object/cq.h"
#include "soft/object/mr.h"
#include "soft/object/qp.h"
#include "soft/object/recv_queue.h"
#include "soft/object/ring.h"
#include "soft/object/srq.h"
#include "soft/rc/progress.h"
#include "soft/rc/slot.h"

/* Looks a key up for the CQ's pollers; false: it does not open memory that may be written. */
bool soft_reach_find(struct soft_reach *reach, uint32_t lkey, const struct ibv_pd *pd);

/* The memory of a receive, if it is one piece that holds len bytes and may be written; else NULL. */
static inline uint8_t *memory_of(const struct soft_qp *qp, struct soft_reach *reach,
                                 const struct soft_rqe *rqe, uint32_t len) {
    const struct ibv_sge *sge = &rqe->sge[0];
    if (__builtin_expect(rqe->num_sge != 1 || len > sge->length, 0))
        return NULL;
    if (__builtin_expect(reach->lkey != sge->lkey || reach->pd != qp->own_pd ||
                             reach->epoch != ld(soft_mr_epoch),
                         0) &&
        !soft_reach_find(reach, sge->lkey, qp->own_pd))
        return NULL;
    uint64_t offset = sge->addr - reach->start; /* below start: huge */
    if (offset > reach->bytes || sge->length > reach->bytes - offset)
        return NULL;
    return (uint8_t *)(uintptr_t)(sge->addr + (uint64_t)reach->shift);
}

struct receive {
    uint8_t *to; /* NULL: there is none, or one for the long way, and it was not taken */
    uint64_t wr_id;
};

/* Takes the one that a message of len bytes goes to. */
static inline struct receive take_receive(struct soft_qp *qp, struct soft_reach *reach,
                                          uint32_t len) {
    struct soft_recv_queue *rq = &qp->rq;
    const struct soft_rqe *rqe = rqe_head(rq);
    struct receive r = {NULL, 0};
    if (rq->head == rq->tail || !(r.to = memory_of(qp, reach, rqe, len)))
        return r;
    r.wr_id = rqe->wr_id;
    rq->head++;
    return r;
}

/* A thread that posts to the queue keeps its lock: the message is taken by a later poll, by the long way neither. */
void soft_srq_is_busy(struct soft_qp *qp);

/* Takes the receive of a shared queue. */
static inline struct receive take_shared(struct soft_qp *qp, struct soft_cq *cq, uint32_t len) {
    struct soft_srq *srq = qp->srq;
    struct soft_recv_queue *rq = &srq->rq;
    struct receive r = {NULL, 0};
    bool low = false;
    if (__builtin_expect(qp->srq_taken, 0)) /* the long way has one */
        return r;
    if (!soft_cq_lock(cq, &srq->lock)) {
        soft_srq_is_busy(qp);
        return r;
    }
    const struct soft_rqe *rqe = srq_next(srq);
    if (__builtin_expect(
            rq->head != rq->tail && (r.to = memory_of(qp, &cq->reach, rqe, len)) != NULL, 1)) {
        r.wr_id = rqe->wr_id;
        srq_taken(srq);
        qp->srq_received++;
        low = rq->tail - rq->head < srq->limit;
        if (__builtin_expect(low, 0))
            srq->limit = 0;
    }
    spin_unlock(&srq->lock);
    if (__builtin_expect(low, 0))
        soft_srq_low(srq);
    return r;
}

/*
 * Bytes at `done` of a message into memory that the program may have unmapped. False: it has, and the receive is the next
 * one again. The long way takes the message once more, and tells why it fails.
 */
bool soft_receive_guarded(struct soft_qp *qp, const struct soft_reach *reach, struct receive r,
                          uint32_t done, const uint8_t *from, uint32_t bytes);

static inline bool place(struct soft_qp *qp, const struct soft_reach *reach, struct receive r,
                         uint32_t done, const uint8_t *from, uint32_t bytes) {
    if (__builtin_expect(reach->guarded, 0))
        return soft_receive_guarded(qp, reach, r, done, from, bytes);
    copy_short(r.to + done, from, bytes);
    return true;
}

/* Every field: the caller's array is not cleared before. */
static inline void complete(const struct soft_qp *qp, struct ibv_wc *wc, uint64_t wr_id,
                            uint64_t word_imm, uint32_t len) {
    wc->wr_id = wr_id;
    wc->status = IBV_WC_SUCCESS;
    wc->opcode = IBV_WC_RECV;
    wc->vendor_err = 0;
    wc->byte_len = len;
    wc->imm_data = (uint32_t)(word_imm >> 32);
    wc->qp_num = qp->own_qpn;
    wc->src_qp = qp->dest_qpn;
    wc->wc_flags = word_imm >> 8 & SOFT_F_IMM ? IBV_WC_WITH_IMM : 0;
    wc->pkey_index = wc->slid = 0;
    wc->sl = wc->dlid_path_bits = 0;
}

/* Slots of a message, by its word; and the place behind one that begins here. */
static inline uint32_t slots_of(uint32_t word) {
    return soft_span(word >> 16);
}

static inline uint32_t slot_behind(uint32_t index, uint32_t word) {
    uint32_t behind = index + slots_of(word);
    return behind >= SOFT_RING_SLOTS ? behind - SOFT_RING_SLOTS : behind;
}

/* One of more than a slot, whose first was looked at. */
bool soft_receive_wide(struct soft_qp *qp, struct soft_cq *cq, uint32_t index, uint32_t pos,
                       uint64_t word_imm, struct ibv_wc *wc);

/* One that lies in the sender's memory, in one piece, whose slot was looked at. */
bool soft_receive_described(struct soft_qp *qp, struct soft_cq *cq, uint32_t index,
                            uint64_t word_imm, struct ibv_wc *wc);

/* The message at this place, position pos. Its word; 0: none, or one for the long way, and nothing was taken. */
static inline __attribute__((always_inline)) uint32_t
receive_one(struct soft_qp *qp, struct soft_cq *cq, struct soft_ring *ring, uint32_t index,
            uint32_t pos, struct ibv_wc *wc) {
    const unsigned whole = SOFT_F_FIRST | SOFT_F_LAST, may = SOFT_F_IMM | SOFT_F_SOLICITED;
    struct soft_slot *slot = &ring->slot[index];
    uint64_t seq_ack = atomic_load_explicit(&slot->seq_ack, memory_order_acquire);
    if ((uint32_t)seq_ack != pos + 1)
        return 0;
    soft_tsan_observe(qp->ibv.qp_num);
    /* read once: the copies are checked and used */
    uint64_t word_imm = ld(slot->word_imm);
    uint32_t word = (uint32_t)word_imm, len = word >> 16, ack = (uint32_t)(seq_ack >> 32);
    const uint32_t kind = word & 0xffff & ~(may << 8);
    const bool described = kind == soft_word(SOFT_OP_SEND_DESC, whole, 0) && len == 1;
    if (!described && (kind != soft_word(SOFT_OP_SEND, whole, 0) || len > SOFT_SEGMENT_MAX))
        return 0;
    if (__builtin_expect(ack != ld(qp->tx_acked) && !note_ack(qp, ack), 0))
        return 0;
    if (__builtin_expect(described, 0))
        return soft_receive_described(qp, cq, index, word_imm, wc) ? word : 0;
    if (__builtin_expect(len > SOFT_SLOT_PAYLOAD, 0))
        return soft_receive_wide(qp, cq, index, pos, word_imm, wc) ? word : 0;
    struct receive r = qp->srq ? take_shared(qp, cq, len) : take_receive(qp, &cq->reach, len);
    if (__builtin_expect(!r.to, 0))
        return 0;
    if (__builtin_expect(!place(qp, &cq->reach, r, 0, slot->data, len), 0))
        return 0;
    complete(qp, wc, r.wr_id, word_imm, len);
    return word;
}

#endif
