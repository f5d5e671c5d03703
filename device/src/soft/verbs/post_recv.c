/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * post_recv.c - ibv_post_recv, and the queue of receives that QPs and SRQs have.
 *
 * Owner: the lock of the QP or SRQ.
 */
#include "soft/verbs/post_recv.h"

#include <errno.h>
#include <stdatomic.h>

#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"
#include "soft/rc/progress.h"

int soft_recv_push(struct soft_recv_queue *rq, struct ibv_recv_wr **at) {
    uint32_t tail = rq->tail, end = rq->head + rq->max_wr;
    struct ibv_recv_wr *wr;
    int rc = 0;
    for (wr = *at; wr; wr = wr->next) {
        if (tail == end)
            rc = ENOMEM;
        else if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->max_sge)
            rc = EINVAL;
        if (__builtin_expect(rc != 0, 0))
            break;
        struct soft_rqe *rqe =
            (struct soft_rqe *)(rq->entries + (size_t)(tail & rq->mask) * rq->stride);
        rqe->wr_id = wr->wr_id;
        rqe->num_sge = (uint32_t)wr->num_sge;
        if (__builtin_expect(wr->num_sge == 1, 1))
            rqe->sge[0] = wr->sg_list[0];
        else
            for (int i = 0; i < wr->num_sge; i++)
                rqe->sge[i] = wr->sg_list[i];
        tail++;
    }
    rq->tail = tail;
    *at = wr;
    return rc;
}

static int post_recv_long(struct soft_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    if (__builtin_expect(soft_stale(qp), 0)) {
        *bad = wr;
        return EPERM;
    }
    spin_lock(&qp->lock);
    if (qp->iwarp && qp->state == IBV_QPS_ERR) { /* taken, and nothing ever comes of it */
        spin_unlock(&qp->lock);
        return 0;
    }
    /* A message that came while there was no receive is lost: it must not take this one. */
    if (qp->unreliable && !qp->srq && qp->rq.head == qp->rq.tail && qp->state != IBV_QPS_ERR)
        soft_progress_locked(qp, &(struct sink){.cq = NULL});
    int rc = qp->state == IBV_QPS_RESET || qp->srq ? EINVAL : soft_recv_push(&qp->rq, &wr);
    bool stalled = ld(qp->rx_stalled), tick = false;
    if (stalled) {
        st(qp->rx_stalled, false);
        struct soft_ring *rx = ld(qp->rx);
        if (rx)
            atomic_store_explicit(&rx->rx.stalled, 0, memory_order_release);
        else
            soft_qp_attend(qp); /* its socket is not read: qp_tcp.h */
    }
    if (qp->state == IBV_QPS_ERR)
        soft_qp_attend(qp);
    if (__builtin_expect(stalled || qp->state == IBV_QPS_ERR, 0)) {
        /* Something can complete now. A sleeper will not poll for it: look after what we stored. Partner: the fence
           between arming and the last look in notify.c, soft_req_notify_cq(). */
        soft_fence();
        tick = ld(soft_cq_of(qp->ibv.recv_cq)->armed) != 0;
        if (tick)
            st(qp->need_tick, true);
    }
    spin_unlock(&qp->lock);
    if (tick)
        soft_qp_timer_want();
    if (rc != 0)
        *bad = wr;
    return rc;
}

/* One receive of one piece on a QP in good order needs none of the above. */
int soft_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    if (__builtin_expect(
            soft_stale(qp) || !wr || wr->next || wr->num_sge != 1 || !spin_try(&qp->lock), 0))
        return post_recv_long(qp, wr, bad);
    struct soft_recv_queue *rq = &qp->rq;
    if (__builtin_expect(qp->state != IBV_QPS_RTS || qp->long_recv || ld(qp->rx_stalled) ||
                             rq->tail - rq->head >= rq->max_wr,
                         0)) {
        spin_unlock(&qp->lock);
        return post_recv_long(qp, wr, bad);
    }
    struct soft_rqe *rqe =
        (struct soft_rqe *)(rq->entries + (size_t)(rq->tail & rq->mask) * rq->stride);
    const struct ibv_sge *sge = wr->sg_list;
    rqe->wr_id = wr->wr_id;
    rqe->num_sge = 1;
    rqe->sge[0].addr = sge->addr;
    /* Field by field: the caller has just stored them so, and one wide load would wait for that. */
    __asm__ volatile("" ::: "memory");
    rqe->sge[0].length = sge->length;
    __asm__ volatile("" ::: "memory");
    rqe->sge[0].lkey = sge->lkey;
    rq->tail++;
    spin_unlock(&qp->lock);
    return 0;
}
