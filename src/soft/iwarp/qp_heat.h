/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_heat.h - whose turn it is to look at a queue pair over a socket.
 *
 * Who polls a CQ reads the sockets of its hot queue pairs, so a message that follows another is seen without the
 * engine. A cold one costs a poll nothing: the engine's epoll is the set of them for all CQs.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_IWARP_QP_HEAT_H
#define SOFT_IWARP_QP_HEAT_H

#include <stdbool.h>

struct soft_qp;

/* Behind a turn: whose the next one is. */
void soft_tcp_hand_on(struct soft_qp *qp, bool moved);
/* Pollers have the next turn. */
void soft_tcp_heat_up(struct soft_qp *qp);
/* The engine has it, when something comes. */
void soft_tcp_cool(struct soft_qp *qp);
void soft_tcp_want_tick(struct soft_qp *qp);
/* Somebody sleeps, or is about to. */
bool soft_tcp_armed(const struct soft_qp *qp);
/* One of its CQs was polled since this was asked last. */
bool soft_tcp_polled(struct soft_qp *qp);

#endif
