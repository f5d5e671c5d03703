/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_iwarp.c - queue pairs of a device that is like iWARP: the connection moves them (mpa.h).
 *
 * Owner: the control lock.
 */
#include "soft/verbs/qp_iwarp.h"

#include <errno.h>
#include <stdatomic.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/mr.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/rc/completer.h"
#include "soft/rc/progress.h"
#include "soft/rc/ring_exchange.h"
#include "soft/verbs/qp_modify.h"

static uint8_t at_most(uint8_t value, uint8_t most) {
    return value < most ? value : most;
}

/* Below is what the others have, with values that never give up: TCP does that. */
int soft_qp_up(struct soft_qp *qp, struct soft_peer *peer, uint32_t remote_qpn,
               uint8_t responder_resources, uint8_t initiator_depth, bool listener) {
    soft_assert_locked();
    if (qp->state != IBV_QPS_INIT || ld(qp->rx))
        return EINVAL;
    qp->attr.dest_qp_num = remote_qpn;
    qp->attr.max_dest_rd_atomic = at_most(responder_resources, SOFT_RD_ATOMIC);
    qp->attr.max_rd_atomic = at_most(initiator_depth, SOFT_RD_ATOMIC);
    qp->attr.min_rnr_timer = 1;
    qp->attr.rnr_retry = qp->attr.retry_cnt = 7;
    qp->attr.timeout = 0;
    qp->second = listener;
    int rc = soft_ring_exchange_open(qp, 0, soft_peer_hold(peer));
    if (rc != 0)
        return rc;
    spin_lock(&qp->lock);
    if (qp->state == IBV_QPS_INIT)
        qp->state = qp->ibv.state = IBV_QPS_RTS;
    st(qp->attention, true);
    spin_unlock(&qp->lock);
    soft_qp_progress(qp);
    return 0;
}

void soft_qp_end(struct soft_qp *qp) {
    soft_assert_locked();
    spin_lock(&qp->lock);
    bool up = qp->state == IBV_QPS_RTS; /* the poller may find an error at any moment */
    spin_unlock(&qp->lock);
    if (up)
        soft_qp_progress(qp);
    soft_qp_to_error(qp);
}

/*
 * RTR and RTS of a queue pair that the connection moved there already, and RTR before that, change nothing;
 * RTS without a connection is impossible.
 */
int soft_iwarp_modify(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask) {
    soft_assert_locked();
    enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : qp->state;
    bool early = qp->state == IBV_QPS_INIT && (to == IBV_QPS_INIT || to == IBV_QPS_RTR);
    bool late = qp->state == IBV_QPS_RTS && (to == IBV_QPS_RTR || to == IBV_QPS_RTS);
    if ((!early && !late) || ((mask & IBV_QP_PORT) && attr->port_num != 1))
        return EINVAL;
    if (!(mask & IBV_QP_ACCESS_FLAGS))
        return 0;
    qp->attr.qp_access_flags = attr->qp_access_flags;
    qp->opened |= (attr->qp_access_flags & SOFT_REMOTE_ACCESS) != 0;
    struct soft_ring *rx = ld(qp->rx);
    if (rx)
        atomic_store(&rx->rx.access,
                     attr->qp_access_flags | (uint32_t)qp->attr.max_dest_rd_atomic << 16);
    return 0;
}
