/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm_conn.c - the connection's states: what messages, timers and the end of a peer do to them.
 *
 * Follows the kernel's IB connection manager, with its timers made short (cm_times.h). Control lock
 * held throughout; runs on the engine thread but for what calls start. Nothing here touches a QP:
 * that is done by whoever calls or fetches, in his own thread.
 */
#include "soft/cm_conn.h"

#include <string.h>

#include "soft/cm_event.h"
#include "soft/cm_id.h"
#include "soft/cm_times.h"

static void on_timer(struct soft_timer *timer);

/* ---- timer --------------------------------------------------------------------------------------- */

static void arm(struct cm_id *id, uint64_t us) {
    soft_timer_arm(&id->conn.timer, soft_now_ns() + us * 1000, on_timer);
}

static void arm_again(struct cm_id *id) {
    arm(id, (uint64_t)cm_times()->answer_ms * 1000 / cm_times()->tries);
}

static void arm_wait(struct cm_id *id) {
    id->conn.waiting = true;
    arm(id, (uint64_t)cm_times()->wait_ms * 1000);
}

/* ---- events --------------------------------------------------------------------------------------- */

/* The kernel reports nothing about an id in the wrong state, and nothing before accept. */
static bool hears_of(struct cm_id *id, enum rdma_cm_event_type type) {
    if (!id->published)
        return false;
    return id->state == (type == RDMA_CM_EVENT_TIMEWAIT_EXIT ? CM_DISCONNECT : CM_CONNECT);
}

static void event_with_data(struct cm_id *id, enum rdma_cm_event_type type, int status,
                            const uint8_t *data, size_t len) {
    if (!hears_of(id, type))
        return;
    struct cm_event *event = cm_event_new(id, type, status);
    if (!event)
        return;
    cm_event_set_data(event, data, len);
    cm_event_post(event);
}

void cm_conn_event(struct cm_id *id, enum rdma_cm_event_type type, int status) {
    if (!hears_of(id, type))
        return;
    if (type == RDMA_CM_EVENT_DISCONNECTED)
        id->state = CM_DISCONNECT; /* which makes it the only one */
    cm_event_raise(id, type, status);
}

static void rejected(struct cm_id *id, enum cm_reject reason) {
    static const uint8_t none[CM_REJ_DATA];
    event_with_data(id, RDMA_CM_EVENT_REJECTED, (int)reason, none, sizeof none);
}

void cm_conn_fault(struct cm_id *id, int type, int status) {
    static const uint8_t none[CM_REJ_DATA];
    cm_conn_over(id);
    if (type == RDMA_CM_EVENT_REJECTED)
        event_with_data(id, RDMA_CM_EVENT_REJECTED, status, none, sizeof none);
    else
        cm_conn_event(id, (enum rdma_cm_event_type)type, status);
}

/* ---- ends ----------------------------------------------------------------------------------------- */

static void forget_peer(struct cm_id *id) {
    if (id->conn.peer)
        soft_peer_release(id->conn.peer);
    id->conn.peer = NULL;
}

void cm_conn_over(struct cm_id *id) {
    soft_timer_cancel(&id->conn.timer);
    forget_peer(id); /* a late disconnect of the peer is confirmed without us */
    id->conn.state = CM_CONN_OVER;
}

void cm_conn_enter_timewait(struct cm_id *id) {
    forget_peer(id);
    id->conn.state = CM_CONN_TIMEWAIT;
    arm(id, (uint64_t)cm_times()->timewait_ms * 1000);
}

void cm_conn_reject(struct cm_id *id, enum cm_reject reason, const void *data, uint8_t len) {
    union cm_wire_any msg = {.rej.reason = (uint32_t)reason};
    if (len)
        memcpy(msg.rej.data, data, len);
    cm_wire_send(id, CM_WIRE_REJ, &msg, sizeof msg.rej);
    cm_conn_over(id);
}

