/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp.c - queue pairs: creation, destruction. Their transitions are qp_modify.c's, their numbers object/qp_numbers.c's.
 *
 * Owner: control lock for numbers and links; the QP's lock for everything the data path sees.
 */
#include "soft/verbs/qp.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/fault/inject.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/async_event.h"
#include "soft/object/cq.h"
#include "soft/object/cq_pollset.h"
#include "soft/object/device.h"
#include "soft/object/mr.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/object/srq.h"
#include "soft/object/upcalls.h"
#include "soft/rc/completer.h"
#include "soft/rc/order.h"
#include "soft/rc/pending_ring.h"
#include "soft/rc/process_copy.h"
#include "soft/rc/cq_bell.h"
#include "soft/rc/qp_timer.h"
#include "soft/rc/requester.h"
#include "soft/rc/ring_exchange.h"
#include "soft/rc/rkey_fence.h"
#include "soft/rc/window.h"
#include "soft/soft.h"
#include "soft/ud/ud.h"
#include "soft/ud/ud_link.h"
#include "soft/verbs/device.h"
#include "soft/verbs/qp_queues.h"

static struct soft_told told_to_nobody; /* of those without a ring */

/* ---- creation ------------------------------------------------------------------------------------ */

/* Tells types that exist but not here from types that do not exist: programs that ask for the former go on without. */
static int check_type(enum ibv_qp_type type, bool iwarp) {
    switch (type) {
    case IBV_QPT_RC:
        return 0;
    case IBV_QPT_UC:
    case IBV_QPT_UD:
        return iwarp ? EOPNOTSUPP : 0;
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
    case IBV_QPT_DRIVER:
        return EOPNOTSUPP;
    }
    return EINVAL;
}

static int check_init(struct soft_pd *pd, const struct ibv_qp_init_attr *attr) {
    if (soft_stale(pd))
        return EPERM;
    const struct soft_profile *like = soft_profile();
    int err = check_type(attr->qp_type, like->iwarp);
    if (err)
        return err;
    if (!attr->send_cq || !attr->recv_cq || attr->cap.max_send_wr > like->wr_most ||
        attr->cap.max_send_sge > like->sge_most || attr->cap.max_inline_data > like->inline_most)
        return EINVAL;
    if (attr->srq) /* what is said of receives is ignored */
        return attr->srq->pd->context == pd->ibv.context ? 0 : EINVAL;
    if (attr->cap.max_recv_wr > like->wr_most || attr->cap.max_recv_sge > like->sge_most)
        return EINVAL;
    return 0;
}

/* What the queue pair was asked to be. Zeroed before, and its queues are there. */
static void fill(struct soft_qp *qp, struct ibv_pd *ibpd, const struct ibv_qp_init_attr *attr) {
    qp->ibv.context = ibpd->context;
    qp->ibv.qp_context = attr->qp_context;
    qp->ibv.pd = ibpd;
    qp->own_pd = ibpd;
    qp->own_send_cq = attr->send_cq;
    qp->own_recv_cq = attr->recv_cq;
    qp->ibv.send_cq = attr->send_cq;
    qp->ibv.recv_cq = attr->recv_cq;
    qp->ibv.srq = attr->srq;
    qp->ibv.qp_type = attr->qp_type;
    qp->ibv.state = qp->state = IBV_QPS_RESET;
    pthread_mutex_init(&qp->ibv.mutex, NULL);
    pthread_cond_init(&qp->ibv.cond, NULL);
    qp->sq_sig_all = attr->sq_sig_all != 0;
    qp->unreliable = attr->qp_type != IBV_QPT_RC;
    qp->iwarp = soft_profile()->iwarp;
    qp->early = qp->unreliable || qp->iwarp;
    qp->elsewhere = attr->qp_type == IBV_QPT_UD;
    if (qp->iwarp) /* it is born there, whatever libibverbs writes into a new one */
        qp->state = IBV_QPS_INIT;
    qp->long_recv = qp->srq || qp->unreliable;
    qp->ordered = !soft_cq_of(attr->recv_cq)->any_order;
}

