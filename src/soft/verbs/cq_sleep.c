/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* cq_sleep.c - see cq_sleep.h. */
#include "soft/verbs/cq_sleep.h"

#include "soft/ipc/engine.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/shm_page.h"
#include "soft/iwarp/qp_heat.h"
#include "soft/rc/qp_bell.h"
#include "soft/soft.h"
#include "soft/verbs/cq_pollset.h"

/* ---- sockets ----------------------------------------------------------------------------------- */

/* All that they complete is here, and they are few. */
static bool may_sleep_on_sockets(const struct soft_cq *cq) {
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

/* ---- bells ------------------------------------------------------------------------------------- */

/* poll_lock. Ordered before the thread's last look by its arming; a peer that does not see it rings its process's bell. */
static void sleep_on_bells(struct soft_cq *cq) {
    cq->on_bells = true;
    atomic_fetch_add(&soft_shm_page->cq[cq->shm_index].armed, SOFT_ARMED_BELLS);
}

void soft_sleep_on_bells_end(struct soft_cq *cq) {
    if (cq->on_bells)
        atomic_fetch_sub(&soft_shm_page->cq[cq->shm_index].armed, SOFT_ARMED_BELLS);
    cq->on_bells = false;
}

/* ---- both -------------------------------------------------------------------------------------- */

bool soft_sleep_begin(struct ibv_cq *ibcq, bool elsewhere, int fd[2]) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    fd[0] = fd[1] = -1;
    if (soft_stale(cq))
        return false;
    spin_lock(&cq->poll_lock);
    if (!elsewhere && ld(cq->tcp_set) != 0 && may_sleep_on_sockets(cq)) {
        fd[0] = ld(cq->tcp_set) - 1;
        st(cq->asleep, true);
        each_socket(cq, soft_tcp_cool);
    }
    if (soft_bells_hear(cq)) {
        fd[1] = soft_bells_set(cq);
        sleep_on_bells(cq);
    } else if (!ld(cq->wants_bells)) {
        soft_bells_want(cq);
    }
    spin_unlock(&cq->poll_lock);
    return fd[0] >= 0 || fd[1] >= 0;
}

bool soft_sleep_end(struct ibv_cq *ibcq) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    spin_lock(&cq->poll_lock);
    bool disarmed = soft_cq_disarm(cq);
    soft_sleep_on_bells_end(cq);
    if (ld(cq->asleep)) {
        st(cq->asleep, false);
        each_socket(cq, heat);
    }
    spin_unlock(&cq->poll_lock);
    return disarmed;
}
