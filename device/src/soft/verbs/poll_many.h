/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * poll_many.h - polling of a CQ with many queue pairs: those that the CQ listens to (cq_arrivals.h), and the others.
 *
 * Owner: the CQ's poll lock.
 */
#ifndef SOFT_VERBS_POLL_MANY_H
#define SOFT_VERBS_POLL_MANY_H

#include <infiniband/verbs.h>

#include "soft/object/cq.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/rc/progress.h"
#include "soft/rc/qp_timer.h"

/* Serves hot queue pairs that have something, where there are more than SOFT_MANY hot ones. */
int soft_progress_many(struct soft_cq *cq, struct ibv_wc *wc, int ne);
/* Serves queue pairs whose entries on the peers' boards have changed. */
int soft_progress_told(struct soft_cq *cq, struct ibv_wc *wc, int ne);

static inline void nothing_there(struct soft_qp *qp) {
    uint32_t polls = ld(qp->empty_polls) + 1;
    st(qp->empty_polls, polls);
    if (__builtin_expect(ld(qp->rx_told) != ld(qp->rx_pos) || polls % SOFT_LOOK_EVERY == 0, 0))
        soft_qp_idle(qp);
}

#define AHEAD 4u

/* Fetches the QPs ahead: with many QPs the cache has lost each since the poller looked at it last. */
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
