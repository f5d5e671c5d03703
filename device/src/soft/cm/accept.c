/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * accept.c - answering a request: accept, reject, and rdma_notify(), which reports that traffic already flows.
 *
 * The QP is moved without the control lock, so the peer may give up meanwhile: the connection's
 * state is checked again before the reply is sent.
 */
#include <string.h>

#include "common/uncancelled.h"
#include "soft/cm/answer.h"
#include "soft/cm/conn_end.h"
#include "soft/cm/fault.h"
#include "soft/cm/id.h"
#include "soft/cm/mpa.h"
#include "soft/cm/qp.h"
#include "soft/cm/sync.h"
#include "soft/fault/plan.h"
#include "soft/object/profile.h"
#include "soft/soft.h"

static uint8_t smaller(uint8_t a, uint8_t b) {
    return a < b ? a : b;
}

struct depths {
    uint8_t responder_resources, initiator_depth;
};

/* Explicit values as they are, otherwise what was asked for as far as the device has it. */
static struct depths choose_depths(struct soft_cm_id *id, const struct rdma_conn_param *param) {
    struct depths limit, chosen;
    soft_cm_qp_limits(id, &limit.responder_resources, &limit.initiator_depth);
    chosen.responder_resources =
        param && param->responder_resources != RDMA_MAX_RESP_RES
            ? param->responder_resources
            : smaller(id->conn.responder_resources, limit.responder_resources);
    chosen.initiator_depth = param && param->initiator_depth != RDMA_MAX_INIT_DEPTH
                                 ? param->initiator_depth
                                 : smaller(id->conn.initiator_depth, limit.initiator_depth);
    return chosen;
}

static void send_rep(struct soft_cm_id *id, const struct rdma_conn_param *param,
                     struct depths depths) {
    struct soft_cm_conn *conn = &id->conn;
    struct ibv_qp *qp = id->id.qp;
    conn->local_qpn = qp ? qp->qp_num : param->qp_num & 0xffffff;
    conn->responder_resources = depths.responder_resources;
    conn->initiator_depth = depths.initiator_depth;
    union soft_cm_wire_any *msg = &conn->request;
    memset(msg, 0, sizeof *msg);
    msg->rep.qp_num = conn->local_qpn;
    msg->rep.psn = conn->send_psn;
    msg->rep.responder_resources = depths.responder_resources;
    msg->rep.initiator_depth = depths.initiator_depth;
    msg->rep.rnr_retry_count = param ? smaller(param->rnr_retry_count, 7) : 7;
    msg->rep.flow_control = param ? param->flow_control : 0;
    msg->rep.srq = qp ? qp->srq != NULL : param->srq;
    if (param && param->private_data && param->private_data_len)
        memcpy(msg->rep.data, param->private_data, param->private_data_len);
    conn->request_type = SOFT_CM_WIRE_REP;
    conn->request_bytes = sizeof msg->rep;
    id->published = true;
    soft_cm_conn_ask(id, SOFT_CM_CONN_REP_SENT);
}

static size_t data_len(const struct rdma_conn_param *param) {
    return param && param->private_data ? param->private_data_len : 0;
}

static int accept_rc(struct soft_cm_id *id, const struct rdma_conn_param *param) {
    soft_lock();
    bool asked = id->state == SOFT_CM_CONNECT && id->conn.state == SOFT_CM_CONN_REQ_RCVD;
    struct depths depths = choose_depths(id, param);
    soft_unlock();
    if (!asked)
        return EINVAL;
    /* As with the library: the CM does not hear of a QP that cannot be moved, so nor does the peer. */
    if (id->id.qp && soft_cm_qp_connect(id, depths.responder_resources, depths.initiator_depth))
        return errno;
    int error = data_len(param) > SOFT_CM_REP_DATA ? EINVAL : 0;
    soft_lock();
    bool still = id->conn.state == SOFT_CM_CONN_REQ_RCVD;
    if (!still)
        error = EINVAL;
    int event, status;
    if (!error && soft_fault_id_call(&id->fault, FAULT_ACCEPT, &event, &status)) {
        id->published = true;
        soft_cm_conn_fault(id, event, status);
    } else if (!error)
        send_rep(id, param, depths);
    else if (still)
        soft_cm_conn_reject(id, SOFT_CM_REJECT_CONSUMER, NULL, 0);
    soft_unlock();
    if (error)
        soft_cm_qp_error(id);
    return error;
}

