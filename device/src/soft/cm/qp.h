/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp.h - the calls of the CM that change the QP on an id. Control lock not held, since changing a QP
 * takes it.
 */
#ifndef SOFT_CM_QP_H
#define SOFT_CM_QP_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct soft_cm_id;
struct rdma_conn_param;

/* INIT with the final rights, RTR, RTS. 255: the negotiated value. 0, or -1 and errno. */
int soft_cm_qp_connect(struct soft_cm_id *id, uint8_t responder_resources, uint8_t initiator_depth);
/* To ERR, if there is a QP; a failure does not matter. */
void soft_cm_qp_error(struct soft_cm_id *id);
/* Index of a GID in the port's table, 0 if it is not there. */
uint8_t soft_cm_qp_gid_index(struct ibv_context *verbs, const union ibv_gid *gid);
/* The device's limits for READ and atomic operations. Any lock may be held. */
void soft_cm_qp_limits(struct soft_cm_id *id, uint8_t *responder_resources,
                       uint8_t *initiator_depth);
/* PS_TCP: values above the device's limits. */
bool soft_cm_qp_param_invalid(struct soft_cm_id *id, const struct rdma_conn_param *param);

#endif
