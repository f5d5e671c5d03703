/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * srq.c - shared receive queues: one FIFO of receives for many QPs (or a stack).
 *
 * Owner: the SRQ's lock, a leaf below the QP lock. A QP that found no receive remembers how many
 * posts the queue had seen and looks again when there are more.
 */
#include "soft/verbs/srq.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/async_event.h"
#include "soft/object/mr.h"
#include "soft/object/profile.h"
#include "soft/object/srq.h"
#include "soft/soft.h"
#include "soft/verbs/device.h"
#include "soft/verbs/post_recv.h"

struct ibv_srq *soft_create_srq(struct ibv_pd *ibpd, struct ibv_srq_init_attr *init) {
    UNCANCELLED;
    struct soft_pd *pd = soft_pd_of(ibpd);
    const struct soft_profile *like = soft_profile();
    if (soft_stale(pd) || init->attr.max_wr == 0 || init->attr.max_wr > like->srq_wr_most ||
        init->attr.max_sge > like->srq_sge_most) {
        errno = soft_stale(pd) ? EPERM : EINVAL;
        return NULL;
    }
    int refused = soft_refuse(ibpd->context, FAULT_CALL_create_srq);
    if (refused) {
        errno = refused;
        return NULL;
    }
    struct soft_srq *srq = calloc(1, sizeof *srq);
    if (!srq)
        return NULL;
    struct soft_recv_queue *rq = &srq->rq;
    rq->max_wr = soft_rounded(like->rounding, init->attr.max_wr);
    uint32_t size = soft_rounded(SOFT_POWER, rq->max_wr);
    rq->mask = size - 1;
    rq->max_sge = init->attr.max_sge ? init->attr.max_sge : 1;
    rq->stride = (uint32_t)(sizeof(struct soft_rqe) + rq->max_sge * sizeof(struct ibv_sge));
    rq->entries = calloc(size, rq->stride);
    if (!rq->entries) {
        free(srq);
        return NULL;
    }
    srq->ibv.context = ibpd->context;
    srq->ibv.srq_context = init->srq_context;
    srq->ibv.pd = ibpd;
    pthread_mutex_init(&srq->ibv.mutex, NULL);
    pthread_cond_init(&srq->ibv.cond, NULL);
    srq->generation = soft_generation_now;
    init->attr.max_sge = rq->max_sge;
    if (!like->rounds_silently)
        init->attr.max_wr = rq->max_wr;
    atomic_fetch_add(&pd->users, 1);
    return &srq->ibv;
}

int soft_destroy_srq(struct ibv_srq *ibsrq) {
    UNCANCELLED;
    struct soft_srq *srq = soft_srq_of(ibsrq);
    if (soft_stale(srq))
        return EPERM;
    if (atomic_load(&srq->users) != 0)
        return EBUSY;
    soft_async_drain(ibsrq->context, ibsrq);
    atomic_fetch_sub(&soft_pd_of(ibsrq->pd)->users, 1);
    pthread_mutex_destroy(&ibsrq->mutex);
    pthread_cond_destroy(&ibsrq->cond);
    free(srq->rq.entries);
    free(srq);
    return 0;
}

void soft_srq_newest_first(struct ibv_srq *ibsrq) {
    struct soft_srq *srq = soft_srq_of(ibsrq);
    if (soft_profile()->name) /* it is to be like another device, none of which does */
        return;
    spin_lock(&srq->lock);
    srq->newest_first = true;
    spin_unlock(&srq->lock);
}

int soft_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr, int mask) {
    UNCANCELLED;
    struct soft_srq *srq = soft_srq_of(ibsrq);
    if (soft_stale(srq))
        return EPERM;
    if (mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT))
        return EINVAL;
    if (mask & IBV_SRQ_MAX_WR)
        return EOPNOTSUPP; /* no resizing: max_wr is what creation asked for */
    if (mask & IBV_SRQ_LIMIT) {
        if (attr->srq_limit > srq->rq.max_wr)
            return EINVAL;
        spin_lock(&srq->lock);
        srq->limit = attr->srq_limit;
        bool low = srq->limit && srq->rq.tail - srq->rq.head < srq->limit;
        if (low)
            srq->limit = 0;
        spin_unlock(&srq->lock);
        if (low)
            soft_async_event(ibsrq->context, IBV_EVENT_SRQ_LIMIT_REACHED, ibsrq);
    }
    return 0;
}

int soft_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr) {
    UNCANCELLED;
    struct soft_srq *srq = soft_srq_of(ibsrq);
    if (soft_stale(srq))
        return EPERM;
    if (!soft_profile()->srq_query)
        return EOPNOTSUPP;
    spin_lock(&srq->lock);
    *attr = (struct ibv_srq_attr){
        .max_wr = srq->rq.max_wr, .max_sge = srq->rq.max_sge, .srq_limit = srq->limit};
    spin_unlock(&srq->lock);
    return 0;
}

int soft_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct soft_srq *srq = soft_srq_of(ibsrq);
    if (soft_stale(srq)) {
        *bad = wr;
        return EPERM;
    }
    spin_lock(&srq->lock);
    int rc = soft_recv_push(&srq->rq, &wr);
    /* Under the lock: a thread that sees the count and then takes finds what it counts. */
    atomic_store_explicit(&srq->posts, ld(srq->posts) + 1, memory_order_release);
    spin_unlock(&srq->lock);
    if (rc != 0)
        *bad = wr;
    return rc;
}
