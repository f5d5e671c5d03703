/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mpa.c - the calls and the ends of connections of a device that is like iWARP; mpa_answer.c has
 * how messages change them. Follows the kernel's iw_cm with Soft-iWARP below.
 *
 * Between the processes of a host there is no TCP: MPA_REQ is also its handshake, MPA_SEEN says that the
 * handshake is done, MPA_REJ with `reset` is its refusal, FIN its end. The peer's device answers the
 * handshake, without its application; a stopped process does not answer, like a host that is down.
 */
#include "soft/cm/mpa.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/cm/event.h"
#include "soft/cm/fault.h"
#include "soft/cm/id.h"
#include "soft/cm/mpa_answer.h"
#include "soft/cm/port_cache.h"
#include "soft/cm/qp.h"
#include "soft/cm/timers.h"
#include "soft/fault/plan.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/fd_shortage.h"
#include "soft/ipc/peer.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/verbs/qp_iwarp.h"

/* ---- ends; control lock held ------------------------------------------------------------------------- */

void soft_cm_mpa_over(struct soft_cm_id *id) {
    soft_cm_conn_over(id);
    soft_lock_wake();
}

/* Its receives are flushed before the application gets the event; what had arrived by then stays received. */
static void soft_cm_mpa_end_qp(const struct soft_cm_id *id) {
    struct soft_qp *qp = soft_qp_find(id->conn.local_qpn);
    if (qp && qp->cm == id->number)
        soft_qp_end(qp);
}

void soft_cm_mpa_failed(struct soft_cm_id *id, int type, int status, const uint8_t *data,
                        size_t len) {
    soft_cm_mpa_end_qp(id);
    soft_cm_mpa_over(id);
    soft_cm_conn_event_data(id, (enum rdma_cm_event_type)type, status, data, len);
}

void soft_cm_mpa_fault(struct soft_cm_id *id, int type, int status) {
    soft_cm_mpa_failed(id, type, status, NULL, 0);
}

void soft_cm_mpa_down(struct soft_cm_id *id, bool tell) {
    soft_cm_mpa_end_qp(id);
    if (tell)
        soft_cm_wire_send_plain(id, SOFT_CM_WIRE_FIN);
    soft_cm_mpa_over(id);
    soft_cm_conn_event(id, RDMA_CM_EVENT_DISCONNECTED, 0);
}

void soft_cm_mpa_qp_down(const struct soft_qp *qp) {
    struct soft_cm_id *id = qp->cm ? soft_cm_id_find(qp->cm) : NULL;
    if (id && id->conn.state == SOFT_CM_CONN_UP)
        soft_cm_mpa_down(id, true);
}

static void refuse(struct soft_cm_id *id, const void *data, size_t len) {
    union soft_cm_wire_any msg = {.mpa.bytes = (uint8_t)len};
    if (len)
        memcpy(msg.mpa.data, data, len);
    soft_cm_wire_send(id, SOFT_CM_WIRE_MPA_REJ, &msg, sizeof msg.mpa);
    soft_cm_mpa_over(id);
}

void soft_cm_mpa_kill(struct soft_cm_id *id) {
    switch (id->conn.state) {
    case SOFT_CM_CONN_REQ_SENT: /* the device or the channel goes away under it */
        soft_cm_wire_send_plain(id, SOFT_CM_WIRE_FIN);
        soft_cm_mpa_end_qp(id);
        break;
    case SOFT_CM_CONN_UP:
        soft_cm_mpa_end_qp(id);
        soft_cm_wire_send_plain(id, SOFT_CM_WIRE_FIN);
        break;
    case SOFT_CM_CONN_REQ_RCVD:
        refuse(id, NULL, 0);
        break;
    case SOFT_CM_CONN_NONE:
    case SOFT_CM_CONN_REP_SENT:
    case SOFT_CM_CONN_REP_RCVD:
    case SOFT_CM_CONN_DREQ_SENT:
    case SOFT_CM_CONN_DREQ_RCVD:
    case SOFT_CM_CONN_TIMEWAIT:
    case SOFT_CM_CONN_SIDR_SENT:
    case SOFT_CM_CONN_SIDR_RCVD:
    case SOFT_CM_CONN_SIDR_DONE:
    case SOFT_CM_CONN_OVER:
        break; /* there is nothing, or no such state here */
    }
    soft_cm_mpa_over(id);
}

/* ---- connect ----------------------------------------------------------------------------------------- */

/* The call fails, no event comes, and the id may connect again. */
void soft_cm_mpa_not_connected(struct soft_cm_id *id, int error) {
    id->conn.tcp_error = error;
    soft_cm_mpa_over(id);
    soft_cm_conn_enter(&id->conn, SOFT_CM_CONN_NONE);
    if (id->state == SOFT_CM_CONNECT)
        soft_cm_id_enter(id, SOFT_CM_ROUTE_RESOLVED);
}