struct ibv_qp *soft_create_qp(struct ibv_pd *ibpd, struct ibv_qp_init_attr *attr) {
    UNCANCELLED;
    struct soft_qp *qp = NULL;
    int err = check_init(soft_pd_of(ibpd), attr);
    if (!err)
        err = soft_refuse(ibpd->context, FAULT_CALL_create_qp);
    if (err)
        goto fail;
    struct ibv_qp_cap cap = attr->cap, have = soft_qp_grant(&cap, attr->srq != NULL);
    qp = aligned_alloc(64, (sizeof *qp + 63) & ~(size_t)63);
    err = ENOMEM;
    if (!qp)
        goto fail;
    memset(qp, 0, sizeof *qp);
    CDS_INIT_LIST_HEAD(&qp->pending_rings);
    qp->srq = attr->srq ? soft_srq_of(attr->srq) : NULL;
    err = soft_qp_queues_alloc(qp, &have);
    if (err)
        goto free_queues;
    attr->cap = soft_profile()->rounds_silently ? cap : have;
    fill(qp, ibpd, attr);
    err = attr->qp_type == IBV_QPT_UD ? soft_ud_create(qp) : 0;
    if (err)
        goto free_queues;
    qp->init = *attr;
    qp->init.cap = have;
    qp->generation = soft_generation_now;
    qp->told = &told_to_nobody;
    soft_lock();
    err = soft_qp_number_take(qp);
    if (!err) {
        qp->fault.serial = soft_fault_qp_serial();
        soft_ud_register(qp);
    }
    soft_unlock();
    if (err)
        goto free_queues;
    err = soft_cq_pollset_add(soft_cq_of(attr->recv_cq), qp);
    if (err)
        goto return_number;
    if (attr->send_cq != attr->recv_cq) {
        err = soft_cq_pollset_add(soft_cq_of(attr->send_cq), qp);
        if (err)
            goto remove_recv;
    }
    atomic_fetch_add(&soft_pd_of(ibpd)->users, 1);
    if (qp->srq)
        atomic_fetch_add(&qp->srq->users, 1);
    if (qp->ordered)
        soft_order_join(qp);
    return &qp->ibv;
remove_recv:
    soft_cq_pollset_remove(soft_cq_of(attr->recv_cq), qp, false);
return_number:
    soft_lock();
    soft_qp_number_return(qp);
    soft_ud_close(qp);
    soft_unlock();
free_queues:
    soft_ud_free(qp);
    soft_qp_queues_free(qp);
    free(qp);
fail:
    errno = err;
    return NULL;
}

/*
 * A poller of either CQ completes into both: only when the QP is in neither list can its completions be
 * purged for good.
 */
void soft_qp_leave_cqs(struct soft_qp *qp, bool purge) {
    soft_assert_locked();
    struct soft_cq *recv_cq = soft_cq_of(qp->ibv.recv_cq), *send_cq = soft_cq_of(qp->ibv.send_cq);
    soft_cq_pollset_remove(recv_cq, qp, false);
    if (send_cq != recv_cq)
        soft_cq_pollset_remove(send_cq, qp, purge);
    soft_cq_pollset_remove(recv_cq, qp, purge);
}

void soft_qp_end_traffic(struct soft_qp *qp) {
    soft_assert_locked();
    spin_lock(&qp->lock);
    if (qp->state != IBV_QPS_RESET && qp->state != IBV_QPS_ERR)
        soft_qp_fail(qp);
    bool told = ld(qp->tx) != NULL, inside = qp->leaving.seen != 0, copies = qp->copy != NULL;
    spin_unlock(&qp->lock);
    if (qp->iwarp)
        soft_object_upcalls.iwarp_down(qp);
    if (told)
        soft_qp_kick(qp); /* the peer may sleep and wait for what will never be acknowledged */
    if (!inside && !copies)
        return;
    soft_unlock();
    soft_rkey_fence_wait_qp(qp);
    soft_process_copy_wait(qp);
    soft_lock();
    spin_lock(&qp->lock);
    qp->leaving = (struct soft_rkey_wait){0};
    spin_unlock(&qp->lock);
}

int soft_destroy_qp(struct ibv_qp *ibqp) {
    UNCANCELLED;
    struct soft_qp *qp = soft_qp_of(ibqp);
    if (soft_stale(qp))
        return EPERM;
    soft_lock();
    if (qp->iwarp)
        soft_object_upcalls.iwarp_settle(qp);
    if (soft_ud_in_group(qp)) {
        soft_unlock();
        return EBUSY;
    }
    soft_ud_hand_over(qp);
    soft_qp_end_traffic(qp);
    if (qp->ordered)
        soft_order_leave(qp);
    soft_qp_number_return(qp);
    if (qp->iwarp)
        soft_iwarp_flush(qp);
    soft_bell_disconnect(qp);
    soft_qp_leave_cqs(qp, !soft_profile()->keeps_completions);
    soft_mw_forget(qp);
    soft_tcp_detach(qp);
    soft_ring_exchange_close(qp);
    soft_pending_ring_drop_all(qp);
    soft_ud_close(qp);
    soft_unlock();
    soft_async_drain(ibqp->context, ibqp);
    atomic_fetch_sub(&soft_pd_of(ibqp->pd)->users, 1);
    if (qp->srq)
        atomic_fetch_sub(&qp->srq->users, 1);
    pthread_mutex_destroy(&ibqp->mutex);
    pthread_cond_destroy(&ibqp->cond);
    soft_ud_free(qp);
    soft_qp_queues_free(qp);
    free(qp);
    return 0;
}

int soft_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
                  struct ibv_qp_init_attr *init) {
    UNCANCELLED;
    (void)mask; /* everything is known at once */
    struct soft_qp *qp = soft_qp_of(ibqp);
    if (soft_stale(qp))
        return EPERM;
    if (soft_removed(ibqp->context))
        return EIO;
    spin_lock(&qp->lock);
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = qp->state;
    attr->cap = qp->init.cap;
    *init = qp->init;
    spin_unlock(&qp->lock);
    return 0;
}
