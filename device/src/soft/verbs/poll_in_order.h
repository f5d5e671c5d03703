/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * poll_in_order.h - the short way of messages for pollers that are promised the order of rc/order.h.
 *
 * Owner: the CQ's poll lock, and inside it the QP's.
 */
#ifndef SOFT_VERBS_POLL_IN_ORDER_H
#define SOFT_VERBS_POLL_IN_ORDER_H

#include <infiniband/verbs.h>

struct soft_cq;
struct soft_qp;

/* qp->lock; cq is the QP's receive CQ, and its short way is open. How many completions there are in wc. */
int soft_serve_in_order(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne);

/*
 * Another thread has put completions into the CQ's ring since the poll looked there. A program that knows of them finds
 * them by one poll. How many were taken.
 */
int soft_take_from_ring(const struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne);

#endif
