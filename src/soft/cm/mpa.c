/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mpa.c - the calls and the ends of connections of a device that is like iWARP; mpa_answer.c has
 * what messages do. Follows the kernel's iw_cm with Soft-iWARP below.
 *
 * Between the processes of a host there is no TCP: MPA_REQ is its handshake too, MPA_SEEN says that the
 * handshake is done, MPA_REJ with `reset` is its refusal, FIN its end. The peer's device answers the
 * handshake, without its application; a process that is stopped does not, as a host that is down.
 */
#include "soft/cm/mpa.h"

#include <stdlib.h>
#include <string.h>

#include "soft/cm/event.h"
#include "soft/cm/id.h"
#include "soft/cm/mpa_states.h"
#include "soft/cm/port_cache.h"
#include "soft/cm/qp.h"
#include "soft/cm/timers.h"
#include "soft/ipc/fd_shortage.h"
#include "soft/verbs/object.h"

/* ---- ends; control lock held ------------------------------------------------------------------------- */

void cm_mpa_over(struct cm_id *id) {
    cm_conn_over(id);
    soft_lock_wake();
}

/* Its receives are flushed before anybody hears of it, and what had arrived by then has arrived. */
void cm_mpa_end_qp(const struct cm_id *id) {
    struct soft_qp *qp = soft_qp_find(id->conn.local_qpn);
    if (qp && qp->cm == id->number)
        soft_qp_end(qp);
}

void cm_mpa_failed(struct cm_id *id, int type, int status, const uint8_t *data, size_t len) {
    cm_mpa_end_qp(id);
    cm_mpa_over(id);
    cm_conn_event_data(id, (enum rdma_cm_event_type)type, status, data, len);
}

void cm_mpa_fault(struct cm_id *id, int type, int status) {
    cm_mpa_failed(id, type, status, NULL, 0);
}

void cm_mpa_down(struct cm_id *id, bool tell) {
    cm_mpa_end_qp(id);
    if (tell)
        cm_wire_send_plain(id, CM_WIRE_FIN);
    cm_mpa_over(id);
    cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
}

void cm_mpa_qp_down(const struct soft_qp *qp) {
    struct cm_id *id = qp->cm ? cm_id_find(qp->cm) : NULL;
    if (id && id->conn.state == CM_CONN_UP)
        cm_mpa_down(id, true);
}

static void refuse(struct cm_id *id, const void *data, size_t len) {
    union cm_wire_any msg = {.mpa.bytes = (uint8_t)len};
    if (len)
        memcpy(msg.mpa.data, data, len);
    cm_wire_send(id, CM_WIRE_MPA_REJ, &msg, sizeof msg.mpa);
    cm_mpa_over(id);
}

void cm_mpa_kill(struct cm_id *id) {
    switch (id->conn.state) {
    case CM_CONN_REQ_SENT: /* the device or the channel goes away under it */
        cm_wire_send_plain(id, CM_WIRE_FIN);
        cm_mpa_end_qp(id);
        break;
    case CM_CONN_UP:
        cm_mpa_end_qp(id);
        cm_wire_send_plain(id, CM_WIRE_FIN);
        break;
    case CM_CONN_REQ_RCVD:
        refuse(id, NULL, 0);
        break;
    case CM_CONN_NONE:
    case CM_CONN_REP_SENT:
    case CM_CONN_REP_RCVD:
    case CM_CONN_DREQ_SENT:
    case CM_CONN_DREQ_RCVD:
    case CM_CONN_TIMEWAIT:
    case CM_CONN_SIDR_SENT:
    case CM_CONN_SIDR_RCVD:
    case CM_CONN_SIDR_DONE:
    case CM_CONN_OVER:
        break; /* there is nothing, or no such state here */
    }
    cm_mpa_over(id);
}

/* ---- connect ----------------------------------------------------------------------------------------- */

/* The call fails, no event comes, and the id may connect again. */
void cm_mpa_not_connected(struct cm_id *id, int error) {
    id->conn.tcp_error = error;
    cm_mpa_over(id);
    id->conn.state = CM_CONN_NONE;
    if (id->state == CM_CONNECT)
        id->state = CM_ROUTE_RESOLVED;
}

