/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_iwarp.h - queue pairs of a device that is like iWARP: the connection moves them (mpa.h).
 *
 * Owner: the control lock.
 */
#ifndef SOFT_VERBS_QP_IWARP_H
#define SOFT_VERBS_QP_IWARP_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct soft_peer;
struct soft_qp;

/*
 * The connection to this process comes about, INIT to RTS: 0 or an errno. It ends: what had arrived is taken, then ERR
 * and the flush.
 */
int soft_qp_up(struct soft_qp *qp, struct soft_peer *peer, uint32_t remote_qpn,
               uint8_t responder_resources, uint8_t initiator_depth, bool listener);
void soft_qp_end(struct soft_qp *qp);
/* Changes attributes that an application may change, which are very few. 0 or an errno. */
int soft_iwarp_modify(struct soft_qp *qp, const struct ibv_qp_attr *attr, int mask);

#endif