/* 0: there is one to ask. -EINPROGRESS: names are being read. Else there is none, or the connection is over. */
static int find_peer(struct soft_cm_id *id) {
    struct soft_cm_conn *conn = &id->conn;
    if (conn->peer && soft_peer_alive(conn->peer))
        return 0;
    if (conn->peer)
        soft_peer_release(conn->peer);
    conn->peer =
        conn->guessed ? NULL : soft_cm_port_cache_recall(soft_cm_id_ps(id), soft_cm_id_dst(id));
    conn->guessed = true;
    if (conn->peer)
        return 0;
    int error = soft_cm_port_owner(soft_cm_id_ps(id), soft_cm_id_dst(id), &conn->turn, &conn->peer);
    if (!error)
        return 0;
    conn->peer = NULL;
    /* A descriptor is missing in this process: the application can raise the limit. */
    if (error == -ECONNREFUSED || error == -EMFILE || error == -ENFILE)
        soft_cm_mpa_not_connected(id, -error);
    else if (error != -EINPROGRESS)
        (void)soft_cm_port_turn_silent(&conn->turn);
    return error; /* else its queue is full: the next try may do */
}

static void forget_peer(struct soft_cm_id *id) {
    if (id->conn.peer)
        soft_peer_release(id->conn.peer);
    id->conn.peer = NULL;
}

static void on_timer(struct soft_timer *timer) {
    struct soft_cm_id *id =
        (struct soft_cm_id *)((char *)timer - offsetof(struct soft_cm_id, conn.timer));
    if (id->conn.state != SOFT_CM_CONN_REQ_SENT)
        return;
    if (!id->conn.waiting) {
        if (id->conn.peer && soft_cm_port_turn_silent(&id->conn.turn))
            forget_peer(id);
        soft_cm_mpa_handshake(id);
        return;
    }
    soft_cm_wire_send_plain(id, SOFT_CM_WIRE_FIN);
    soft_cm_mpa_failed(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL, 0);
}

/* Sends the request as TCP would, until an answer comes; on a host only a fault plan or a full backlog loses it. */
void soft_cm_mpa_handshake(struct soft_cm_id *id) {
    struct soft_cm_conn *conn = &id->conn;
    int error = find_peer(id);
    if (conn->state != SOFT_CM_CONN_REQ_SENT)
        return;
    if (!error)
        soft_cm_wire_send(id, SOFT_CM_WIRE_MPA_REQ, &conn->request, sizeof conn->request.mpa);
    conn->request.mpa.again |= !error;
    uint64_t every = (uint64_t)soft_cm_timers()->answer_ms * 1000000 / soft_cm_timers()->tries;
    if (error == -EINPROGRESS)
        every = SOFT_CM_NAMES_AGAIN_NS;
    soft_timer_arm(&conn->timer, soft_now_ns() + every, on_timer);
}

void soft_cm_mpa_await_answer(struct soft_cm_id *id) {
    soft_timer_arm(&id->conn.timer, soft_now_ns() + (uint64_t)soft_cm_timers()->mpa_ms * 1000000,
                   on_timer);
}

static void fill_req(struct soft_cm_id *id, const struct rdma_conn_param *param, size_t len) {
    struct soft_cm_conn *conn = &id->conn;
    uint8_t resources, depth;
    soft_cm_qp_limits(id, &resources, &depth);
    if (param && param->responder_resources != RDMA_MAX_RESP_RES)
        resources = param->responder_resources;
    if (param && param->initiator_depth != RDMA_MAX_INIT_DEPTH)
        depth = param->initiator_depth;
    conn->responder_resources = resources;
    conn->initiator_depth = depth;
    memset(&conn->request, 0, sizeof conn->request);
    struct soft_cm_wire_mpa *req = &conn->request.mpa;
    soft_cm_wire_addr_set(&req->src, soft_cm_id_src(id));
    soft_cm_wire_addr_set(&req->dst, soft_cm_id_dst(id));
    req->ps = (uint16_t)soft_cm_id_ps(id);
    req->qp_num = conn->local_qpn;
    req->responder_resources = resources;
    req->initiator_depth = depth;
    req->bytes = (uint8_t)(id->connect_prefix_len + len);
    if (id->connect_prefix_len)
        memcpy(req->data, id->connect_prefix, id->connect_prefix_len);
    if (len)
        memcpy(req->data + id->connect_prefix_len, param->private_data, len);
}

static int begin(struct soft_cm_id *id, const struct rdma_conn_param *param) {
    struct soft_cm_conn *conn = &id->conn;
    size_t len = param && param->private_data ? param->private_data_len : 0;
    struct soft_qp *qp = soft_qp_find(id->id.qp ? id->id.qp->qp_num : param->qp_num);
    if (id->state != SOFT_CM_ROUTE_RESOLVED || soft_cm_id_is_ud(id) || !qp ||
        qp->state != IBV_QPS_INIT || id->connect_prefix_len + len > 255)
        return EINVAL;
    conn->local_qpn = qp->ibv.qp_num;
    conn->remote = 0;
    conn->waiting = conn->guessed = conn->looked_again = false;
    conn->tcp_error = 0;
    conn->turn = (struct soft_cm_port_turn){0};
    fill_req(id, param, len);
    soft_cm_id_enter(id, SOFT_CM_CONNECT);
    qp->cm = id->number;
    int event, status;
    if (soft_fault_id_call(&id->fault, FAULT_CONNECT, &event, &status)) {
        soft_cm_mpa_fault(id, event, status);
        return 0;
    }
    soft_cm_conn_enter(conn, SOFT_CM_CONN_REQ_SENT);
    conn->asked_ns = soft_now_ns();
    soft_cm_mpa_handshake(id);
    return 0;
}