void cm_conn_sidr_reply(struct cm_id *id, enum cm_sidr status, const void *data, uint8_t len) {
    struct cm_conn *conn = &id->conn;
    memset(&conn->request, 0, sizeof conn->request);
    conn->request.sidr_rep.status = (uint32_t)status;
    conn->request.sidr_rep.qp_num = conn->local_qpn;
    conn->request.sidr_rep.qkey = conn->qkey;
    if (len)
        memcpy(conn->request.sidr_rep.data, data, len);
    conn->request_type = CM_WIRE_SIDR_REP;
    conn->request_bytes = sizeof conn->request.sidr_rep;
    conn->state = CM_CONN_SIDR_DONE; /* stays there to answer a repeated request */
    cm_wire_send(id, CM_WIRE_SIDR_REP, &conn->request, conn->request_bytes);
}

void cm_conn_kill(struct cm_id *id) {
    switch (id->conn.state) {
    case CM_CONN_REQ_SENT:
        cm_conn_reject(id, CM_REJECT_TIMEOUT, NULL, 0);
        break;
    case CM_CONN_REQ_RCVD:
    case CM_CONN_REP_SENT:
    case CM_CONN_REP_RCVD:
        cm_conn_reject(id, CM_REJECT_CONSUMER, NULL, 0);
        break;
    case CM_CONN_UP:
        cm_wire_send_plain(id, CM_WIRE_DREQ);
        break;
    case CM_CONN_DREQ_RCVD:
        cm_wire_send_plain(id, CM_WIRE_DREP);
        break;
    case CM_CONN_SIDR_RCVD:
        cm_conn_sidr_reply(id, CM_SIDR_REJECTED, NULL, 0);
        break;
    case CM_CONN_NONE:
    case CM_CONN_DREQ_SENT:
    case CM_CONN_TIMEWAIT:
    case CM_CONN_SIDR_SENT:
    case CM_CONN_SIDR_DONE:
    case CM_CONN_OVER:
        break; /* the peer knows, or will find out by asking */
    }
    cm_conn_over(id);
}

/* ---- requests and their repetition ------------------------------------------------------------------ */

static void refused(struct cm_id *id) {
    static const uint8_t none[CM_SIDR_REP_DATA];
    bool ud = id->conn.state == CM_CONN_SIDR_SENT;
    cm_conn_over(id);
    if (ud)
        event_with_data(id, RDMA_CM_EVENT_UNREACHABLE, CM_SIDR_UNSUPPORTED, none, sizeof none);
    else
        rejected(id, CM_REJECT_NO_LISTENER);
}

/* Finds the process to ask, if there is none yet. False: refused, the connection is over. */
static bool find_peer(struct cm_id *id) {
    if (id->conn.peer && soft_peer_alive(id->conn.peer))
        return true;
    forget_peer(id);
    int error = cm_port_owner(cm_id_ps(id), cm_id_dst(id), &id->conn.peer);
    if (!error)
        return true;
    id->conn.peer = NULL;
    if (error != -ECONNREFUSED)
        return true; /* its queue is full, or we lack descriptors: the next try may do */
    refused(id);
    return false;
}

static void send_request(struct cm_id *id) {
    struct cm_conn *conn = &id->conn;
    bool active = conn->state == CM_CONN_REQ_SENT || conn->state == CM_CONN_SIDR_SENT;
    if (active && !find_peer(id))
        return;
    if (conn->tries_left)
        conn->tries_left--;
    arm_again(id);
    cm_wire_send(id, conn->request_type, &conn->request, conn->request_bytes);
    if (conn->request_type == CM_WIRE_REQ)
        conn->request.req.again = 1;
    else if (conn->request_type == CM_WIRE_SIDR_REQ)
        conn->request.sidr_req.again = 1;
}

void cm_conn_ask(struct cm_id *id, enum cm_conn_state state) {
    id->conn.state = state;
    id->conn.waiting = false;
    id->conn.tries_left = cm_times()->tries;
    send_request(id);
}

