/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_receive.h - receiving from the peer of a queue pair over a socket.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_IWARP_QP_RECEIVE_H
#define SOFT_IWARP_QP_RECEIVE_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include "soft/iwarp/rx.h"

struct soft_qp;

extern const struct iwarp_rx_ops soft_tcp_rx_ops, soft_tcp_rx_ops_in_order; /* owner: the QP */
/* Reads from the socket, a bounded number of bytes. True: something came. The QP may have ended. */
bool soft_tcp_receive(struct soft_qp *qp);
/* Completes a receive, into the poller's array, or if that is full into the CQ's ring. */
void soft_tcp_complete_receive(struct soft_qp *qp, const struct ibv_wc *wc, bool solicited);

#endif
