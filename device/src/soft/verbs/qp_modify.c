/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_modify.c - transitions of queue pairs: ibv_modify_qp(), and the way to the error state. Which of them there
 * are is qp_states.c's.
 *
 * Owner: control lock; the QP's lock for everything the data path sees.
 */
#include "soft/verbs/qp_modify.h"

#include <errno.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/qpn_directory.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/cq_pollset.h"
#include "soft/object/mr.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/object/srq.h"
#include "soft/object/upcalls.h"
#include "soft/rc/completer.h"
#include "soft/rc/progress.h"
#include "soft/rc/cq_bell.h"
#include "soft/rc/requester.h"
#include "soft/rc/ring_exchange.h"
#include "soft/rc/window.h"
#include "soft/soft.h"
#include "soft/ud/ud_recv.h"
#include "soft/verbs/ah.h"
#include "soft/verbs/device.h"
#include "soft/verbs/qp.h"
#include "soft/verbs/qp_iwarp.h"
#include "soft/verbs/qp_states.h"

static int check_values(const struct ibv_qp_attr *attr, int mask) {
    if ((mask & IBV_QP_PORT) && attr->port_num != 1)
        return EINVAL;
    if ((mask & IBV_QP_PKEY_INDEX) && attr->pkey_index != 0)
        return EINVAL;
    if ((mask & IBV_QP_PATH_MTU) && (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
        return EINVAL;
    unsigned depth = soft_profile()->depth_most;
    if (((mask & IBV_QP_MAX_QP_RD_ATOMIC) && attr->max_rd_atomic > depth) ||
        ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && attr->max_dest_rd_atomic > depth))
        return EINVAL;
    if ((mask & IBV_QP_TIMEOUT) && attr->timeout > 31)
        return EINVAL;
    if (((mask & IBV_QP_RETRY_CNT) && attr->retry_cnt > 7) ||
        ((mask & IBV_QP_RNR_RETRY) && attr->rnr_retry > 7) ||
        ((mask & IBV_QP_MIN_RNR_TIMER) && attr->min_rnr_timer > 31))
        return EINVAL;
    if ((mask & IBV_QP_DEST_QPN) && attr->dest_qp_num > 0xffffff)
        return EINVAL;
    return 0;
}

#define COPY(bit, field)                                                                           \
    if (mask & (bit))                                                                              \
    to->field = from->field

static void merge(struct ibv_qp_attr *to, const struct ibv_qp_attr *from, int mask) {
    COPY(IBV_QP_PKEY_INDEX, pkey_index);
    COPY(IBV_QP_PORT, port_num);
    COPY(IBV_QP_ACCESS_FLAGS, qp_access_flags);
    COPY(IBV_QP_QKEY, qkey);
    COPY(IBV_QP_AV, ah_attr);
    COPY(IBV_QP_PATH_MTU, path_mtu);
    COPY(IBV_QP_DEST_QPN, dest_qp_num);
    COPY(IBV_QP_RQ_PSN, rq_psn);
    COPY(IBV_QP_SQ_PSN, sq_psn);
    COPY(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    COPY(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
    COPY(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
    COPY(IBV_QP_TIMEOUT, timeout);
    COPY(IBV_QP_RETRY_CNT, retry_cnt);
    COPY(IBV_QP_RNR_RETRY, rnr_retry);
    COPY(IBV_QP_ALT_PATH, alt_ah_attr);
    COPY(IBV_QP_ALT_PATH, alt_pkey_index);
    COPY(IBV_QP_ALT_PATH, alt_port_num);
    COPY(IBV_QP_ALT_PATH, alt_timeout);
    COPY(IBV_QP_PATH_MIG_STATE, path_mig_state);
    enum soft_rounding rounding = soft_profile()->depth_rounding;
    to->max_rd_atomic = (uint8_t)soft_rounded(rounding, to->max_rd_atomic);
    to->max_dest_rd_atomic = (uint8_t)soft_rounded(rounding, to->max_dest_rd_atomic);
}

/* Control lock. The QP forgets everything but its number and its queues' memory. */
static void reset(struct soft_qp *qp) {
    soft_assert_locked();
    spin_lock(&qp->lock);
    if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_ERR)
        soft_qp_fail(qp);
    qp->sq_free = qp->sq_head = qp->sq_next = qp->sq_tail = 0;
    qp->sq_looked = 0;
    qp->rq.head = qp->rq.tail = 0;
    st(qp->unretired, 0);
    st(qp->awaited, false);
    st(qp->backlog, false);
    st(qp->attention, false);
    st(qp->rx_stalled, false);
    st(qp->need_tick, false);
    qp->down_since_ns = 0;
    qp->rx_partial = qp->sq_broken = qp->peer_gone = qp->last_wqe_told = false;
    qp->flushing = false;
    qp->srq_taken = qp->one_sided_ring = qp->kick_wanted = false;
    qp->answer_head = qp->answer_tail = qp->waiting = qp->rx_left = 0;
    qp->rx_offset = 0;
    qp->sq_inside = qp->rx_inside = qp->leaving = (struct soft_rkey_wait){0};
    qp->opened = false;
    qp->give_up = 0;
    qp->stall_since_ns = 0;
    qp->rx_drop = qp->impatient = false;
    qp->fault = (struct soft_fault_qp){.serial = qp->fault.serial};
    qp->srq_received = 0;
    memset(&qp->attr, 0, sizeof qp->attr);
    qp->state = qp->ibv.state = IBV_QPS_RESET;
    qp->plain_rx = SOFT_NOT_PLAIN;
    qp->plain_tx = false;
    spin_unlock(&qp->lock);
    soft_ring_exchange_close(qp);
}

/* Publishes the attributes that the peer's requester has to know. */
static void link_show(struct soft_qp *qp) {
    struct soft_ring *rx = ld(qp->rx);
    atomic_store(&rx->rx.rnr_timer, qp->attr.min_rnr_timer);
    atomic_store(&rx->rx.access,
                 qp->attr.qp_access_flags | (uint32_t)qp->attr.max_dest_rd_atomic << 16);
}

void soft_qp_to_error(struct soft_qp *qp) {
    soft_assert_locked();
    spin_lock(&qp->lock);
    bool fell = qp->state == IBV_QPS_ERR;
    soft_qp_fail(qp);
    qp->flush_late &= fell;
    qp->rq_flush_end = qp->rq.tail;
    spin_unlock(&qp->lock);
    soft_qp_kick(qp);
    soft_qp_progress(qp);
}

/*
 * Finds the owner of the number: the process that the connection was agreed with, else by names. -EINVAL: the QP was
 * moved meanwhile, for the latter may give the lock up.
 */
static int find_peer(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask,
                     struct soft_peer **peer) {
    *peer = soft_object_upcalls.agreed_peer(qp, attr, mask);
    if (*peer)
        return 0;
    int rc = soft_qpn_directory_find(attr->dest_qp_num, peer);
    if (qp->state == IBV_QPS_INIT && !ld(qp->rx))
        return rc;
    if (rc == 0)
        soft_peer_release(*peer);
    *peer = NULL;
    return -EINVAL;
}

/*
 * Of an unreliable queue pair no completion would say that its messages arrive nowhere. A GID that was left out leads to
 * the queue pair's number, like an address without one.
 */
static bool leads_nowhere(const struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask) {
    const union ibv_gid none = {0}, *gid = &attr->ah_attr.grh.dgid;
    return qp->unreliable && (mask & IBV_QP_AV) && attr->ah_attr.is_global &&
           memcmp(gid, &none, sizeof none) != 0 && !soft_gid_is_reached(gid);
}

/* control lock */
static void back_to_reset(struct soft_qp *qp) {
    soft_assert_locked();
    /* Before the CQs are left, so that a poller may still meet the QP in ERR: a reset tells of no last receive. */
    spin_lock(&qp->lock);
    qp->last_wqe_told |= qp->state != IBV_QPS_ERR;
    spin_unlock(&qp->lock);
    soft_qp_end_traffic(qp);
    soft_bell_disconnect(qp);
    soft_qp_leave_cqs(qp, true);
    reset(qp);
    soft_tcp_detach(qp);
    soft_mw_forget(qp);                                         /* from here on none is bound */
    (void)soft_cq_pollset_add(soft_cq_of(qp->ibv.recv_cq), qp); /* room was just freed */
    if (qp->ibv.send_cq != qp->ibv.recv_cq)
        (void)soft_cq_pollset_add(soft_cq_of(qp->ibv.send_cq), qp);
}

int soft_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask) {
    UNCANCELLED;
    struct soft_qp *qp = soft_qp_of(ibqp);
    if (soft_stale(qp))
        return EPERM;
    int refused = soft_refuse(ibqp->context, FAULT_CALL_modify_qp);
    if (refused)
        return refused;
    soft_lock();
    enum ibv_qp_state from = qp->state, to = mask & IBV_QP_STATE ? attr->qp_state : from;
    int rc = EINVAL;
    if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from)
        goto out;
    if (qp->iwarp && to != IBV_QPS_ERR) {
        rc = soft_iwarp_modify(qp, attr, mask);
        goto out;
    }
    rc = soft_qp_check_transition(ibqp->qp_type, from, to, mask);
    if (rc == 0)
        rc = check_values(attr, mask);
    if (rc != 0)
        goto out;
    if (to == IBV_QPS_RESET) {
        back_to_reset(qp);
        goto out;
    }
    if (to == IBV_QPS_ERR) {
        soft_qp_to_error(qp);
        if (qp->iwarp)
            soft_object_upcalls.iwarp_down(qp);
        goto out;
    }
    bool links = from == IBV_QPS_INIT && to == IBV_QPS_RTR && !qp->elsewhere;
    if (leads_nowhere(qp, attr, mask)) {
        rc = EHOSTUNREACH;
        goto out;
    }
    if (links && soft_tcp_is_qpn(attr->dest_qp_num)) {
        rc = soft_object_upcalls.tcp_attach(qp, attr->dest_qp_num);
        if (rc != 0 && rc != ENOENT)
            goto out;
        links = rc == ENOENT; /* then no process has that number */
    }
    struct soft_peer *peer = NULL;
    int found = links ? find_peer(qp, attr, mask, &peer) : 0;
    if (found == -EINVAL) {
        rc = EINVAL;
        goto out;
    }
    struct ibv_qp_attr saved = qp->attr;
    merge(&qp->attr, attr, mask);
    qp->opened |= (qp->attr.qp_access_flags & SOFT_REMOTE_ACCESS) != 0;
    if (links)
        rc = soft_ring_exchange_open(qp, found, peer);
    spin_lock(&qp->lock);
    if (rc != 0) {
        qp->attr = saved;
    } else if (qp->state == from) { /* it may have failed meanwhile */
        soft_ud_starts(qp, to);
        qp->state = qp->ibv.state = to;
        qp->plain_rx = SOFT_NOT_PLAIN; /* until the progress below */
        qp->plain_tx = false;
        if (ld(qp->rx))
            link_show(qp);
        soft_qp_attend(qp);
    }
    spin_unlock(&qp->lock);
    if (rc == 0 && (to == IBV_QPS_RTS || to == IBV_QPS_RTR))
        soft_qp_progress(qp);
out:
    soft_unlock();
    return rc;
}
