/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_heat.h - which thread reads the socket of a queue pair: a poller of its CQs, or the engine.
 *
 * A poller of a CQ reads the sockets of the CQ's hot queue pairs, so a message that follows another is seen without the
 * engine. A cold queue pair costs a poll nothing: the engine's epoll set has the cold ones of all CQs.
 *
 * More than a few hot queue pairs of a CQ are a crowd. At any time most of a crowd have nothing to read, and most of
 * the system calls to read each would be wasted. So a poll asks the CQ's own epoll set which have something (cq_set.h),
 * and reads only those. They stay hot for longer: moving one to the engine and back costs more than a message.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_IWARP_QP_HEAT_H
#define SOFT_IWARP_QP_HEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/cq.h"
#include "soft/object/qp.h"

/* So many hot queue pairs are read in every poll, which is faster for each than asking the set first. */
#define SOFT_TCP_DIRECT 4u

static inline bool soft_tcp_is_crowd(const struct soft_cq *cq) {
    return ld(cq->tcp_hot) > SOFT_TCP_DIRECT;
}

/* Pollers of both of its CQs ask the CQ's set. */
static inline bool soft_tcp_in_crowd(const struct soft_qp *qp) {
    return soft_tcp_is_crowd(soft_cq_of(qp->ibv.recv_cq)) &&
           soft_tcp_is_crowd(soft_cq_of(qp->ibv.send_cq));
}

/* Pollers have nothing to do for the QP before the CQ's set reports that something came. */
static inline bool soft_tcp_waits_to_be_told(const struct soft_qp *qp) {
    return qp->tcp->hot && !ld(qp->attention) && soft_tcp_in_crowd(qp);
}

/* After a turn: decides who makes the next one, and asks for it. */
void soft_tcp_hand_on(struct soft_qp *qp, bool moved);
/* Pollers make the next turn. */
void soft_tcp_heat_up(struct soft_qp *qp);
/* Of a crowd: pollers make the next turn when the CQ's set reports it, or if something is to be done already. */
void soft_tcp_heat_until_told(struct soft_qp *qp);
/* The engine makes the next turn, when something comes. */
void soft_tcp_cool(struct soft_qp *qp);
/* At a tick without a turn since the last: a QP of a crowd that moved lately, and whose CQ is polled, stays hot. */
bool soft_tcp_stays_hot(struct soft_qp *qp, uint64_t now);
/* A thread that sleeps on its socket makes the next turn: there is nothing to do before something comes. */
bool soft_tcp_is_slept_on(const struct soft_qp *qp);
/* The QP ends: it is not hot any more. */
void soft_tcp_heat_end(struct soft_qp *qp);
void soft_tcp_want_tick(struct soft_qp *qp);
/* One of its CQs is armed: a thread sleeps, or is about to. */
bool soft_tcp_armed(const struct soft_qp *qp);
/* One of its CQs was polled since the last call. */
bool soft_tcp_polled(struct soft_qp *qp);

/* A thread reads its socket when something comes. The listener's end before its first frame: the CM has to hear of that. */
static inline bool soft_tcp_has_sleeper(const struct soft_qp *qp) {
    return ld(soft_cq_of(qp->ibv.recv_cq)->asleep) && (!qp->tcp->listens || qp->tcp->heard);
}

#endif
