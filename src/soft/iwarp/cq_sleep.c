/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* cq_sleep.c - see cq_sleep.h. */
#include "soft/iwarp/cq_sleep.h"

#include "soft/ipc/engine.h"
#include "soft/iwarp/qp_heat.h"
#include "soft/soft.h"
#include "soft/verbs/cq_pollset.h"

/* All that they complete is here, and they are few. */
static bool may_sleep(const struct soft_cq *cq) {
    unsigned count = 0;
    for (unsigned i = 0; i < cq->qp_count; i++) {
        const struct soft_qp *qp = cq->polled[i].qp;
        if (!ld(qp->has_socket))
            continue;
        if (++count > SOFT_TCP_DIRECT || qp->ibv.send_cq != qp->ibv.recv_cq)
            return false;
    }
    return count > 0;
}

/* qp->lock. Nothing is read from it now, for want of a receive: the engine asks again. */
static void heat(struct soft_qp *qp) {
    if (ld(qp->rx_stalled)) {
        soft_tcp_cool(qp);
        return;
    }
    qp->tcp->dry = false;
    soft_tcp_heat_up(qp);
    if (ld(qp->cold[0]) || ld(qp->cold[1]))
        soft_cq_pollset_warm(qp);
}

/* poll_lock. */
static void each_socket(struct soft_cq *cq, void (*then)(struct soft_qp *)) {
    for (unsigned i = 0; i < cq->qp_count; i++) {
        struct soft_qp *qp = cq->polled[i].qp;
        if (!ld(qp->has_socket))
            continue;
        spin_lock(&qp->lock);
        if (qp->tcp && !qp->tcp->down)
            then(qp);
        spin_unlock(&qp->lock);
    }
}

int soft_sleep_begin(struct ibv_cq *ibcq) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (ld(cq->tcp_set) == 0 || soft_stale(cq))
        return -1;
    spin_lock(&cq->poll_lock);
    bool may = may_sleep(cq);
    if (may) {
        st(cq->asleep, true);
        each_socket(cq, soft_tcp_cool);
    }
    spin_unlock(&cq->poll_lock);
    return may ? ld(cq->tcp_set) - 1 : -1;
}

bool soft_sleep_end(struct ibv_cq *ibcq) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    spin_lock(&cq->poll_lock);
    st(cq->asleep, false);
    bool disarmed = soft_cq_disarm(cq);
    each_socket(cq, heat);
    spin_unlock(&cq->poll_lock);
    return disarmed;
}
