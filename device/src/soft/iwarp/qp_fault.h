/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_fault.h - the effects of a fault plan, or of a port that is down, on a queue pair over a socket.
 *
 * The functions that are not inline are called only while a plan is in force or the port is down. Owner: the QP's lock.
 */
#ifndef SOFT_IWARP_QP_FAULT_H
#define SOFT_IWARP_QP_FAULT_H

#include <stdbool.h>

#include "soft/fault/inject.h"
#include "soft/iwarp/qp_tcp.h"

struct sink;
struct soft_wqe;

/*
 * True: nothing is sent or received now. A queue pair with work that waits too long while the port is down loses its
 * connection.
 */
bool soft_tcp_look_dark(struct soft_qp *qp, struct sink *sink);
static inline bool soft_tcp_is_dark(struct soft_qp *qp, struct sink *sink) {
    return __builtin_expect(soft_fault_active() || qp->tcp->dark, 0) &&
           soft_tcp_look_dark(qp, sink);
}

/* True: the next work request may be sent now. */
bool soft_tcp_ask_send(struct soft_qp *qp, struct soft_wqe *wqe);
static inline bool soft_tcp_may_send(struct soft_qp *qp, struct soft_wqe *wqe) {
    return __builtin_expect(!soft_fault_active(), 1) || soft_tcp_ask_send(qp, wqe);
}

/* True: the next message may take its receive now. False with tcp->take_status: soft_tcp_refuse_take() must follow. */
bool soft_tcp_ask_take(struct soft_qp *qp);
static inline bool soft_tcp_may_take(struct soft_qp *qp) {
    return __builtin_expect(!soft_fault_active(), 1) || soft_tcp_ask_take(qp);
}
/* Completes the receive with tcp->take_status, and ends the QP. */
void soft_tcp_refuse_take(struct soft_qp *qp);

#endif
