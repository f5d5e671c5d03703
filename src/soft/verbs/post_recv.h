/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * post_recv.h - the queue of receives that a QP or an SRQ has, and posting to it.
 *
 * Owner: the lock of the QP or SRQ.
 */
#ifndef SOFT_VERBS_POST_RECV_H
#define SOFT_VERBS_POST_RECV_H

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

/* Posts *wr and what follows; on an error *wr is the first that was not posted. */
int soft_recv_push(struct soft_recv_queue *rq, struct ibv_recv_wr **wr);
int soft_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

#endif
