/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fetch.c - calls of this device alone: a receiver copies a message out of the sender's memory, which both have mapped,
 * with no key and no work request.
 *
 * Nothing is opened that was closed: a described send (described.h) is read in the same place in the same way. But here
 * the receiver first says where the bytes go, so one copy is enough for a message of any size. The sender leaves them as
 * they are until a message tells it that they were copied.
 *
 * Owner: the QP's lock. What the sender names is hostile: checked against what is mapped.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/uncancelled.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/mr.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/rc/described.h"
#include "soft/rc/region_pages.h"
#include "soft/soft.h"

bool soft_share(struct ibv_qp *ibqp, const struct ibv_mr *ibmr, const void *addr, uint64_t bytes,
                uint32_t *region, uint64_t *at) {
    UNCANCELLED;
    struct soft_qp *qp = soft_qp_of(ibqp);
    const struct soft_mr *mr = (const struct soft_mr *)ibmr;
    uint64_t from = (uintptr_t)addr;
    if (mr->shift != 0 || !soft_mr_range(mr, from, bytes, 0))
        return false;
    struct soft_desc desc = {0};
    spin_lock(&qp->lock);
    bool mapped =
        described_put(qp, mr, &(struct ibv_sge){.addr = from, .length = (uint32_t)bytes}, &desc);
    spin_unlock(&qp->lock);
    *region = desc.region;
    *at = desc.offset;
    return mapped;
}

static int fetch(struct soft_qp *qp, uint32_t index, uint64_t at, const struct ibv_sge *sge) {
    const struct soft_ring *ring = ld(qp->rx);
    if (qp->tcp)
        return EINVAL;
    bool takes = qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS || qp->state == IBV_QPS_SQD;
    if (!ring || !takes || described_withdrawn(ring))
        return ECONNRESET;
    if (!qp->link_peer) /* a message may be here before the answer that says whose memory it names */
        return EAGAIN;
    const uint8_t *from = described_get(qp, index, at, sge->length);
    if (!from)
        return EINVAL;
    const struct soft_mr *mr = soft_mr_find(sge->lkey, qp->ibv.pd);
    uint8_t *to = mr ? soft_mr_range(mr, sge->addr, sge->length, IBV_ACCESS_LOCAL_WRITE) : NULL;
    if (!to)
        return EFAULT;
    bool copied = soft_pages_there_now(qp, from, sge->length)
                      ? soft_mr_store(mr, to, from, sge->length)
                      : soft_pages_read(&qp->link_peer->regions[index], at, to, sge->length);
    if (!copied)
        return EFAULT;
    return described_withdrawn(ring) ? ECONNRESET : 0;
}

int soft_fetch(struct ibv_qp *ibqp, uint32_t region, uint64_t at, const struct ibv_sge *to) {
    UNCANCELLED;
    struct soft_qp *qp = soft_qp_of(ibqp);
    spin_lock(&qp->lock);
    int status = fetch(qp, region, at, to);
    spin_unlock(&qp->lock);
    return status;
}
