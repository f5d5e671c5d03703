/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * answer.c - how a peer's messages change a connection. Control lock held, on the engine thread;
 * a message that does not fit the state of its connection answers no request and is dropped.
 */
#include "soft/cm/answer.h"
#include "soft/cm/conn.h"

#include "soft/cm/event.h"
#include "soft/cm/id.h"
#include "soft/cm/quiet.h"

void soft_cm_conn_on_wait(struct soft_cm_id *id, const struct soft_cm_wire_head *head) {
    if (id->conn.state != SOFT_CM_CONN_REQ_SENT && id->conn.state != SOFT_CM_CONN_REP_SENT)
        return;
    if (!head->from)
        return;
    id->conn.remote = head->from;
    soft_cm_conn_wait(id);
}

void soft_cm_conn_on_rep(struct soft_cm_id *id, const struct soft_cm_wire_rep *rep) {
    struct soft_cm_conn *conn = &id->conn;
    if (conn->state == SOFT_CM_CONN_UP) {
        soft_cm_wire_send_plain(id, SOFT_CM_WIRE_RTU); /* ours was lost */
        return;
    }
    if (conn->state == SOFT_CM_CONN_REP_RCVD) {
        soft_cm_wire_send_plain(id,
                                SOFT_CM_WIRE_MRA); /* the application has yet to fetch the event */
        return;
    }
    if (conn->state != SOFT_CM_CONN_REQ_SENT || !rep->head.from || rep->qp_num >> 24 ||
        rep->psn >> 24 || rep->rnr_retry_count > 7)
        return;
    soft_timer_cancel(&conn->timer);
    soft_cm_conn_enter(conn, SOFT_CM_CONN_REP_RCVD);
    conn->remote = rep->head.from;
    conn->remote_qpn = rep->qp_num;
    conn->recv_psn = rep->psn;
    /* What the peer initiates is what we respond to. */
    conn->responder_resources = rep->initiator_depth;
    conn->initiator_depth = rep->responder_resources;
    conn->rnr_retry_count = rep->rnr_retry_count;
    struct soft_cm_event *event = soft_cm_event_new(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
    if (!event)
        return;
    struct rdma_conn_param *param = &event->event.param.conn;
    param->responder_resources = rep->initiator_depth;
    param->initiator_depth = rep->responder_resources;
    param->flow_control = rep->flow_control;
    param->rnr_retry_count = rep->rnr_retry_count;
    param->srq = rep->srq;
    param->qp_num = rep->qp_num;
    soft_cm_event_set_data(event, rep->data, sizeof rep->data);
    soft_cm_event_post(event);
}

void soft_cm_conn_on_rtu(struct soft_cm_id *id) {
    if (id->conn.state != SOFT_CM_CONN_REP_SENT)
        return;
    soft_timer_cancel(&id->conn.timer);
    soft_cm_conn_enter(&id->conn, SOFT_CM_CONN_UP);
    soft_cm_conn_event(id, RDMA_CM_EVENT_ESTABLISHED, 0);
}

void soft_cm_conn_on_rej(struct soft_cm_id *id, const struct soft_cm_wire_rej *rej) {
    if (!rej->reason || rej->reason > 35)
        return;
    if (id->conn.state == SOFT_CM_CONN_REQ_SENT && !rej->head.from &&
        soft_cm_conn_guessed_wrong(id))
        return;
    if (id->conn.state == SOFT_CM_CONN_REQ_SENT && !rej->head.from && soft_cm_conn_ask_next(id))
        return;
    if (rej->reason == SOFT_CM_REJECT_NO_LISTENER && !rej->head.from &&
        soft_cm_conn_comes_again(id))
        return;
    switch (id->conn.state) {
    case SOFT_CM_CONN_REQ_SENT:
    case SOFT_CM_CONN_REQ_RCVD:
    case SOFT_CM_CONN_REP_SENT:
        soft_cm_conn_over(id);
        break;
    case SOFT_CM_CONN_REP_RCVD:
    case SOFT_CM_CONN_UP:
    case SOFT_CM_CONN_DREQ_SENT:
        soft_cm_conn_enter_timewait(id);
        break;
    case SOFT_CM_CONN_NONE:
    case SOFT_CM_CONN_DREQ_RCVD:
    case SOFT_CM_CONN_TIMEWAIT:
    case SOFT_CM_CONN_SIDR_SENT:
    case SOFT_CM_CONN_SIDR_RCVD:
    case SOFT_CM_CONN_SIDR_DONE:
    case SOFT_CM_CONN_OVER:
        return; /* not an answer to anything */
    }
    soft_cm_conn_event_data(id, RDMA_CM_EVENT_REJECTED, (int)rej->reason, rej->data,
                            sizeof rej->data);
}

void soft_cm_conn_on_dreq(struct soft_cm_id *id) {
    switch (id->conn.state) {
    case SOFT_CM_CONN_REP_SENT: /* the RTU was lost */
    case SOFT_CM_CONN_UP:
        soft_timer_cancel(&id->conn.timer);
        soft_cm_conn_enter(&id->conn, SOFT_CM_CONN_DREQ_RCVD);
        soft_cm_quiet_end(id);
        return;
    case SOFT_CM_CONN_DREQ_SENT: /* both at once: each is the other's answer */
        soft_cm_wire_send_plain(id, SOFT_CM_WIRE_DREP);
        soft_cm_conn_enter_timewait(id);
        soft_cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
        return;
    case SOFT_CM_CONN_NONE:
    case SOFT_CM_CONN_REQ_SENT:
    case SOFT_CM_CONN_REQ_RCVD:
    case SOFT_CM_CONN_REP_RCVD:  /* asked again after we have established */
    case SOFT_CM_CONN_DREQ_RCVD: /* a repetition; the application answers */
    case SOFT_CM_CONN_TIMEWAIT:
    case SOFT_CM_CONN_SIDR_SENT:
    case SOFT_CM_CONN_SIDR_RCVD:
    case SOFT_CM_CONN_SIDR_DONE:
    case SOFT_CM_CONN_OVER:
        return;
    }
}

void soft_cm_conn_on_drep(struct soft_cm_id *id) {
    if (id->conn.state != SOFT_CM_CONN_DREQ_SENT)
        return;
    soft_cm_conn_enter_timewait(id);
    soft_cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
}

void soft_cm_conn_on_sidr_rep(struct soft_cm_id *id, const struct soft_cm_wire_sidr_rep *rep) {
    if (id->conn.state != SOFT_CM_CONN_SIDR_SENT || rep->status > SOFT_CM_SIDR_VERSION ||
        rep->qp_num >> 24)
        return;
    if (rep->status != SOFT_CM_SIDR_OK && !rep->head.from && soft_cm_conn_guessed_wrong(id))
        return;
    if (rep->status != SOFT_CM_SIDR_OK && !rep->head.from && soft_cm_conn_ask_next(id))
        return;
    if (rep->status == SOFT_CM_SIDR_UNSUPPORTED && !rep->head.from && soft_cm_conn_comes_again(id))
        return;
    soft_cm_conn_over(id);
    soft_cm_conn_enter(&id->conn, SOFT_CM_CONN_SIDR_DONE);
    if (rep->status != SOFT_CM_SIDR_OK) {
        soft_cm_conn_event_data(id, RDMA_CM_EVENT_UNREACHABLE, (int)rep->status, rep->data,
                                sizeof rep->data);
        return;
    }
    struct soft_cm_event *event = soft_cm_conn_hears_of(id, RDMA_CM_EVENT_ESTABLISHED)
                                      ? soft_cm_event_new(id, RDMA_CM_EVENT_ESTABLISHED, 0)
                                      : NULL;
    if (!event)
        return;
    struct rdma_ud_param *param = &event->event.param.ud;
    param->ah_attr.is_global = 1;
    param->ah_attr.port_num = 1;
    param->ah_attr.grh.dgid = id->id.route.addr.addr.ibaddr.dgid;
    param->ah_attr.grh.sgid_index = id->gid_index;
    param->ah_attr.grh.hop_limit = 64;
    param->ah_attr.grh.traffic_class = id->tos;
    param->qp_num = rep->qp_num;
    param->qkey = rep->qkey;
    soft_cm_event_set_data(event, rep->data, sizeof rep->data);
    soft_cm_event_post(event);
}

void soft_cm_conn_on_duplicate(struct soft_cm_id *id) {
    switch (id->conn.state) {
    case SOFT_CM_CONN_REQ_RCVD:
        soft_cm_wire_send_plain(id, SOFT_CM_WIRE_MRA);
        return;
    case SOFT_CM_CONN_REP_SENT:
    case SOFT_CM_CONN_SIDR_DONE:
        (void)soft_cm_wire_send_repeated(id, id->conn.request_type, &id->conn.request,
                                         id->conn.request_bytes);
        return;
    case SOFT_CM_CONN_NONE:
    case SOFT_CM_CONN_REQ_SENT:
    case SOFT_CM_CONN_REP_RCVD:
    case SOFT_CM_CONN_UP:
    case SOFT_CM_CONN_DREQ_SENT:
    case SOFT_CM_CONN_DREQ_RCVD:
    case SOFT_CM_CONN_TIMEWAIT:
    case SOFT_CM_CONN_SIDR_SENT:
    case SOFT_CM_CONN_SIDR_RCVD:
    case SOFT_CM_CONN_OVER:
        return;
    }
}
