/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connect.c - the active side's calls: connect and establish; and disconnect, for both.
 */
#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/cm/agreed.h"
#include "soft/cm/conn_end.h"
#include "soft/cm/connect.h"
#include "soft/cm/fault.h"
#include "soft/cm/id.h"
#include "soft/cm/mpa.h"
#include "soft/cm/qp.h"
#include "soft/cm/quiet.h"
#include "soft/cm/sync.h"
#include "soft/fault/plan.h"
#include "soft/object/profile.h"
#include "soft/soft.h"

/* ---- connect -------------------------------------------------------------------------------------- */

static uint8_t at_most_7(uint8_t count) {
    return count < 7 ? count : 7;
}

/* create_ep's data goes first. The caller has checked the length. */
static void fill_data(struct soft_cm_id *id, const struct rdma_conn_param *param, uint8_t *data) {
    if (id->connect_prefix_len)
        memcpy(data, id->connect_prefix, id->connect_prefix_len);
    if (param && param->private_data && param->private_data_len)
        memcpy(data + id->connect_prefix_len, param->private_data, param->private_data_len);
}

static void fill_req(struct soft_cm_id *id, const struct rdma_conn_param *param) {
    struct soft_cm_conn *conn = &id->conn;
    struct ibv_qp *qp = id->id.qp;
    uint8_t resources, depth;
    soft_cm_qp_limits(id, &resources, &depth);
    if (param && param->responder_resources != RDMA_MAX_RESP_RES)
        resources = param->responder_resources;
    if (param && param->initiator_depth != RDMA_MAX_INIT_DEPTH)
        depth = param->initiator_depth;
    conn->responder_resources = resources;
    conn->initiator_depth = depth;
    conn->retry_count = param ? at_most_7(param->retry_count) : 7;
    conn->local_qpn = qp ? qp->qp_num : param->qp_num & 0xffffff;
    soft_cm_agreed_note(id, conn->local_qpn);
    struct soft_cm_wire_req *req = &conn->request.req;
    soft_cm_wire_addr_set(&req->src, soft_cm_id_src(id));
    soft_cm_wire_addr_set(&req->dst, soft_cm_id_dst(id));
    req->ps = (uint16_t)soft_cm_id_ps(id);
    req->qp_num = conn->local_qpn;
    req->psn = conn->send_psn;
    req->responder_resources = resources;
    req->initiator_depth = depth;
    req->flow_control = param ? param->flow_control : 0;
    req->retry_count = conn->retry_count;
    req->rnr_retry_count = param ? at_most_7(param->rnr_retry_count) : 7;
    req->srq = qp ? qp->srq != NULL : param->srq;
    fill_data(id, param, req->data);
    conn->request_type = SOFT_CM_WIRE_REQ;
    conn->request_bytes = sizeof *req;
}

static void fill_sidr_req(struct soft_cm_id *id, const struct rdma_conn_param *param) {
    struct soft_cm_conn *conn = &id->conn;
    struct soft_cm_wire_sidr_req *req = &conn->request.sidr_req;
    soft_cm_wire_addr_set(&req->src, soft_cm_id_src(id));
    soft_cm_wire_addr_set(&req->dst, soft_cm_id_dst(id));
    req->ps = (uint16_t)soft_cm_id_ps(id);
    fill_data(id, param, req->data);
    conn->request_type = SOFT_CM_WIRE_SIDR_REQ;
    conn->request_bytes = sizeof *req;
}

static int connect_locked(struct soft_cm_id *id, const struct rdma_conn_param *param) {
    if (id->state != SOFT_CM_ROUTE_RESOLVED)
        return EINVAL;
    bool ud = soft_cm_id_is_ud(id);
    size_t len = param && param->private_data ? param->private_data_len : 0;
    if (len + id->connect_prefix_len > (ud ? SOFT_CM_SIDR_REQ_DATA : SOFT_CM_REQ_DATA))
        return EINVAL;
    memset(&id->conn.request, 0, sizeof id->conn.request);
    if (ud)
        fill_sidr_req(id, param);
    else
        fill_req(id, param);
    soft_cm_id_enter(id, SOFT_CM_CONNECT);
    int event, status;
    if (soft_fault_id_call(&id->fault, FAULT_CONNECT, &event, &status))
        soft_cm_conn_fault(id, event, status);
    else
        soft_cm_conn_ask(id, ud ? SOFT_CM_CONN_SIDR_SENT : SOFT_CM_CONN_REQ_SENT);
    return 0;
}

