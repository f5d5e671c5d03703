/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * poll_sockets.c - see poll_sockets.h.
 *
 * Owner: the CQ's poll lock.
 */
#include "soft/verbs/poll_sockets.h"

#include "soft/ipc/spinlock.h"
#include "soft/iwarp/cq_set.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/cq.h"
#include "soft/object/cq_pollset.h"
#include "soft/object/qp.h"
#include "soft/verbs/internal.h"

_Static_assert(sizeof((struct soft_cq *)0)->tcp_due == SOFT_TCP_LOOK * sizeof(struct soft_qp *),
               "all that one look finds");

unsigned soft_look_at_sockets(struct soft_cq *cq, struct soft_qp *due[SOFT_TCP_LOOK]) {
    struct epoll_event ready[SOFT_TCP_LOOK];
    unsigned count = 0, n = soft_tcp_set_wait(cq, ready);
    for (unsigned i = 0; i < n; i++)
        if (soft_tcp_seen(ready[i].data.ptr, ready[i].events))
            due[count++] = ready[i].data.ptr;
    return count;
}

int soft_progress_sockets(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    spin_assert_held(&cq->poll_lock);
    int n = 0;
    if (cq->tcp_due_next == cq->tcp_due_count) {
        cq->tcp_due_next = 0;
        cq->tcp_due_count = soft_look_at_sockets(cq, cq->tcp_due);
    }
    while (cq->tcp_due_next < cq->tcp_due_count && n < ne) {
        struct soft_qp *qp = cq->tcp_due[cq->tcp_due_next++];
        n += soft_serve(qp, cq, wc + n, ne - n);
        if (__builtin_expect(ld(qp->socket_due), 0)) { /* another thread has its lock */
            soft_cq_pollset_warm(qp);
            st(cq->unfinished, true);
        }
    }
    return n;
}

/* False: it has something to do, or another thread has its lock. */
static bool put_aside(struct soft_cq *cq, unsigned at) {
    struct soft_qp *qp = cq->polled[at].qp;
    if (ld(qp->attention) || !spin_try(&qp->lock))
        return false;
    bool aside = qp->tcp && !qp->tcp->down && !ld(qp->attention) && soft_tcp_in_crowd(qp);
    if (aside)
        soft_cq_pollset_set_aside(cq, at);
    spin_unlock(&qp->lock);
    return aside;
}

void soft_put_sockets_aside(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    bool left = false;
    st(cq->sockets_hot, false);
    for (unsigned i = 0; i < cq->hot_count;) {
        struct soft_qp *qp = cq->polled[i].qp;
        if (!ld(qp->has_socket) || !soft_tcp_in_crowd(qp)) {
            i++;
            continue;
        }
        if (put_aside(cq, i))
            continue; /* another one is there now */
        left = true;
        i++;
    }
    if (left)
        st(cq->sockets_hot, true);
}
