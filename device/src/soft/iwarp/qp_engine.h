/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_engine.h - a queue pair over a socket as the engine sees it.
 *
 * Engine thread, control lock; both take the QP's lock.
 */
#ifndef SOFT_IWARP_QP_ENGINE_H
#define SOFT_IWARP_QP_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

struct soft_qp;

/* At each tick; true: again in a millisecond. */
bool soft_tcp_tick(struct soft_qp *qp, uint64_t now);
/*
 * Epoll reported these events of the socket. unpolled: no thread polls its CQ. False: what lies in the socket cannot be read
 * now.
 */
bool soft_tcp_event(struct soft_qp *qp, uint32_t events, bool unpolled);

#endif
