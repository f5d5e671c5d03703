/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * order.h - what a message acknowledges is complete before the message, as on a NIC, which acknowledges a message before
 * its program can see it and so before anything that the program answers.
 *
 * Two ends keep it. The one that receives tells its peer what it has taken before its program can know of it, so before
 * the program can send anything by another queue pair; where a process has only one, what it sends next tells. The one
 * that sends looks at a message first, then at the acknowledgements of its sends: all that the message's sender can
 * have received has been acknowledged by then, and is completed before the message is taken.
 *
 * Programs that were written for NICs count on it. The library does not, and says so of its CQs (soft_cq_any_order());
 * its queue pairs pay nothing.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_ORDER_H
#define SOFT_RC_ORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"
#include "soft/rc/progress.h"

/* Queue pairs of this process that keep the order. */
extern _Atomic unsigned soft_order_count;

void soft_order_join(struct soft_qp *qp); /* a new one */
void soft_order_leave(
    struct soft_qp *qp); /* no lock held; no completion of others' is made of it any more */

void soft_order_forked(void); /* the parent's are no business of the child's */

/* A signalled send is acknowledged and not complete. */
static inline bool soft_order_is_due(const struct soft_qp *qp) {
    return ld(qp->awaited) && (int32_t)(ld(qp->tx_acked) - ld(qp->due)) >= 0;
}

/* Completes what is acknowledged of the QP's own sends. False: there is no room for all, and no message may be taken. */
bool soft_order_own_first(struct soft_qp *qp, struct sink *sink);

/*
 * The position behind the messages that may be taken now: those that were there before the sends of all other queue pairs
 * were looked at. Where it is rx_pos: none, as some of these are to be completed first.
 */
uint32_t soft_order_until(struct soft_qp *qp, struct sink *sink);

/*
 * Acknowledges what was taken. Early: before the program can know of the messages, as it may answer by another queue pair.
 * Else behind their completions: whose sends are complete may count on it that they were received.
 */
void soft_order_tell_early(struct soft_qp *qp);
void soft_order_tell(struct soft_qp *qp);

/* A poller found the lock taken. True: it has it now. */
bool soft_order_waits(struct soft_qp *qp);

#endif
