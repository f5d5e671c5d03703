/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * post_short.h - what the short ways of posting share: bytes go straight from the caller's memory to where the peer
 * sees them, and the request is recorded after that.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_VERBS_POST_SHORT_H
#define SOFT_VERBS_POST_SHORT_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "soft/fault/inject.h"
#include "soft/object/qp.h"
#include "soft/rc/completer.h"
#include "soft/rc/progress.h"
#include "soft/rc/requester.h"
#include "soft/rc/slot.h"

/* Stores what must be remembered of a request that is on its way. */
static inline void store_sent(struct soft_qp *qp, const struct ibv_send_wr *wr, uint32_t total,
                              uint32_t end) {
    struct soft_wqe *wqe = wqe_at(qp, qp->sq_tail);
    unsigned flags = wr->send_flags | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0);
    wqe->wr_id = wr->wr_id;
    wqe->end = end;
    wqe->total = total;
    wqe->bits = (uint64_t)(wr->opcode & 0xff) | (uint64_t)(flags & 0xff) << 8;
    qp->sq_next = ++qp->sq_tail;
    if ((flags & IBV_SEND_SIGNALED) && !ld(qp->awaited))
        soft_find_due(qp);
}

/* Nothing queued, nothing wrong; and no fault plan, which would have to be asked. */
static inline bool short_way(const struct soft_qp *qp) {
    return qp->plain_tx && qp->sq_next == qp->sq_tail && !soft_fault_active();
}

/* Is there room? A ring that looks full is compared with what its reader says. */
static inline bool room_for(struct soft_qp *qp, struct soft_ring *ring, unsigned span) {
    if (__builtin_expect(slot_room(qp) >= span, 1))
        return true;
    return note_ack(qp, atomic_load_explicit(&ring->rx.acked, memory_order_acquire)) &&
           slot_room(qp) >= span;
}

#endif