static void on_timer(struct soft_timer *timer) {
    struct cm_id *id = (struct cm_id *)((char *)timer - offsetof(struct cm_id, conn.timer));
    struct cm_conn *conn = &id->conn;
    bool exhausted = conn->waiting || !conn->tries_left;
    switch (conn->state) {
    case CM_CONN_REQ_SENT:
    case CM_CONN_SIDR_SENT:
    case CM_CONN_REP_SENT:
        if (!exhausted) {
            send_request(id);
            return;
        }
        cm_conn_over(id);
        cm_conn_event(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
        return;
    case CM_CONN_DREQ_SENT:
        if (!exhausted) {
            send_request(id);
            return;
        }
        cm_conn_enter_timewait(id);
        cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
        return;
    case CM_CONN_TIMEWAIT:
        cm_conn_over(id);
        cm_conn_event(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
        return;
    case CM_CONN_NONE:
    case CM_CONN_REQ_RCVD:
    case CM_CONN_REP_RCVD:
    case CM_CONN_UP:
    case CM_CONN_DREQ_RCVD:
    case CM_CONN_SIDR_RCVD:
    case CM_CONN_SIDR_DONE:
    case CM_CONN_OVER:
        return; /* these wait for the application or for ever; no timer is armed */
    }
}

/* ---- the peer's process died ------------------------------------------------------------------------ */

/* What its kernel would have sent when it closed everything. */
void cm_conn_peer_gone(struct cm_id *id) {
    switch (id->conn.state) {
    case CM_CONN_REQ_SENT:
        if (!id->conn.waiting) {
            forget_peer(id); /* it may never have seen the request: the next try finds out */
            return;
        }
        cm_conn_over(id);
        rejected(id, CM_REJECT_CONSUMER);
        return;
    case CM_CONN_REP_SENT:
        cm_conn_over(id);
        rejected(id, CM_REJECT_TIMEOUT);
        return;
    case CM_CONN_REP_RCVD:
        cm_conn_over(id);
        rejected(id, CM_REJECT_CONSUMER);
        return;
    case CM_CONN_UP:
        forget_peer(id);
        id->conn.state = CM_CONN_DREQ_RCVD;
        cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
        return;
    case CM_CONN_DREQ_SENT:
        cm_conn_enter_timewait(id);
        cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
        return;
    case CM_CONN_REQ_RCVD:
    case CM_CONN_SIDR_RCVD:
        cm_conn_over(id); /* accept will fail */
        return;
    case CM_CONN_NONE:
    case CM_CONN_DREQ_RCVD:
    case CM_CONN_TIMEWAIT:
    case CM_CONN_SIDR_SENT:
    case CM_CONN_SIDR_DONE:
    case CM_CONN_OVER:
        forget_peer(id);
        return;
    }
}

/* ---- messages --------------------------------------------------------------------------------------- */

void cm_conn_on_wait(struct cm_id *id, const struct cm_wire_head *head) {
    if (id->conn.state != CM_CONN_REQ_SENT && id->conn.state != CM_CONN_REP_SENT)
        return;
    if (!head->from)
        return;
    id->conn.remote = head->from;
    arm_wait(id);
}

void cm_conn_on_rep(struct cm_id *id, const struct cm_wire_rep *rep) {
    struct cm_conn *conn = &id->conn;
    if (conn->state == CM_CONN_UP) {
        cm_wire_send_plain(id, CM_WIRE_RTU); /* ours was lost */
        return;
    }
    if (conn->state != CM_CONN_REQ_SENT || !rep->head.from || rep->qp_num >> 24 || rep->psn >> 24 ||
        rep->rnr_retry_count > 7)
        return;
    soft_timer_cancel(&conn->timer);
    conn->state = CM_CONN_REP_RCVD;
    conn->remote = rep->head.from;
    conn->remote_qpn = rep->qp_num;
    conn->recv_psn = rep->psn;
    /* What the peer initiates is what we respond to. */
    conn->responder_resources = rep->initiator_depth;
    conn->initiator_depth = rep->responder_resources;
    conn->rnr_retry_count = rep->rnr_retry_count;
    cm_wire_send_plain(id, CM_WIRE_MRA); /* the application has yet to fetch the event */
    struct cm_event *event = cm_event_new(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
    if (!event)
        return;
    struct rdma_conn_param *param = &event->event.param.conn;
    param->responder_resources = rep->initiator_depth;
    param->initiator_depth = rep->responder_resources;
    param->flow_control = rep->flow_control;
    param->rnr_retry_count = rep->rnr_retry_count;
    param->srq = rep->srq;
    param->qp_num = rep->qp_num;
    cm_event_set_data(event, rep->data, sizeof rep->data);
    cm_event_post(event);
}

void cm_conn_on_rtu(struct cm_id *id) {
    if (id->conn.state != CM_CONN_REP_SENT)
        return;
    soft_timer_cancel(&id->conn.timer);
    id->conn.state = CM_CONN_UP;
    cm_conn_event(id, RDMA_CM_EVENT_ESTABLISHED, 0);
}

void cm_conn_on_rej(struct cm_id *id, const struct cm_wire_rej *rej) {
    if (!rej->reason || rej->reason > 35)
        return;
    switch (id->conn.state) {
    case CM_CONN_REQ_SENT:
    case CM_CONN_REQ_RCVD:
    case CM_CONN_REP_SENT:
        cm_conn_over(id);
        break;
    case CM_CONN_REP_RCVD:
    case CM_CONN_UP:
    case CM_CONN_DREQ_SENT:
        cm_conn_enter_timewait(id);
        break;
    case CM_CONN_NONE:
    case CM_CONN_DREQ_RCVD:
    case CM_CONN_TIMEWAIT:
    case CM_CONN_SIDR_SENT:
    case CM_CONN_SIDR_RCVD:
    case CM_CONN_SIDR_DONE:
    case CM_CONN_OVER:
        return; /* not an answer to anything */
    }
    event_with_data(id, RDMA_CM_EVENT_REJECTED, (int)rej->reason, rej->data, sizeof rej->data);
}

void cm_conn_on_dreq(struct cm_id *id) {
    switch (id->conn.state) {
    case CM_CONN_REP_SENT: /* the RTU was lost */
    case CM_CONN_UP:
        soft_timer_cancel(&id->conn.timer);
        id->conn.state = CM_CONN_DREQ_RCVD;
        cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
        return;
    case CM_CONN_DREQ_SENT: /* both at once: each is the other's answer */
        cm_wire_send_plain(id, CM_WIRE_DREP);
        cm_conn_enter_timewait(id);
        cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
        return;
    case CM_CONN_NONE:
    case CM_CONN_REQ_SENT:
    case CM_CONN_REQ_RCVD:
    case CM_CONN_REP_RCVD:  /* asked again after we have established */
    case CM_CONN_DREQ_RCVD: /* a repetition; the application answers */
    case CM_CONN_TIMEWAIT:
    case CM_CONN_SIDR_SENT:
    case CM_CONN_SIDR_RCVD:
    case CM_CONN_SIDR_DONE:
    case CM_CONN_OVER:
        return;
    }
}

void cm_conn_on_drep(struct cm_id *id) {
    if (id->conn.state != CM_CONN_DREQ_SENT)
        return;
    cm_conn_enter_timewait(id);
    cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
}

void cm_conn_on_sidr_rep(struct cm_id *id, const struct cm_wire_sidr_rep *rep) {
    if (id->conn.state != CM_CONN_SIDR_SENT || rep->status > CM_SIDR_VERSION || rep->qp_num >> 24)
        return;
    cm_conn_over(id);
    id->conn.state = CM_CONN_SIDR_DONE;
    if (rep->status != CM_SIDR_OK) {
        event_with_data(id, RDMA_CM_EVENT_UNREACHABLE, (int)rep->status, rep->data,
                        sizeof rep->data);
        return;
    }
    struct cm_event *event = hears_of(id, RDMA_CM_EVENT_ESTABLISHED)
                                 ? cm_event_new(id, RDMA_CM_EVENT_ESTABLISHED, 0)
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
    cm_event_set_data(event, rep->data, sizeof rep->data);
    cm_event_post(event);
}

void cm_conn_on_duplicate(struct cm_id *id) {
    switch (id->conn.state) {
    case CM_CONN_REQ_RCVD:
        cm_wire_send_plain(id, CM_WIRE_MRA);
        return;
    case CM_CONN_REP_SENT:
    case CM_CONN_SIDR_DONE:
        cm_wire_send(id, id->conn.request_type, &id->conn.request, id->conn.request_bytes);
        return;
    case CM_CONN_NONE:
    case CM_CONN_REQ_SENT:
    case CM_CONN_REP_RCVD:
    case CM_CONN_UP:
    case CM_CONN_DREQ_SENT:
    case CM_CONN_DREQ_RCVD:
    case CM_CONN_TIMEWAIT:
    case CM_CONN_SIDR_SENT:
    case CM_CONN_SIDR_RCVD:
    case CM_CONN_OVER:
        return;
    }
}
