/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ud_recv.h - datagrams that arrived, into posted receives.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_UD_UD_RECV_H
#define SOFT_UD_UD_RECV_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct sink;
struct soft_qp;

void soft_ud_receive(struct soft_qp *qp, struct sink *sink);
bool soft_ud_arrived(struct soft_qp *qp); /* takes qp->lock: something waits in a ring */
void soft_ud_starts(struct soft_qp *qp, enum ibv_qp_state to); /* what came before RTR is lost */

#endif
