/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_transmit.h - what goes to the peer of a queue pair over a socket.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_IWARP_QP_TRANSMIT_H
#define SOFT_IWARP_QP_TRANSMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/iwarp/rdmap.h"

struct soft_qp;
struct soft_tcp;
struct soft_wqe;

/* What was taken by now is acknowledged: the last that the peer hears, if the socket takes it at once. */
void soft_tcp_answer_last(struct soft_qp *qp);
/* A bounded turn of sending. True: the socket took something. An errno it comes to is tcp->error. */
bool soft_tcp_transmit(struct soft_qp *qp);
/* The same of what is more than a few frames; these stay for a turn to send them, which has to come soon. */
bool soft_tcp_gather(struct soft_qp *qp);
/* Nothing is sent any more, or nothing is left to be: what answers were copied to. */
void soft_tcp_take_back_lent(struct soft_tcp *tcp);
void soft_tcp_transmit_forked(void);
/* The READ at that index of the send queue, as it is asked for. */
struct iwarp_read soft_tcp_read(struct soft_qp *qp, const struct soft_wqe *wqe, uint32_t index);

#endif
