/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * recv_queue.h - the queue of receives that a QP or an SRQ has. Posting to it is verbs/post_recv.c.
 *
 * Owner: the lock of the QP or SRQ.
 */
#ifndef SOFT_OBJECT_RECV_QUEUE_H
#define SOFT_OBJECT_RECV_QUEUE_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

struct soft_recv_queue { /* RQ of a QP, or an SRQ's */
    uint8_t *entries;
    uint32_t stride, mask, max_wr, max_sge;
    uint32_t head, tail; /* free running */
};

struct soft_rqe {
    uint64_t wr_id;
    uint32_t num_sge;
    uint32_t pad;
    struct ibv_sge sge[]; /* qp->rq.max_sge of them */
};

static inline struct soft_rqe *rqe_head(const struct soft_recv_queue *rq) {
    return (struct soft_rqe *)(rq->entries + (size_t)(rq->head & rq->mask) * rq->stride);
}

#endif