static int accept_ud(struct soft_cm_id *id, const struct rdma_conn_param *param) {
    soft_lock();
    int error = 0;
    if (id->state != SOFT_CM_CONNECT || id->conn.state != SOFT_CM_CONN_SIDR_RCVD) {
        error = EINVAL;
    } else if (data_len(param) > SOFT_CM_SIDR_REP_DATA) {
        error = EINVAL;
        soft_cm_conn_sidr_reply(id, SOFT_CM_SIDR_REJECTED, NULL, 0);
    } else {
        id->conn.local_qpn = id->id.qp ? id->id.qp->qp_num : param->qp_num & 0xffffff;
        id->conn.qkey = RDMA_UDP_QKEY;
        id->published = true;
        soft_cm_conn_sidr_reply(id, SOFT_CM_SIDR_OK, param ? param->private_data : NULL,
                                (uint8_t)data_len(param));
    }
    soft_unlock();
    return error;
}

int soft_accept(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (error)
        return soft_cm_fail(error);
    struct soft_cm_id *own = soft_cm_id_of(id);
    if (!id->qp && !param)
        return soft_cm_fail(EINVAL); /* where the system's library crashes */
    if (soft_cm_qp_param_invalid(own, param))
        return soft_cm_fail(EINVAL);
    if (soft_profile()->iwarp)
        error = soft_cm_mpa_accept(own, param);
    else
        error = soft_cm_id_is_ud(own) ? accept_ud(own, param) : accept_rc(own, param);
    if (error)
        return soft_cm_fail(error);
    return soft_cm_id_is_ud(own) ? 0 : soft_cm_sync_complete(own);
}

/* ---- refusing ------------------------------------------------------------------------------------- */

static int reject(struct rdma_cm_id *id, enum soft_cm_reject reason, const void *data,
                  uint8_t len) {
    int error = soft_cm_id_unusable(id);
    if (error)
        return soft_cm_fail(error);
    struct soft_cm_id *own = soft_cm_id_of(id);
    if (!data)
        len = 0;
    if (soft_profile()->iwarp) {
        error = soft_cm_mpa_reject(own, data, len);
        return error ? soft_cm_fail(error) : 0;
    }
    if (len > (soft_cm_id_is_ud(own) ? SOFT_CM_SIDR_REP_DATA : SOFT_CM_REJ_DATA))
        return soft_cm_fail(EINVAL);
    soft_lock();
    switch (own->conn.state) {
    case SOFT_CM_CONN_REQ_RCVD:
    case SOFT_CM_CONN_REP_RCVD:
    case SOFT_CM_CONN_REP_SENT: /* until the answer is confirmed */
        soft_cm_conn_reject(own, reason, data, len);
        break;
    case SOFT_CM_CONN_SIDR_RCVD:
        soft_cm_conn_sidr_reply(own, SOFT_CM_SIDR_REJECTED, data, len);
        break;
    case SOFT_CM_CONN_NONE:
    case SOFT_CM_CONN_REQ_SENT:
    case SOFT_CM_CONN_UP:
    case SOFT_CM_CONN_DREQ_SENT:
    case SOFT_CM_CONN_DREQ_RCVD:
    case SOFT_CM_CONN_TIMEWAIT:
    case SOFT_CM_CONN_SIDR_SENT:
    case SOFT_CM_CONN_SIDR_DONE:
    case SOFT_CM_CONN_OVER:
        error = EINVAL; /* nothing to refuse */
        break;
    }
    soft_unlock();
    return error ? soft_cm_fail(error) : 0;
}

int soft_reject(struct rdma_cm_id *id, const void *data, uint8_t len) {
    UNCANCELLED;
    return reject(id, SOFT_CM_REJECT_CONSUMER, data, len);
}

int soft_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t len) {
    UNCANCELLED;
    return reject(id, SOFT_CM_REJECT_ECE, data, len);
}

/* ---- traffic before the peer's confirmation ----------------------------------------------------------- */

int soft_notify(struct rdma_cm_id *id, enum ibv_event_type event) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (error)
        return soft_cm_fail(error);
    if (event != IBV_EVENT_COMM_EST)
        return soft_cm_fail(EINVAL);
    struct soft_cm_id *own = soft_cm_id_of(id);
    soft_lock();
    if (own->conn.state == SOFT_CM_CONN_REP_SENT)
        soft_cm_conn_on_rtu(own);
    else
        error = own->conn.state == SOFT_CM_CONN_UP ? EISCONN : EINVAL;
    soft_unlock();
    return error ? soft_cm_fail(error) : 0;
}
