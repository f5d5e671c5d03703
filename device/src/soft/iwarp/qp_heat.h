/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_heat.h - which thread reads the socket of a queue pair: a poller of its CQs, or the engine.
 *
 * A poller of a CQ reads the sockets of the CQ's hot queue pairs, so a message that follows another is seen without the
 * engine. A cold queue pair costs a poll nothing: the engine's epoll set has the cold ones of all CQs.
 *
 * More than a few queue pairs of a CQ are a crowd. At any time most of a crowd have nothing to read, and most of the
 * system calls to read each would be wasted. So the CQ's own epoll set tells which have something (cq_set.h), and who
 * reads the set, pollers or the engine, is the same for all: none of them is moved to the engine and back.
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

/* After a turn: decides who makes the next one, and asks for it. */
void soft_tcp_hand_on(struct soft_qp *qp, bool moved);
/* Pollers make the next turn. */
void soft_tcp_heat_up(struct soft_qp *qp);
/* Of a crowd: pollers make the next turn when the CQ's set reports it, or if something is to be done already. */
void soft_tcp_heat_until_told(struct soft_qp *qp);
/* The engine makes the next turn, when something comes. */
void soft_tcp_cool(struct soft_qp *qp);
/* There is nothing to do before something comes, and then a thread that sleeps on its socket, or reads its CQ's set, does it. */
bool soft_tcp_waits_to_be_told(const struct soft_qp *qp);
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
