/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * srq.h - shared receive queues: one FIFO of receives for many QPs; or, if its owner asked for that, a stack, so that
 * the memory that the cache has is used first.
 *
 * Owner: the SRQ's lock, a leaf below the QP lock.
 */
#ifndef SOFT_OBJECT_SRQ_H
#define SOFT_OBJECT_SRQ_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/spinlock.h"
#include "soft/object/recv_queue.h"

struct soft_srq {
    struct ibv_srq ibv;
    uint8_t zero[64];
    uint32_t generation;
    soft_spin lock;
    _Atomic uint32_t posts; /* counts posts: QPs that wait for a receive look at it */
    _Atomic int users;
    uint32_t limit;
    bool newest_first; /* under the lock */
    struct soft_recv_queue rq;
};

#define soft_srq_of(p) ((struct soft_srq *)(p))

void soft_srq_low(struct soft_srq *srq); /* the limit was reached: the event */

/* The receive that is taken next, if there is one; and that it is taken. srq->lock held. */
static inline const struct soft_rqe *srq_next(const struct soft_srq *srq) {
    const struct soft_recv_queue *rq = &srq->rq;
    uint32_t at = srq->newest_first ? rq->tail - 1 : rq->head;
    return (const struct soft_rqe *)(rq->entries + (size_t)(at & rq->mask) * rq->stride);
}

static inline void srq_taken(struct soft_srq *srq) {
    if (srq->newest_first)
        srq->rq.tail--;
    else
        srq->rq.head++;
}

/* Takes the next receive of a shared queue into out, which is of a queue pair that is locked. False: none. */
static inline bool soft_srq_take(struct soft_srq *srq, struct soft_rqe *out) {
    struct soft_recv_queue *rq = &srq->rq;
    bool low = false;
    spin_lock(&srq->lock);
    bool any = rq->head != rq->tail;
    ASSERT(rq->tail - rq->head <= rq->mask + 1);
    if (__builtin_expect(any, 1)) {
        const struct soft_rqe *rqe = srq_next(srq);
        out->wr_id = rqe->wr_id;
        out->num_sge = rqe->num_sge;
        out->sge[0] = rqe->sge[0];
        for (uint32_t i = 1; __builtin_expect(i < rqe->num_sge, 0); i++)
            out->sge[i] = rqe->sge[i];
        srq_taken(srq);
        low = srq->limit && rq->tail - rq->head < srq->limit;
        if (__builtin_expect(low, 0))
            srq->limit = 0;
    }
    spin_unlock(&srq->lock);
    if (__builtin_expect(low, 0))
        soft_srq_low(srq);
    return any;
}

#endif
