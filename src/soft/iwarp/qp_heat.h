/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_heat.h - whose turn it is to look at a queue pair over a socket.
 *
 * Who polls a CQ reads the sockets of its hot queue pairs, so a message that follows another is seen without the
 * engine. A cold one costs a poll nothing: the engine's epoll is the set of them for all CQs.
 *
 * Of a crowd, more than a few hot ones, most have nothing at any time, and reading each would be mostly system calls for nothing.
 * So a poll asks the CQ's own set which have something (cq_set.h), and reads those alone. They stay hot for longer: to go
 * to the engine and back costs more than a message.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_IWARP_QP_HEAT_H
#define SOFT_IWARP_QP_HEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/verbs/cq.h"
#include "soft/verbs/qp.h"

/* Hot ones that are read in every poll, which is faster for each than to be told of it first. */
#define SOFT_TCP_DIRECT 4u

static inline bool soft_tcp_is_crowd(const struct soft_cq *cq) {
    return ld(cq->tcp_hot) > SOFT_TCP_DIRECT;
}

/* All that poll it ask their sets. */
static inline bool soft_tcp_in_crowd(const struct soft_qp *qp) {
    return soft_tcp_is_crowd(soft_cq_of(qp->ibv.recv_cq)) &&
           soft_tcp_is_crowd(soft_cq_of(qp->ibv.send_cq));
}

/* Pollers have nothing to do for it before its CQ's set says that something came. */
static inline bool soft_tcp_waits_to_be_told(const struct soft_qp *qp) {
    return qp->tcp->hot && !ld(qp->attention) && soft_tcp_in_crowd(qp);
}

/* Behind a turn: whose the next one is. */
void soft_tcp_hand_on(struct soft_qp *qp, bool moved);
/* Pollers have the next turn. */
void soft_tcp_heat_up(struct soft_qp *qp);
/* The engine has it, when something comes. */
void soft_tcp_cool(struct soft_qp *qp);
/* Of a crowd, in whose last tick no turn was: may it stay hot? */
bool soft_tcp_stays_hot(struct soft_qp *qp, uint64_t now);
/* Nobody has it any more. */
void soft_tcp_heat_end(struct soft_qp *qp);
void soft_tcp_want_tick(struct soft_qp *qp);
/* Somebody sleeps, or is about to. */
bool soft_tcp_armed(const struct soft_qp *qp);
/* One of its CQs was polled since this was asked last. */
bool soft_tcp_polled(struct soft_qp *qp);

#endif
