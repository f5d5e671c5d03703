/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * poll_many.h - polling of a CQ with many queue pairs: those that are listened to, and those that are not.
 *
 * Owner: the CQ's poll lock.
 */
#ifndef SOFT_VERBS_POLL_MANY_H
#define SOFT_VERBS_POLL_MANY_H

#include <infiniband/verbs.h>

#include "soft/rc/progress.h"
#include "soft/rc/qp_timer.h"
#include "soft/rc/ring.h"
#include "soft/verbs/cq.h"
#include "soft/verbs/qp.h"

/* The hot ones, of which there are more than SOFT_MANY. */
int soft_progress_many(struct soft_cq *cq, struct ibv_wc *wc, int ne);
/* Those whose peers have told something (cq_arrivals.h). */
int soft_progress_told(struct soft_cq *cq, struct ibv_wc *wc, int ne);

static inline void nothing_there(struct soft_qp *qp) {
    uint32_t polls = ld(qp->empty_polls) + 1;
    st(qp->empty_polls, polls);
    if (__builtin_expect(ld(qp->rx_told) != ld(qp->rx_pos) || polls % SOFT_LOOK_EVERY == 0, 0))
        soft_qp_idle(qp);
}

/* The same of one that is looked at once in so many polls. */
static inline void nothing_there_lately(struct soft_qp *qp, unsigned polls) {
    polls += ld(qp->empty_polls);
    st(qp->empty_polls, polls);
    if (__builtin_expect(ld(qp->rx_told) != ld(qp->rx_pos) || polls >= SOFT_KICK_AFTER, 0))
        soft_qp_idle(qp);
}

#define AHEAD 4u

/* With many QPs each lies in a part of memory that the cache has lost since it was looked at last. */
static inline void look_ahead(const struct soft_cq *cq, unsigned i, unsigned end) {
    if (__builtin_expect(end - i <= 2 * AHEAD, 1))
        return;
    __builtin_prefetch(&cq->polled[i + 2 * AHEAD].qp->rx);
    struct soft_qp *next = cq->polled[i + AHEAD].qp;
    struct soft_ring *ring = ld(next->rx);
    if (ring)
        __builtin_prefetch(&ring->slot[ld(next->rx_index)]);
}

#endif