static bool find_peer(struct cm_id *id) {
    struct cm_conn *conn = &id->conn;
    if (conn->peer && soft_peer_alive(conn->peer))
        return true;
    if (conn->peer)
        soft_peer_release(conn->peer);
    conn->peer = conn->guessed ? NULL : cm_owner_recall(cm_id_ps(id), cm_id_dst(id));
    conn->guessed = true;
    if (conn->peer)
        return true;
    int error = cm_port_owner(cm_id_ps(id), cm_id_dst(id), &conn->peer);
    if (!error)
        return true;
    conn->peer = NULL;
    /* A descriptor that we lack is ours, and whoever asked can do something about it. */
    if (error == -ECONNREFUSED || error == -EMFILE || error == -ENFILE)
        cm_mpa_not_connected(id, -error);
    return false; /* else its queue is full: the next try may do */
}

static void on_timer(struct soft_timer *timer) {
    struct cm_id *id = (struct cm_id *)((char *)timer - offsetof(struct cm_id, conn.timer));
    if (id->conn.state != CM_CONN_REQ_SENT)
        return;
    if (!id->conn.waiting) {
        cm_mpa_handshake(id);
        return;
    }
    cm_wire_send_plain(id, CM_WIRE_FIN);
    cm_mpa_failed(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL, 0);
}

/* What TCP sends until it hears something; on a host only a fault plan or a full backlog loses it. */
void cm_mpa_handshake(struct cm_id *id) {
    struct cm_conn *conn = &id->conn;
    bool found = find_peer(id);
    if (conn->state != CM_CONN_REQ_SENT)
        return;
    if (found)
        cm_wire_send(id, CM_WIRE_MPA_REQ, &conn->request, sizeof conn->request.mpa);
    conn->request.mpa.again |= found;
    uint64_t every = (uint64_t)cm_times()->answer_ms * 1000000 / cm_times()->tries;
    soft_timer_arm(&conn->timer, soft_now_ns() + every, on_timer);
}

void cm_mpa_await_answer(struct cm_id *id) {
    soft_timer_arm(&id->conn.timer, soft_now_ns() + (uint64_t)cm_times()->mpa_ms * 1000000,
                   on_timer);
}

static void fill_req(struct cm_id *id, const struct rdma_conn_param *param, size_t len) {
    struct cm_conn *conn = &id->conn;
    uint8_t resources, depth;
    cm_qp_limits(id, &resources, &depth);
    if (param && param->responder_resources != RDMA_MAX_RESP_RES)
        resources = param->responder_resources;
    if (param && param->initiator_depth != RDMA_MAX_INIT_DEPTH)
        depth = param->initiator_depth;
    conn->responder_resources = resources;
    conn->initiator_depth = depth;
    memset(&conn->request, 0, sizeof conn->request);
    struct cm_wire_mpa *req = &conn->request.mpa;
    cm_wire_addr_set(&req->src, cm_id_src(id));
    cm_wire_addr_set(&req->dst, cm_id_dst(id));
    req->ps = (uint16_t)cm_id_ps(id);
    req->qp_num = conn->local_qpn;
    req->responder_resources = resources;
    req->initiator_depth = depth;
    req->bytes = (uint8_t)(id->connect_prefix_len + len);
    if (id->connect_prefix_len)
        memcpy(req->data, id->connect_prefix, id->connect_prefix_len);
    if (len)
        memcpy(req->data + id->connect_prefix_len, param->private_data, len);
}

static int begin(struct cm_id *id, const struct rdma_conn_param *param) {
    struct cm_conn *conn = &id->conn;
    size_t len = param && param->private_data ? param->private_data_len : 0;
    struct soft_qp *qp = soft_qp_find(id->id.qp ? id->id.qp->qp_num : param->qp_num);
    if (id->state != CM_ROUTE_RESOLVED || cm_id_is_ud(id) || !qp || qp->state != IBV_QPS_INIT ||
        id->connect_prefix_len + len > 255)
        return EINVAL;
    conn->local_qpn = qp->ibv.qp_num;
    conn->remote = 0;
    conn->waiting = conn->guessed = conn->looked_again = false;
    conn->tcp_error = 0;
    fill_req(id, param, len);
    id->state = CM_CONNECT;
    qp->cm = id->number;
    int event, status;
    if (soft_fault_id_call(&id->fault, FAULT_CONNECT, &event, &status)) {
        cm_mpa_fault(id, event, status);
        return 0;
    }
    conn->state = CM_CONN_REQ_SENT;
    conn->asked_ns = soft_now_ns();
    cm_mpa_handshake(id);
    return 0;
}

int cm_mpa_connect(struct cm_id *id, const struct rdma_conn_param *param) {
    struct cm_conn *conn = &id->conn;
    soft_lock();
    int error = begin(id, param);
    uint64_t until = soft_now_ns() + (uint64_t)cm_times()->answer_ms * 1000000;
    while (!error && conn->state == CM_CONN_REQ_SENT && !conn->waiting)
        if (!soft_lock_wait(until) && conn->state == CM_CONN_REQ_SENT && !conn->waiting)
            cm_mpa_not_connected(id, soft_files_or(conn->asked_ns, ETIMEDOUT));
    if (!error)
        error = conn->tcp_error;
    soft_unlock();
    return error;
}

