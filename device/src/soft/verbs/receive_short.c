/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * receive_short.c - of the short way what few messages need: a key that was not met before, a message of several slots, or
 * in the sender's memory.
 */
#include "soft/verbs/receive_short.h"

#include "soft/object/attention.h"
#include "soft/rc/described.h"
#include "soft/rc/region_pages.h"

bool soft_reach_find(struct soft_reach *reach, uint32_t lkey, const struct ibv_pd *pd) {
    uint32_t epoch = atomic_load_explicit(&soft_mr_epoch, memory_order_acquire);
    const struct soft_mr *mr = soft_mr_find(lkey, pd);
    if (!mr || !(mr->access & IBV_ACCESS_LOCAL_WRITE))
        return false;
    *reach = (struct soft_reach){.pd = pd,
                                 .lkey = lkey,
                                 .epoch = epoch,
                                 .start = mr->start,
                                 .bytes = mr->end - mr->start,
                                 .shift = mr->shift,
                                 .guarded = mr->region < 0};
    return true;
}

static void undo(struct soft_qp *qp, const struct soft_reach *reach, struct receive r,
                 uint32_t len) {
    if (!qp->srq) {
        qp->rq.head--;
        return;
    }
    qp->srq_rqe->wr_id = r.wr_id;
    qp->srq_rqe->num_sge = 1;
    qp->srq_rqe->sge[0] = (struct ibv_sge){
        .addr = (uintptr_t)r.to - (uint64_t)reach->shift, .length = len, .lkey = reach->lkey};
    qp->srq_taken = true;
    qp->srq_received--;
}

bool soft_receive_guarded(struct soft_qp *qp, const struct soft_reach *reach, struct receive r,
                          uint32_t done, const uint8_t *from, uint32_t bytes) {
    if (copy_guarded_to(r.to + done, from, bytes))
        return true;
    undo(qp, reach, r, done + bytes);
    return false;
}

/* Whether all of its slots are there: they are made visible one by one, the first one first. */
static bool is_whole(const struct soft_ring *ring, uint32_t index, uint32_t pos, uint32_t slots) {
    for (uint32_t i = 1; i < slots; i++) {
        index = soft_slot_next(index);
        if (atomic_load_explicit(&ring->slot[index].seq, memory_order_acquire) != pos + i + 1)
            return false;
    }
    return true;
}

void soft_srq_is_busy(struct soft_qp *qp) {
    qp->srq_busy = true;
    soft_qp_attend(qp);
}

bool soft_receive_wide(struct soft_qp *qp, struct soft_cq *cq, uint32_t index, uint32_t pos,
                       uint64_t word_imm, struct ibv_wc *wc) {
    struct soft_ring *ring = ld(qp->rx);
    uint32_t len = (uint32_t)word_imm >> 16;
    if (!is_whole(ring, index, pos, soft_span(len)))
        return false;
    struct receive r = qp->srq ? take_shared(qp, cq, len) : take_receive(qp, &cq->reach, len);
    if (!r.to)
        return false;
    for (uint32_t done = 0; done < len; index = soft_slot_next(index)) {
        uint32_t piece = len - done < SOFT_SLOT_PAYLOAD ? len - done : SOFT_SLOT_PAYLOAD;
        if (!place(qp, &cq->reach, r, done, ring->slot[index].data, piece))
            return false;
        done += piece;
    }
    complete(qp, wc, r.wr_id, word_imm, len);
    return true;
}

/* The copy of a descriptor is checked and used. */
bool soft_receive_described(struct soft_qp *qp, struct soft_cq *cq, uint32_t index,
                            uint64_t word_imm, struct ibv_wc *wc) {
    const struct soft_ring *ring = ld(qp->rx);
    const struct soft_desc desc = described_read(ring->slot[index].data);
    const uint8_t *from = described_get(qp, desc.region, desc.offset, desc.length);
    /* The long way knows what is wrong, or missing. */
    if (!from || described_withdrawn(ring) || !soft_pages_there_now(qp, from, desc.length))
        return false;
    struct receive r =
        qp->srq ? take_shared(qp, cq, desc.length) : take_receive(qp, &cq->reach, desc.length);
    if (!r.to || !place(qp, &cq->reach, r, 0, from, desc.length))
        return false;
    if (__builtin_expect(described_withdrawn(ring), 0)) { /* what was copied may be of later */
        undo(qp, &cq->reach, r, desc.length);
        return false;
    }
    complete(qp, wc, r.wr_id, word_imm, desc.length);
    return true;
}
