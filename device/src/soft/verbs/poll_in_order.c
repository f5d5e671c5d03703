/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* poll_in_order.c - see poll_in_order.h. */
#include "soft/verbs/poll_in_order.h"

#include "soft/fault/inject.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/rc/completer.h"
#include "soft/rc/order.h"
#include "soft/rc/progress.h"
#include "soft/rc/requester.h"
#include "soft/verbs/receive_short.h"

/* The next message's acknowledgement counts before the message. False: it may not be taken now. */
static inline bool sends_first(struct soft_qp *qp, const struct soft_ring *ring,
                               struct sink *sink) {
    if (__builtin_expect(!ld(qp->awaited), 0)) /* no completion waits for an acknowledgement */
        return true;
    uint32_t ack = ld(ring->slot[ld(qp->rx_index)].ack);
    if (ack != ld(qp->tx_acked) && !note_ack(qp, ack))
        return false;
    return !soft_order_is_due(qp) || soft_order_own_first(qp, sink);
}

/* Takes messages in order, as far as `until`. Their words, together; 0: none was taken. */
static inline uint32_t take_messages(struct soft_qp *qp, struct sink *sink, uint32_t until) {
    struct soft_ring *ring = ld(qp->rx);
    uint32_t seen = 0;
    while (sink->n < sink->ne && (int32_t)(until - ld(qp->rx_pos)) > 0 && arrived(qp, ring) &&
           sends_first(qp, ring, sink) && sink->n < sink->ne) {
        uint32_t index = ld(qp->rx_index), pos = ld(qp->rx_pos);
        uint32_t word = receive_one(qp, sink->cq, ring, index, pos, &sink->wc[sink->n]);
        if (word == 0)
            break;
        sink->n++;
        seen |= word;
        st(qp->rx_index, slot_behind(index, word));
        st(qp->rx_pos, pos + slots_of(word));
    }
    return seen;
}

int soft_serve_in_order(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    spin_assert_held(&qp->lock);
    struct sink sink = {.cq = cq, .wc = wc, .ne = ne};
    if (ld(cq->dead) || soft_fault_active())
        return 0;
    if (ld(qp->awaited) && answered(qp)) {
        struct soft_ring *tx = ld(qp->tx);
        if (!tx || !note_ack(qp, atomic_load_explicit(&tx->rx.acked, memory_order_acquire)) ||
            !soft_order_own_first(qp, &sink))
            return sink.n;
    }
    uint32_t seen = take_messages(qp, &sink, soft_order_until(qp, &sink));
    if (seen == 0)
        return sink.n;
    st(qp->empty_polls, 0);
    soft_order_tell_early(qp);
    soft_order_tell(qp);
    if (__builtin_expect(ld(qp->rx_pos) - ld(qp->rx_told) >= SOFT_RING_SLOTS / 4, 0))
        soft_qp_flush_ack(qp);
    if (__builtin_expect(ld(cq->armed) != 0, 0))
        soft_cq_signal(cq, (seen >> 8 & SOFT_F_SOLICITED) != 0);
    return sink.n;
}

int soft_take_from_ring(const struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne) {
    int n = qp->ordered ? soft_cq_pop(cq, wc, ne) : 0;
    return n > 0 ? n : 0;
}