/* ---- accept and refuse ------------------------------------------------------------------------------- */

static uint8_t smaller(uint8_t a, uint8_t b) {
    return a < b ? a : b;
}

/* The dialer's needs decide, as far as the device goes: it serves what is asked for, and asks for no more. */
static void settle_depths(struct cm_id *id, const struct rdma_conn_param *param) {
    struct cm_conn *conn = &id->conn;
    uint8_t resources, depth;
    cm_qp_limits(id, &resources, &depth);
    uint8_t own = param ? smaller(param->initiator_depth, depth) : depth;
    conn->responder_resources = smaller(conn->responder_resources, resources);
    conn->initiator_depth = smaller(conn->initiator_depth, own);
}

static void send_rep(struct cm_id *id, const struct rdma_conn_param *param, size_t len) {
    struct cm_conn *conn = &id->conn;
    union cm_wire_any msg = {.mpa = {.qp_num = conn->local_qpn,
                                     .responder_resources = conn->responder_resources,
                                     .initiator_depth = conn->initiator_depth,
                                     .bytes = (uint8_t)len}};
    if (len)
        memcpy(msg.mpa.data, param->private_data, len);
    cm_wire_send(id, CM_WIRE_MPA_REP, &msg, sizeof msg.mpa);
}

static int accept_locked(struct cm_id *id, const struct rdma_conn_param *param) {
    struct cm_conn *conn = &id->conn;
    if (id->state != CM_CONNECT || (conn->state != CM_CONN_REQ_RCVD && !conn->tcp_error))
        return EINVAL;
    if (conn->state != CM_CONN_REQ_RCVD)
        return conn->tcp_error; /* the dialer has given up */
    size_t len = param && param->private_data ? param->private_data_len : 0;
    struct soft_qp *qp = soft_qp_find(id->id.qp ? id->id.qp->qp_num : param->qp_num);
    int error = qp && len <= CM_MPA_DATA ? 0 : EINVAL;
    if (!error) {
        settle_depths(id, param);
        error = soft_qp_up(qp, conn->remote_qpn, conn->responder_resources, conn->initiator_depth,
                           true);
    }
    if (error) {
        refuse(id, NULL, 0);
        return error;
    }
    conn->local_qpn = qp->ibv.qp_num;
    qp->cm = id->number;
    id->published = true;
    int event, status;
    if (soft_fault_id_call(&id->fault, FAULT_ACCEPT, &event, &status)) {
        cm_mpa_fault(id, event, status);
        return 0;
    }
    send_rep(id, param, len);
    conn->state = CM_CONN_UP;
    cm_mpa_up(id, NULL, 0);
    return 0;
}

int cm_mpa_accept(struct cm_id *id, const struct rdma_conn_param *param) {
    soft_lock();
    int error = accept_locked(id, param);
    soft_unlock();
    return error;
}

int cm_mpa_reject(struct cm_id *id, const void *data, uint8_t len) {
    soft_lock();
    int error = id->conn.state == CM_CONN_REQ_RCVD && len <= CM_MPA_DATA ? 0 : EINVAL;
    if (!error)
        refuse(id, data, data ? len : 0);
    soft_unlock();
    return error;
}

/* ---- blocking ends ----------------------------------------------------------------------------------- */

/* It ends by its timer, if by nothing else. */
static void settle(uint64_t number) {
    for (;;) {
        const struct cm_id *id = cm_id_find(number);
        if (!id || id->conn.state != CM_CONN_REQ_SENT || soft_on_engine_thread())
            return;
        (void)soft_lock_wait(soft_now_ns() + (uint64_t)cm_times()->mpa_ms * 1000000);
    }
}

void cm_mpa_settle(struct cm_id *id) {
    soft_lock();
    settle(id->number);
    soft_unlock();
}

void cm_mpa_settle_qp(const struct soft_qp *qp) {
    if (qp->cm)
        settle(qp->cm);
}

int cm_mpa_disconnect(struct cm_id *id) {
    soft_lock();
    settle(id->number);
    int error = id->state == CM_DEAD || id->conn.state == CM_CONN_NONE ? EINVAL : 0;
    if (!error && id->conn.state == CM_CONN_UP)
        cm_mpa_down(id, true);
    soft_unlock();
    return error;
}
