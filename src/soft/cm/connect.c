/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connect.c - the active side's calls: connect and establish; and disconnect, for both.
 */
#include <stdlib.h>
#include <string.h>

#include "soft/cm/id.h"
#include "soft/cm/mpa.h"
#include "soft/cm/qp.h"
#include "soft/cm/sync.h"
#include "soft/verbs/profile.h"
#include "soft/soft.h"

/* ---- connect -------------------------------------------------------------------------------------- */

static uint8_t at_most_7(uint8_t count) {
    return count < 7 ? count : 7;
}

/* create_ep's data goes first. The caller has checked the length. */
static void fill_data(struct cm_id *id, const struct rdma_conn_param *param, uint8_t *data) {
    if (id->connect_prefix_len)
        memcpy(data, id->connect_prefix, id->connect_prefix_len);
    if (param && param->private_data && param->private_data_len)
        memcpy(data + id->connect_prefix_len, param->private_data, param->private_data_len);
}

static void fill_req(struct cm_id *id, const struct rdma_conn_param *param) {
    struct cm_conn *conn = &id->conn;
    struct ibv_qp *qp = id->id.qp;
    uint8_t resources, depth;
    cm_qp_limits(id, &resources, &depth);
    if (param && param->responder_resources != RDMA_MAX_RESP_RES)
        resources = param->responder_resources;
    if (param && param->initiator_depth != RDMA_MAX_INIT_DEPTH)
        depth = param->initiator_depth;
    conn->responder_resources = resources;
    conn->initiator_depth = depth;
    conn->retry_count = param ? at_most_7(param->retry_count) : 7;
    conn->local_qpn = qp ? qp->qp_num : param->qp_num & 0xffffff;
    struct cm_wire_req *req = &conn->request.req;
    cm_wire_addr_set(&req->src, cm_id_src(id));
    cm_wire_addr_set(&req->dst, cm_id_dst(id));
    req->ps = (uint16_t)cm_id_ps(id);
    req->qp_num = conn->local_qpn;
    req->psn = conn->send_psn;
    req->responder_resources = resources;
    req->initiator_depth = depth;
    req->flow_control = param ? param->flow_control : 0;
    req->retry_count = conn->retry_count;
    req->rnr_retry_count = param ? at_most_7(param->rnr_retry_count) : 7;
    req->srq = qp ? qp->srq != NULL : param->srq;
    fill_data(id, param, req->data);
    conn->request_type = CM_WIRE_REQ;
    conn->request_bytes = sizeof *req;
}

static void fill_sidr_req(struct cm_id *id, const struct rdma_conn_param *param) {
    struct cm_conn *conn = &id->conn;
    struct cm_wire_sidr_req *req = &conn->request.sidr_req;
    cm_wire_addr_set(&req->src, cm_id_src(id));
    cm_wire_addr_set(&req->dst, cm_id_dst(id));
    req->ps = (uint16_t)cm_id_ps(id);
    fill_data(id, param, req->data);
    conn->request_type = CM_WIRE_SIDR_REQ;
    conn->request_bytes = sizeof *req;
}

static int connect_locked(struct cm_id *id, const struct rdma_conn_param *param) {
    if (id->state != CM_ROUTE_RESOLVED)
        return EINVAL;
    bool ud = cm_id_is_ud(id);
    size_t len = param && param->private_data ? param->private_data_len : 0;
    if (len + id->connect_prefix_len > (ud ? CM_SIDR_REQ_DATA : CM_REQ_DATA))
        return EINVAL;
    memset(&id->conn.request, 0, sizeof id->conn.request);
    if (ud)
        fill_sidr_req(id, param);
    else
        fill_req(id, param);
    id->state = CM_CONNECT;
    int event, status;
    if (soft_fault_id_call(&id->fault, FAULT_CONNECT, &event, &status))
        cm_conn_fault(id, event, status);
    else
        cm_conn_ask(id, ud ? CM_CONN_SIDR_SENT : CM_CONN_REQ_SENT);
    return 0;
}

/* Only the first connect carries it. */
static void forget_prefix(struct cm_id *id) {
    free(id->connect_prefix);
    id->connect_prefix = NULL;
    id->connect_prefix_len = 0;
}

int soft_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    int error = cm_id_unusable(id);
    if (error)
        return cm_fail(error);
    struct cm_id *own = cm_id_of(id);
    if (!cm_id_is_ud(own) && !param && !id->qp)
        return cm_fail(EINVAL);
    if (cm_qp_param_invalid(own, param))
        return cm_fail(EINVAL);
    if (soft_profile()->iwarp) {
        error = cm_mpa_connect(own, param);
    } else {
        soft_lock();
        error = connect_locked(own, param);
        soft_unlock();
    }
    if (!error)
        forget_prefix(own);
    return error ? cm_fail(error) : cm_sync_complete(own);
}

/* ---- establish ------------------------------------------------------------------------------------ */

int cm_qp_establish(struct cm_id *id) {
    soft_lock();
    bool replied = id->conn.state == CM_CONN_REP_RCVD;
    if (replied) {
        id->conn.state = CM_CONN_UP;
        cm_wire_send_plain(id, CM_WIRE_RTU);
    }
    soft_unlock();
    return replied ? 0 : cm_fail(EINVAL);
}

int soft_establish(struct rdma_cm_id *id) {
    int error = cm_id_unusable(id);
    if (!error && (id->qp || soft_profile()->iwarp))
        error = EINVAL; /* done by fetching the reply, or there is nothing to do */
    return error ? cm_fail(error) : cm_qp_establish(cm_id_of(id));
}

/* ---- disconnect ----------------------------------------------------------------------------------- */

static int disconnect_locked(struct cm_id *id) {
    struct cm_conn *conn = &id->conn;
    switch (conn->state) {
    case CM_CONN_NONE:
        return EINVAL;
    case CM_CONN_UP:
        cm_conn_acknowledge(id);
        memset(&conn->request, 0, sizeof conn->request);
        conn->request_type = CM_WIRE_DREQ;
        conn->request_bytes = sizeof conn->request.head;
        cm_conn_ask(id, CM_CONN_DREQ_SENT);
        return 0;
    case CM_CONN_DREQ_RCVD:
        cm_wire_send_plain(id, CM_WIRE_DREP);
        cm_conn_enter_timewait(id);
        return 0;
    case CM_CONN_REQ_SENT:
    case CM_CONN_REQ_RCVD:
    case CM_CONN_REP_SENT:
    case CM_CONN_REP_RCVD:
    case CM_CONN_DREQ_SENT:
    case CM_CONN_TIMEWAIT:
    case CM_CONN_SIDR_SENT:
    case CM_CONN_SIDR_RCVD:
    case CM_CONN_SIDR_DONE:
    case CM_CONN_OVER:
        return 0; /* nothing to send; the kernel does not complain either */
    }
    return 0;
}

int soft_disconnect(struct rdma_cm_id *id) {
    int error = cm_id_unusable(id);
    if (!error && !id->verbs)
        error = EINVAL;
    if (error)
        return cm_fail(error);
    struct cm_id *own = cm_id_of(id);
    if (soft_profile()->iwarp) {
        error = cm_mpa_disconnect(own);
        return error ? cm_fail(error) : cm_sync_complete(own);
    }
    cm_qp_error(own); /* before the peer hears of it */
    soft_lock();
    error = own->state == CM_DEAD ? EINVAL : disconnect_locked(own);
    soft_unlock();
    return error ? cm_fail(error) : cm_sync_complete(own);
}
