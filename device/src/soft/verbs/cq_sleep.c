/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_sleep.c - a thread that sleeps on what its CQ's queue pairs are told by, itself.
 *
 * A thread that sleeps on its completion channel is woken by the engine, which was woken by a socket or by a peer's bell:
 * two threads get a CPU one after the other for one message. A thread that sleeps on the CQ's sets as well, of sockets
 * (iwarp/cq_set.h) and of bells (rc/cq_bell.h), is woken by these. The engine does not watch those sockets meanwhile, and peers
 * ring the CQ's own bells.
 *
 * Owner: the CQ's poll_lock, and inside it the QPs'; a queue pair looks at `asleep` under its own lock.
 */
#include <stdatomic.h>
#include <stdbool.h>

#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/cq_set.h"
#include "soft/iwarp/qp_heat.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/cq.h"
#include "soft/object/cq_pollset.h"
#include "soft/object/qp.h"
#include "soft/rc/cq_bell.h"
#include "soft/soft.h"

/* ---- sockets ----------------------------------------------------------------------------------- */

/* There are sockets, and all that they complete is here. */
static bool has_sockets_to_sleep_on(const struct soft_cq *cq, int *fd) {
    return soft_tcp_set_count(cq, fd) > 0 && soft_tcp_set_is_whole(cq);
}

/* qp->lock. The next poll reads it. Not now, for want of a receive: the engine asks again. */
static void heat(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    if (ld(qp->rx_stalled)) {
        soft_tcp_cool(qp);
        return;
    }
    qp->tcp->dry = false;
    soft_tcp_heat_up(qp);
    if (ld(qp->cold[0]) || ld(qp->cold[1]))
        soft_cq_pollset_warm(qp);
}

/* qp->lock. One of many: polls read it when the CQ's set says that something came. */
static void heat_one_of_many(struct soft_qp *qp) {
    spin_assert_held(&qp->lock);
    if (ld(qp->rx_stalled))
        soft_tcp_cool(qp);
    else
        soft_tcp_heat_until_told(qp);
}

static void each_of(struct soft_qp *qp, void (*then)(struct soft_qp *)) {
    spin_lock(&qp->lock);
    if (qp->tcp && !qp->tcp->down)
        then(qp);
    spin_unlock(&qp->lock);
}

/* poll_lock. But for those that are put aside, of which the set tells. */
static void each_socket(struct soft_cq *cq, void (*then)(struct soft_qp *)) {
    spin_assert_held(&cq->poll_lock);
    for (unsigned i = 0; i < cq->qp_count - cq->arrival_count; i++)
        if (ld(cq->polled[i].qp->has_socket))
            each_of(cq->polled[i].qp, then);
}

/*
 * poll_lock. What woke the thread is reported once: all that have something to read are read before it sleeps again. Of a
 * crowd the set tells, until polls have emptied it.
 */
static void sleep_on_sockets_end(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    each_socket(cq, ld(cq->tcp_crowd) ? heat_one_of_many : heat);
}

/* ---- with bells -------------------------------------------------------------------------------- */

bool soft_sleep_begin(struct ibv_cq *ibcq, bool elsewhere, int fd[2]) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    fd[0] = fd[1] = -1;
    if (soft_stale(cq))
        return false;
    spin_lock(&cq->poll_lock);
    int set;
    if (!elsewhere && has_sockets_to_sleep_on(cq, &set)) {
        fd[0] = set;
        soft_tcp_set_sleep(cq);
        soft_cq_pollset_take_warm(cq);
        each_socket(cq, soft_tcp_cool);
    }
    cq->on_bells = soft_bells_hear(cq); /* the arming behind this says so */
    if (cq->on_bells)
        fd[1] = soft_bells_set(cq);
    else if (!ld(cq->wants_bells))
        soft_bells_want(cq);
    spin_unlock(&cq->poll_lock);
    return fd[0] >= 0 || fd[1] >= 0;
}

bool soft_sleep_unfinished(struct ibv_cq *ibcq) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    return ld(cq->unfinished) && atomic_exchange(&cq->unfinished, false);
}

bool soft_sleep_end(struct ibv_cq *ibcq) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    spin_lock(&cq->poll_lock);
    bool disarmed = soft_cq_disarm(cq);
    if (cq->on_bells && cq->hot_count != cq->qp_count)
        (void)soft_bells_hear(cq); /* polls look at few of those that were quiet for long */
    cq->on_bells = false;
    if (ld(cq->asleep)) {
        soft_tcp_set_wake(cq);
        sleep_on_sockets_end(cq);
    }
    spin_unlock(&cq->poll_lock);
    return disarmed;
}