/* Only the first connect carries it. */
static void forget_prefix(struct soft_cm_id *id) {
    free(id->connect_prefix);
    id->connect_prefix = NULL;
    id->connect_prefix_len = 0;
}

int soft_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (error)
        return soft_cm_fail(error);
    struct soft_cm_id *own = soft_cm_id_of(id);
    if (!soft_cm_id_is_ud(own) && !param && !id->qp)
        return soft_cm_fail(EINVAL);
    if (soft_cm_qp_param_invalid(own, param))
        return soft_cm_fail(EINVAL);
    if (soft_profile()->iwarp) {
        error = soft_cm_mpa_connect(own, param);
    } else {
        soft_lock();
        error = connect_locked(own, param);
        soft_unlock();
    }
    if (!error)
        forget_prefix(own);
    return error ? soft_cm_fail(error) : soft_cm_sync_complete(own);
}

/* ---- establish ------------------------------------------------------------------------------------ */

int soft_cm_qp_establish(struct soft_cm_id *id) {
    soft_lock();
    bool replied = id->conn.state == SOFT_CM_CONN_REP_RCVD;
    if (replied) {
        soft_cm_conn_enter(&id->conn, SOFT_CM_CONN_UP);
        soft_cm_wire_send_plain(id, SOFT_CM_WIRE_RTU);
    }
    soft_unlock();
    return replied ? 0 : soft_cm_fail(EINVAL);
}

int soft_establish(struct rdma_cm_id *id) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (!error && (id->qp || soft_profile()->iwarp))
        error = EINVAL; /* done by fetching the reply, or there is nothing to do */
    return error ? soft_cm_fail(error) : soft_cm_qp_establish(soft_cm_id_of(id));
}

/* ---- disconnect ----------------------------------------------------------------------------------- */

static int disconnect_locked(struct soft_cm_id *id) {
    struct soft_cm_conn *conn = &id->conn;
    switch (conn->state) {
    case SOFT_CM_CONN_NONE:
        return EINVAL;
    case SOFT_CM_CONN_UP:
        soft_cm_conn_acknowledge(id);
        memset(&conn->request, 0, sizeof conn->request);
        conn->request_type = SOFT_CM_WIRE_DREQ;
        conn->request_bytes = sizeof conn->request.head;
        soft_cm_conn_ask(id, SOFT_CM_CONN_DREQ_SENT);
        return 0;
    case SOFT_CM_CONN_DREQ_RCVD:
        soft_cm_quiet_tell(id); /* the program ends it as well, and waits for nothing */
        soft_cm_wire_send_plain(id, SOFT_CM_WIRE_DREP);
        soft_cm_conn_enter_timewait(id);
        return 0;
    case SOFT_CM_CONN_REQ_SENT:
    case SOFT_CM_CONN_REQ_RCVD:
    case SOFT_CM_CONN_REP_SENT:
    case SOFT_CM_CONN_REP_RCVD:
    case SOFT_CM_CONN_DREQ_SENT:
    case SOFT_CM_CONN_TIMEWAIT:
    case SOFT_CM_CONN_SIDR_SENT:
    case SOFT_CM_CONN_SIDR_RCVD:
    case SOFT_CM_CONN_SIDR_DONE:
    case SOFT_CM_CONN_OVER:
        return 0; /* nothing to send; the kernel does not complain either */
    }
    return 0;
}

int soft_disconnect(struct rdma_cm_id *id) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (!error && !id->verbs)
        error = EINVAL;
    if (error)
        return soft_cm_fail(error);
    struct soft_cm_id *own = soft_cm_id_of(id);
    if (soft_profile()->iwarp) {
        error = soft_cm_mpa_disconnect(own);
        return error ? soft_cm_fail(error) : soft_cm_sync_complete(own);
    }
    soft_cm_qp_error(own); /* before the peer hears of it */
    soft_lock();
    error = own->state == SOFT_CM_DEAD ? EINVAL : disconnect_locked(own);
    soft_unlock();
    return error ? soft_cm_fail(error) : soft_cm_sync_complete(own);
}
