/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mpa.h - connections of a device that is like iWARP: what rdma_cm does over TCP and MPA.
 *
 * An iWARP device connects with the queue pair that conn_param names and drives it: INIT to RTS when the
 * two agree, to ERR whenever the connection ends; and when the queue pair ends, the connection ends.
 * There is no third message, no timewait, and only TCP repeats a request. Connecting blocks until TCP does, and
 * so does destroying an id or a queue pair that waits for its answer.
 *
 * States: REQ_SENT, REQ_RCVD, UP, OVER of enum soft_cm_conn_state; conn.waiting: TCP is connected.
 */
#ifndef SOFT_CM_MPA_H
#define SOFT_CM_MPA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soft_cm_id;
struct rdma_conn_param;
struct soft_qp;

/* The calls; control lock not held. 0 or an errno. */
int soft_cm_mpa_connect(struct soft_cm_id *id, const struct rdma_conn_param *param);
int soft_cm_mpa_accept(struct soft_cm_id *id, const struct rdma_conn_param *param);
int soft_cm_mpa_reject(struct soft_cm_id *id, const void *data, uint8_t len);
int soft_cm_mpa_disconnect(struct soft_cm_id *id);
/* Before the id is destroyed: blocks as long as it waits for an answer. */
void soft_cm_mpa_settle(struct soft_cm_id *id);

/* Control lock held, for the rest. */
/* The id goes away. */
void soft_cm_mpa_kill(struct soft_cm_id *id);
/* As if the connection had failed with that event. */
void soft_cm_mpa_fault(struct soft_cm_id *id, int type, int status);
/* Before the queue pair is destroyed: as soft_cm_mpa_settle(). The lock is given up meanwhile. */
void soft_cm_mpa_settle_qp(const struct soft_qp *qp);
/* The queue pair is in ERR, or as good as destroyed. */
void soft_cm_mpa_qp_down(const struct soft_qp *qp);

/* The connection is over; a thread that blocks on it looks again. */
void soft_cm_mpa_over(struct soft_cm_id *id);
/* It never came about: queue pair, then event. */
void soft_cm_mpa_failed(struct soft_cm_id *id, int type, int status, const uint8_t *data,
                        size_t len);
/* It was up and ends: DISCONNECTED at once. tell: the peer has yet to hear of it. */
void soft_cm_mpa_down(struct soft_cm_id *id, bool tell);
/* TCP did not connect: connect fails with that. */
void soft_cm_mpa_not_connected(struct soft_cm_id *id, int error);
/* Sends the request, and again until it was seen; connect may fail of it. */
void soft_cm_mpa_handshake(struct soft_cm_id *id);
/* TCP is connected: the answer has its time. */
void soft_cm_mpa_await_answer(struct soft_cm_id *id);

#endif
