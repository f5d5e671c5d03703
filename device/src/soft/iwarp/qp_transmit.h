/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_transmit.h - sending to the peer of a queue pair over a socket.
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

/* The QP ends: acknowledges what it has received by now, if the socket takes that at once. */
void soft_tcp_answer_last(struct soft_qp *qp);
/* Sends a bounded number of bytes. True: the socket took some. An errno goes to tcp->error. */
bool soft_tcp_transmit(struct soft_qp *qp);
/* soft_tcp_transmit() that leaves a few frames for the next turn (tcp->gathered), which has to come soon. */
bool soft_tcp_gather(struct soft_qp *qp);
/* All was sent, or the QP ends: takes back the memory that was lent for answers. */
void soft_tcp_take_back_lent(struct soft_tcp *tcp);
void soft_tcp_transmit_forked(void);
/* The request for the READ at that index of the send queue. */
struct iwarp_read soft_tcp_read(struct soft_qp *qp, const struct soft_wqe *wqe, uint32_t index);

#endif
