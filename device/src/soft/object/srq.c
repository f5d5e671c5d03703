/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * srq.c - the event of a shared receive queue that has few receives left.
 */
#include "soft/object/srq.h"

#include "soft/object/async_event.h"

void soft_srq_low(struct soft_srq *srq) {
    soft_async_event(srq->ibv.context, IBV_EVENT_SRQ_LIMIT_REACHED, &srq->ibv);
}
