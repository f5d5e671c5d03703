/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* qp_queues.c - the sizes of a queue pair's queues, and their memory. */
#include "soft/verbs/qp_queues.h"

#include <errno.h>
#include <stdlib.h>

#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/object/srq.h"
#include "soft/verbs/internal.h"

struct ibv_qp_cap soft_qp_grant(struct ibv_qp_cap *cap, bool shared) {
    const struct soft_profile *like = soft_profile();
    uint32_t pieces = cap->max_send_sge * (uint32_t)sizeof(struct ibv_sge);
    /* At least one cache line of inline data costs nothing: it is what a slot holds. */
    uint32_t least = like->inline_is_pieces                  ? pieces
                     : like->inline_silently                 ? 0
                     : like->inline_most < SOFT_SLOT_PAYLOAD ? like->inline_most
                                                             : SOFT_SLOT_PAYLOAD;
    if (cap->max_inline_data < least)
        cap->max_inline_data = least;
    if (like->inline_is_pieces)
        cap->max_send_sge = cap->max_inline_data / (uint32_t)sizeof(struct ibv_sge);
    cap->max_send_sge = cap->max_send_sge ? cap->max_send_sge : 1;
    if (!shared)
        cap->max_recv_sge = cap->max_recv_sge ? cap->max_recv_sge : 1;
    struct ibv_qp_cap have = *cap;
    if (like->inline_silently)
        have.max_inline_data = like->inline_most;
    have.max_send_wr = soft_rounded(like->rounding, cap->max_send_wr);
    if (!shared)
        have.max_recv_wr = soft_rounded(like->rounding, cap->max_recv_wr);
    return have;
}

int soft_qp_queues_alloc(struct soft_qp *qp, const struct ibv_qp_cap *cap) {
    uint32_t sends = soft_rounded(SOFT_POWER, cap->max_send_wr ? cap->max_send_wr : 1);
    uint32_t recvs = qp->srq || !cap->max_recv_wr ? 1 : soft_rounded(SOFT_POWER, cap->max_recv_wr);
    qp->sq_mask = sends - 1;
    qp->sq_max_wr = cap->max_send_wr;
    qp->sq_max_sge = cap->max_send_sge ? cap->max_send_sge : 1;
    qp->max_inline = cap->max_inline_data;
    qp->sq = calloc(sends, sizeof *qp->sq);
    /* Written before they are read, and many entries never are: not cleared, so not resident. */
    qp->sq_remote = malloc(sends * sizeof *qp->sq_remote);
    qp->sq_sge = malloc((size_t)sends * qp->sq_max_sge * sizeof *qp->sq_sge);
    qp->sq_inline = malloc((size_t)sends * (qp->max_inline ? qp->max_inline : 1));
    qp->rq.mask = recvs - 1;
    qp->rq.max_wr = qp->srq ? 0 : cap->max_recv_wr;
    qp->rq.max_sge = qp->srq || !cap->max_recv_sge ? 1 : cap->max_recv_sge;
    qp->rq.stride = (uint32_t)(sizeof(struct soft_rqe) + qp->rq.max_sge * sizeof(struct ibv_sge));
    if (qp->srq) {
        qp->srq_rqe = calloc(1, qp->srq->rq.stride);
        return qp->sq && qp->sq_remote && qp->sq_sge && qp->sq_inline && qp->srq_rqe ? 0 : ENOMEM;
    }
    qp->rq.entries = calloc(recvs, qp->rq.stride);
    return qp->sq && qp->sq_remote && qp->sq_sge && qp->sq_inline && qp->rq.entries ? 0 : ENOMEM;
}

void soft_qp_queues_free(struct soft_qp *qp) {
    free(qp->sq);
    free(qp->sq_remote);
    free(qp->sq_sge);
    free(qp->sq_inline);
    free(qp->rq.entries);
    free(qp->srq_rqe);
    soft_batch_free(qp);
}
