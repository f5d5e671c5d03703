/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * poll_many.c - polling of a CQ with many queue pairs. The cache has lost each of them since the poller looked at it
 * last, so the poller looks only at queue pairs that have something.
 *
 * Owner: the CQ's poll lock.
 */
#include "soft/verbs/poll_many.h"

#include <stdatomic.h>

#include "soft/ipc/spinlock.h"
#include "soft/object/cq_arrivals.h"
#include "soft/object/cq_lines.h"
#include "soft/object/cq_pollset.h"
#include "soft/rc/progress.h"
#include "soft/rc/requester.h"
#include "soft/verbs/internal.h"

#define LOOKS 8u /* in so many polls each QP that is not listened to is looked at as a whole */
#define LISTEN_EVERY 16u /* polls between searches for QPs that can be listened to */
#define LULL 4u          /* empty polls in a row, after which there is time to acknowledge */

/* ---- QPs that are not listened to ------------------------------------------------------------------ */

static inline int serve_polled(struct soft_cq *cq, unsigned i, struct ibv_wc *wc, int ne) {
    struct soft_polled *polled = &cq->polled[i];
    struct soft_qp *qp = polled->qp;
    int n = 0;
    if (soft_qp_has_work(qp))
        n = soft_serve(qp, cq, wc, ne);
    if (n == 0)
        nothing_there(qp);
    struct soft_ring *ring = ld(qp->rx);
    if (ring) {
        polled->seq = &ring->slot[ld(qp->rx_index)].seq;
        polled->want = ld(qp->rx_pos) + 1;
    }
    return n;
}

/* Looks at the next few QPs as a whole: work other than a message in the ring is rare, and waits for this. */
static int look_at_some(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    unsigned hot = cq->hot_count, i = cq->look_next < hot ? cq->look_next : 0;
    int n = 0;
    for (unsigned left = hot / LOOKS + 1; left > 0 && n < ne; left--) {
        look_ahead(cq, i, hot);
        n += serve_polled(cq, i, wc + n, ne - n);
        i = i + 1 < hot ? i + 1 : 0;
    }
    cq->look_next = i;
    return n;
}

/* Then serves QPs whose ring has a message, from behind the QP that filled the poll before. poll_lock held. */
int soft_progress_many(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    spin_assert_held(&cq->poll_lock);
    if (ld(cq->idle_polls) % LISTEN_EVERY == 0)
        soft_cq_pollset_listen(cq);
    int n = look_at_some(cq, wc, ne);
    unsigned hot = cq->hot_count, i = cq->first < hot ? cq->first : 0;
    for (unsigned left = hot; left > 0 && n < ne; left--) {
        const struct soft_polled *polled = &cq->polled[i];
        if (__builtin_expect(ld(*polled->seq) == polled->want, 0))
            n += serve_polled(cq, i, wc + n, ne - n);
        i = i + 1 < hot ? i + 1 : 0;
    }
    cq->first = i;
    return n;
}

/* ---- QPs that are listened to --------------------------------------------------------------------- */

/* A message to a peer also acknowledges the messages taken from it; without one this does, when polls are empty. */
static inline void settle_owing(struct soft_cq *cq) {
    unsigned count = cq->owing_count < SOFT_OWING ? cq->owing_count : SOFT_OWING;
    if (cq->owing_count > SOFT_OWING)
        soft_cq_owing_lost(cq);
    cq->owing_count = 0;
    for (unsigned i = 0; i < count; i++) {
        struct soft_qp *qp = soft_arrival_qp(cq, cq->owing[i]);
        if (!qp || ld(qp->rx_told) == ld(qp->rx_pos))
            continue;
        if (spin_try(&qp->lock)) {
            soft_qp_flush_ack(qp);
            spin_unlock(&qp->lock);
        } else {
            soft_cq_owing_lost(cq);
        }
    }
}

