/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fetch.c - calls of this device alone: a receiver copies a message out of the sender's memory, which both have mapped,
 * with no key and no work request.
 *
 * Nothing is opened that was closed: a described send (requester.c) is read in the same place in the same way. But here
 * the receiver first says where the bytes go, so one copy is enough for a message of any size. The sender leaves them as
 * they are until a message tells it that they were copied.
 *
 * Owner: the QP's lock. What the sender names is hostile: checked against what is mapped.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/peer_internal.h"
#include "soft/ipc/spinlock.h"
#include "soft/rc/ring.h"
#include "soft/rc/scatter.h"
#include "soft/soft.h"
#include "soft/verbs/mr.h"
#include "soft/verbs/qp.h"

bool soft_share(struct ibv_qp *ibqp, const struct ibv_mr *ibmr, const void *addr, uint64_t bytes,
                uint32_t *region, uint64_t *at) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    const struct soft_mr *mr = (const struct soft_mr *)ibmr;
    uint64_t from = (uintptr_t)addr;
    if (mr->region < 0 || mr->shift != 0 || !soft_mr_range(mr, from, bytes, 0))
        return false;
    spin_lock(&qp->lock);
    bool mapped = qp->peer && atomic_load_explicit(&qp->peer->region_sent[mr->region],
                                                   memory_order_acquire) == REGION_READY;
    spin_unlock(&qp->lock);
    *region = (uint32_t)mr->region;
    *at = mr->region_offset + (from - mr->start);
    return mapped;
}

static int fetch(struct soft_qp *qp, uint32_t index, uint64_t at, const struct ibv_sge *sge) {
    const struct soft_ring *ring = ld(qp->rx);
    if (qp->tcp)
        return EINVAL;
    if (!ring || (qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS) || soft_sender_down(ring))
        return ECONNRESET;
    if (!qp->link_peer) /* a message may be here before the answer that says whose memory it names */
        return EAGAIN;
    if (index >= SOFT_MAX_REGIONS)
        return EINVAL;
    const struct soft_peer_region *region = &qp->link_peer->regions[index];
    const uint8_t *from = atomic_load_explicit(&region->addr, memory_order_acquire);
    if (!from || at > region->bytes || sge->length > region->bytes - at)
        return EINVAL;
    const struct soft_mr *mr = soft_mr_find(sge->lkey, qp->ibv.pd);
    uint8_t *to = mr ? soft_mr_range(mr, sge->addr, sge->length, IBV_ACCESS_LOCAL_WRITE) : NULL;
    if (!to || !soft_mr_store(mr, to, from + at, sge->length))
        return EFAULT;
    return soft_sender_down(ring) ? ECONNRESET : 0;
}

int soft_fetch(struct ibv_qp *ibqp, uint32_t region, uint64_t at, const struct ibv_sge *to) {
    struct soft_qp *qp = soft_qp_of(ibqp);
    spin_lock(&qp->lock);
    int status = fetch(qp, region, at, to);
    spin_unlock(&qp->lock);
    return status;
}
