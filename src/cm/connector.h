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
/* rdma_connect() of conn's id, by somebody else. NULL: no memory, or no thread, and errno. */
struct cm_connect *connector_connect(struct cm_connector *c, struct cm_conn *conn,
                                     const struct rdma_conn_param *param);
bool connector_has_answers(struct cm_connector *c);
/* Whose call has returned, and the errno it failed with or 0; NULL: nobody's. */
struct cm_conn *connector_answer(struct cm_connector *c, int *error);
/* It has returned, and what came of it is known: nothing about the id or the QP blocks any more. */
void connector_end(struct cm_connect *call);

/*
 * The try is given up. True: the id is the connector's, and so is the queue pair, which it waits for by
 * connector_give(). False: nothing is under way; the call is ended, and both are the caller's as ever.
 */
bool connector_leave(struct cm_connector *c, struct cm_connect *call);
/* Drained, and of no more use to anybody; NULL: there is none. The call is ended. */
void connector_give(struct cm_connector *c, struct cm_connect *call, struct ibv_qp *qp);
/* Any thread. Calls were left whose queue pairs are there still, or will be given. */
bool connector_busy(struct cm_connector *c);
/* Where it is busy: true, and what its queue pairs or ids hold goes when they have gone. */
bool connector_inherit_channel(struct cm_connector *c, struct rdma_event_channel *channel);
/* No answers any more. */
void connector_detach_wakeup(struct cm_connector *c);
/* The same of a node, which may have none. A loop's thread. */
bool cm_connect_inherits(struct sluice_node *n, struct ibv_cq *cq,
                         struct ibv_comp_channel *completions);
/* Waits for nobody. True: PD and context are left to it as well. */
bool connector_close(struct cm_connector *c, struct ibv_pd *pd, struct ibv_context *context);

#endif