/*
 * Serves a QP whose entry on the peer's board has changed. The messages taken now count as seen; the rest differs again
 * in the next poll. An entry that claims slots which are not there counts as seen too, so that it costs one look only.
 */
static inline int serve_told(struct soft_cq *cq, struct soft_arrival told, struct ibv_wc *wc,
                             int ne) {
    struct soft_arrivals *line = &cq->arrivals[told.at / SOFT_TOLD_LINE];
    unsigned i = told.at % (unsigned)SOFT_TOLD_LINE;
    struct soft_qp *qp = line->qp[i];
    if (!qp || !soft_qp_has_work(qp)) {
        if (!qp || !ld(qp->rx_stalled)) {
            line->seen.one[i].pos = told.pos;
            line->seen.one[i].news = told.news;
        }
        return 0;
    }
    uint32_t pos = ld(qp->rx_pos);
    int ahead = (uint8_t)(told.pos - pos);
    /* Not more than the announced slots: a look at the slot behind them would fetch another cache line. */
    bool just = ahead > 0 && ahead < ne && !ld(qp->awaited);
    int n = soft_serve(qp, cq, wc, just ? ahead : ne);
    uint32_t now = ld(qp->rx_pos);
    line->seen.one[i].pos = (uint8_t)now;
    if ((n > 0 || now != pos) && !answered(qp))
        line->seen.one[i].news = told.news;
    if (now != ld(qp->rx_told))
        cq->owing[cq->owing_count++ % SOFT_OWING] = told.at;
    return n;
}

/* Always inline: gcc leaves out calls of functions that only prefetch. */

/* A QP that the poller did not look at lately is not in the cache. */
static inline __attribute__((always_inline)) void fetch_told(const struct soft_cq *cq,
                                                             uint32_t at) {
    const struct soft_qp *qp = soft_arrival_qp(cq, at);
    if (!qp)
        return;
    __builtin_prefetch(&qp->rx);
    __builtin_prefetch(&qp->lock);
    __builtin_prefetch(&qp->srq);
}

static inline __attribute__((always_inline)) void fetch_slot(const struct soft_cq *cq,
                                                             uint32_t at) {
    struct soft_qp *qp = soft_arrival_qp(cq, at);
    struct soft_ring *ring = qp ? ld(qp->rx) : NULL;
    if (ring) {
        __builtin_prefetch(&ring->slot[ld(qp->rx_index)]);
        __builtin_prefetch(&ring->slot[ld(qp->rx_index)].data[64]);
    }
}

/* Serves all once around, from behind the QP that filled the poll before. */
int soft_progress_told(struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    struct soft_arrival told[SOFT_ARRIVAL_MAX];
    uint32_t at = cq->arrival_next, left = cq->arrival_lines * (uint32_t)SOFT_TOLD_LINE;
    int n = 0;
    soft_lines_look(cq);
    while (left > 0) {
        unsigned count = soft_arrivals_due(cq, &at, &left, told);
        for (unsigned i = 0; i < count && i < AHEAD; i++)
            fetch_told(cq, told[i].at);
        for (unsigned i = 0; i < count; i++) {
            if (i + AHEAD < count)
                fetch_told(cq, told[i + AHEAD].at);
            if (i + AHEAD / 2 < count)
                fetch_slot(cq, told[i + AHEAD / 2].at);
            n += serve_told(cq, told[i], wc + n, ne - n);
            if (n == ne) {
                cq->lulls = 0;
                cq->arrival_next =
                    (told[i].at + 1) % (cq->arrival_lines * (uint32_t)SOFT_TOLD_LINE);
                return n;
            }
        }
    }
    if (n == 0) /* begins with a whole line, which is done with if nothing differs there */
        cq->arrival_next -= cq->arrival_next % (uint32_t)SOFT_TOLD_LINE;
    cq->lulls = n > 0 ? 0 : cq->lulls + 1;
    if (cq->lulls >= LULL && cq->owing_count > 0)
        settle_owing(cq);
    return n;
}