int soft_cm_mpa_connect(struct soft_cm_id *id, const struct rdma_conn_param *param) {
    struct soft_cm_conn *conn = &id->conn;
    soft_lock();
    int error = begin(id, param);
    uint64_t until = soft_now_ns() + (uint64_t)soft_cm_timers()->answer_ms * 1000000;
    while (!error && conn->state == SOFT_CM_CONN_REQ_SENT && !conn->waiting)
        if (!soft_lock_wait(until) && conn->state == SOFT_CM_CONN_REQ_SENT && !conn->waiting)
            soft_cm_mpa_not_connected(id, soft_files_or(conn->asked_ns, ETIMEDOUT));
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
static void settle_depths(struct soft_cm_id *id, const struct rdma_conn_param *param) {
    struct soft_cm_conn *conn = &id->conn;
    uint8_t resources, depth;
    soft_cm_qp_limits(id, &resources, &depth);
    uint8_t own = param ? smaller(param->initiator_depth, depth) : depth;
    conn->responder_resources = smaller(conn->responder_resources, resources);
    conn->initiator_depth = smaller(conn->initiator_depth, own);
}

static void send_rep(struct soft_cm_id *id, const struct rdma_conn_param *param, size_t len) {
    struct soft_cm_conn *conn = &id->conn;
    union soft_cm_wire_any msg = {.mpa = {.qp_num = conn->local_qpn,
                                          .responder_resources = conn->responder_resources,
                                          .initiator_depth = conn->initiator_depth,
                                          .bytes = (uint8_t)len}};
    if (len)
        memcpy(msg.mpa.data, param->private_data, len);
    soft_cm_wire_send(id, SOFT_CM_WIRE_MPA_REP, &msg, sizeof msg.mpa);
}

static int accept_locked(struct soft_cm_id *id, const struct rdma_conn_param *param) {
    struct soft_cm_conn *conn = &id->conn;
    if (id->state != SOFT_CM_CONNECT || (conn->state != SOFT_CM_CONN_REQ_RCVD && !conn->tcp_error))
        return EINVAL;
    if (conn->state != SOFT_CM_CONN_REQ_RCVD)
        return conn->tcp_error; /* the dialer has given up */
    size_t len = param && param->private_data ? param->private_data_len : 0;
    struct soft_qp *qp = soft_qp_find(id->id.qp ? id->id.qp->qp_num : param->qp_num);
    int error = qp && len <= SOFT_CM_MPA_DATA ? 0 : EINVAL;
    if (!error) {
        settle_depths(id, param);
        error = soft_qp_up(qp, conn->peer, conn->remote_qpn, conn->responder_resources,
                           conn->initiator_depth, true);
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
        soft_cm_mpa_fault(id, event, status);
        return 0;
    }
    send_rep(id, param, len);
    soft_cm_conn_enter(conn, SOFT_CM_CONN_UP);
    soft_cm_mpa_up(id, NULL, 0);
    return 0;
}

int soft_cm_mpa_accept(struct soft_cm_id *id, const struct rdma_conn_param *param) {
    soft_lock();
    int error = accept_locked(id, param);
    soft_unlock();
    return error;
}

int soft_cm_mpa_reject(struct soft_cm_id *id, const void *data, uint8_t len) {
    soft_lock();
    int error = id->conn.state == SOFT_CM_CONN_REQ_RCVD && len <= SOFT_CM_MPA_DATA ? 0 : EINVAL;
    if (!error)
        refuse(id, data, data ? len : 0);
    soft_unlock();
    return error;
}

/* ---- blocking ends ----------------------------------------------------------------------------------- */

/* It ends by its timer, if by nothing else. */
static void settle(uint64_t number) {
    for (;;) {
        const struct soft_cm_id *id = soft_cm_id_find(number);
        if (!id || id->conn.state != SOFT_CM_CONN_REQ_SENT || soft_on_engine_thread())
            return;
        (void)soft_lock_wait(soft_now_ns() + (uint64_t)soft_cm_timers()->mpa_ms * 1000000);
    }
}

void soft_cm_mpa_settle(struct soft_cm_id *id) {
    soft_lock();
    settle(id->number);
    soft_unlock();
}

void soft_cm_mpa_settle_qp(const struct soft_qp *qp) {
    if (qp->cm)
        settle(qp->cm);
}

int soft_cm_mpa_disconnect(struct soft_cm_id *id) {
    soft_lock();
    settle(id->number);
    int error = id->state == SOFT_CM_DEAD || id->conn.state == SOFT_CM_CONN_NONE ? EINVAL : 0;
    if (!error && id->conn.state == SOFT_CM_CONN_UP)
        soft_cm_mpa_down(id, true);
    soft_unlock();
    return error;
}
