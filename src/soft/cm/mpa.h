/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mpa.h - connections of a device that is like iWARP: what rdma_cm does over TCP and MPA.
 *
 * An iWARP device connects with the queue pair that conn_param names and drives it: INIT to RTS when the
 * two agree, to ERR whenever the connection ends, and whatever ends the queue pair ends the connection.
 * There is no third message, no timewait, and nobody is asked again. Connecting blocks until TCP does, and
 * so does destroying an id or a queue pair that waits for its answer.
 *
 * States: REQ_SENT, REQ_RCVD, UP, OVER of enum cm_conn_state; conn.waiting: TCP is connected.
 */
#ifndef SOFT_CM_MPA_H
#define SOFT_CM_MPA_H

#include <stdint.h>

struct cm_id;
struct cm_wire_head;
struct cm_wire_mpa;
struct ibv_qp_attr;
struct rdma_conn_param;
struct soft_peer;
struct soft_qp;

/* The calls; control lock not held. 0 or an errno. */
int cm_mpa_connect(struct cm_id *id, const struct rdma_conn_param *param);
int cm_mpa_accept(struct cm_id *id, const struct rdma_conn_param *param);
int cm_mpa_reject(struct cm_id *id, const void *data, uint8_t len);
int cm_mpa_disconnect(struct cm_id *id);
/* Before the id is destroyed: blocks as long as it waits for an answer. */
void cm_mpa_settle(struct cm_id *id);

/* Control lock held, for the rest. */
void cm_mpa_attr(const struct cm_id *id, struct ibv_qp_attr *attr, int *mask);
/* The id goes away, its peer's process died. */
void cm_mpa_kill(struct cm_id *id);
void cm_mpa_peer_gone(struct cm_id *id);
/* As if the connection had failed with that event. */
void cm_mpa_fault(struct cm_id *id, int type, int status);
/* Before the queue pair is destroyed: as cm_mpa_settle(). The lock is given up meanwhile. */
void cm_mpa_settle_qp(const struct soft_qp *qp);
/* The queue pair is in ERR, or as good as destroyed. */
void cm_mpa_qp_down(const struct soft_qp *qp);

/* Messages for this id from its peer, and a request; already checked for size. */
void cm_mpa_on_req(struct soft_peer *peer, const struct cm_wire_mpa *req);
void cm_mpa_on_seen(struct cm_id *id, const struct cm_wire_head *head);
void cm_mpa_on_rep(struct cm_id *id, const struct cm_wire_mpa *rep);
void cm_mpa_on_rej(struct cm_id *id, const struct cm_wire_mpa *rej);
void cm_mpa_on_fin(struct cm_id *id);

#endif
