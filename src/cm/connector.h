/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connector.h - connecting where rdma_connect() blocks: threads that call it.
 *
 * Owner: the CM thread, except where marked.
 */
#ifndef CM_CONNECTOR_H
#define CM_CONNECTOR_H

#include <stdbool.h>

#include "core/cm_conn.h"
#include "core/mailbox.h"
#include "fabric/fabric.h"

struct cm_connect; /* one call, of one try */
struct cm_connector;
struct sluice_node;

/* Starts no thread. 0 or -errno. */
int connector_open(struct cm_connector **out, struct mailbox *wake,
                   const struct fabric_ops *fabric);
/* rdma_connect() of conn's id, on a connector thread. NULL: no memory, or no thread, and errno. */
struct cm_connect *connector_connect(struct cm_connector *c, struct cm_conn *conn,
                                     const struct rdma_conn_param *param);
bool connector_has_answers(struct cm_connector *c);
/* A connection whose call has returned, and the errno it failed with or 0; NULL: no call has. */
struct cm_conn *connector_answer(struct cm_connector *c, int *error);
/* The call has returned, and its outcome is known: nothing about the id or the QP blocks any more. */
void connector_end(struct cm_connect *call);

/*
 * The try is given up. True: the id is the connector's, and so is the queue pair, which it waits for by
 * connector_give(). False: nothing is under way; the call is ended, and both are the caller's as ever.
 */
bool connector_leave(struct cm_connector *c, struct cm_connect *call);
/* Hands over the drained QP, which no other code uses; NULL: there is none. The call is ended. */
void connector_give(struct cm_connector *c, struct cm_connect *call, struct ibv_qp *qp);
/* Any thread. Calls were left whose queue pairs are there still, or will be given. */
bool connector_busy(struct cm_connector *c);
/* If calls were left: true, and the threads destroy what their QPs or ids hold (the channel) after those. */
bool connector_inherit_channel(struct cm_connector *c, struct rdma_event_channel *channel);
/* No answers any more. */
void connector_detach_wakeup(struct cm_connector *c);
/* connector_inherit_channel() of a node's connector, which it may not have. A loop's thread. */
bool cm_connect_inherits(struct sluice_node *n, struct ibv_cq *cq,
                         struct ibv_comp_channel *completions);
/* Waits for no call. True: the threads destroy PD and context as well. */
bool connector_close(struct cm_connector *c, struct ibv_pd *pd, struct ibv_context *context);

#endif
