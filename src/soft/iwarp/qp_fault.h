/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_fault.h - what a fault plan, or a port that is down, does to a queue pair over a socket.
 *
 * Nothing of it is asked unless there is a plan or the port is down. Owner: the QP's lock.
 */
#ifndef SOFT_IWARP_QP_FAULT_H
#define SOFT_IWARP_QP_FAULT_H

#include <stdbool.h>

#include "soft/fault/inject.h"
#include "soft/iwarp/qp_tcp.h"

struct sink;
struct soft_wqe;

/* True: nothing moves now, either way. One for whom something waits too long while the port is down loses its connection. */
bool soft_tcp_look_dark(struct soft_qp *qp, struct sink *sink);
static inline bool soft_tcp_is_dark(struct soft_qp *qp, struct sink *sink) {
    return __builtin_expect(soft_fault_active() || qp->tcp->dark, 0) &&
           soft_tcp_look_dark(qp, sink);
}

/* The work request next in line goes out now. */
bool soft_tcp_ask_send(struct soft_qp *qp, struct soft_wqe *wqe);
static inline bool soft_tcp_may_send(struct soft_qp *qp, struct soft_wqe *wqe) {
    return __builtin_expect(!soft_fault_active(), 1) || soft_tcp_ask_send(qp, wqe);
}

/* The message next in line takes its receive now. Else, with tcp->take_status, soft_tcp_refuse_take() follows. */
bool soft_tcp_ask_take(struct soft_qp *qp);
static inline bool soft_tcp_may_take(struct soft_qp *qp) {
    return __builtin_expect(!soft_fault_active(), 1) || soft_tcp_ask_take(qp);
}
/* The receive ends with that status, and the QP with it. */
void soft_tcp_refuse_take(struct soft_qp *qp);

#endif
