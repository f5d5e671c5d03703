/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * responder.h - arrived messages: into posted receives, or executed.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_RESPONDER_H
#define SOFT_RC_RESPONDER_H

struct sink;
struct soft_qp;
struct soft_rqe;

void soft_responder(struct soft_qp *qp, struct sink *sink);
/* The receive the present message goes to; taken off a shared queue when it begins. NULL: none. */
struct soft_rqe *soft_receive_get(struct soft_qp *qp);
void soft_receive_done(struct soft_qp *qp);

#endif
