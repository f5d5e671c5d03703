/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mpa_answer.c - how a peer's messages, and its end, change a connection of a device that is like iWARP;
 * and its queue pair's attributes. Control lock held, on the engine thread; a message that does not fit the
 * state of its connection is dropped.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/cm/event.h"
#include "soft/cm/id.h"
#include "soft/cm/listen.h"
#include "soft/cm/mpa.h"
#include "soft/cm/mpa_answer.h"
#include "soft/cm/port_cache.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/fd_shortage.h"
#include "soft/ipc/peer.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/verbs/qp_iwarp.h"

/* ---- the listener ------------------------------------------------------------------------------------ */

static struct soft_cm_id *request_id(struct soft_peer *peer, struct soft_cm_id *listener,
                                     const struct soft_cm_wire_mpa *req) {
    struct soft_cm_id *id =
        soft_cm_id_new(listener->id.ps, listener->id.qp_type, listener->id.context);
    if (!id)
        return NULL;
    (void)soft_cm_wire_addr_get(&id->id.route.addr.src_storage, &req->dst);
    (void)soft_cm_wire_addr_get(&id->id.route.addr.dst_storage, &req->src);
    soft_cm_id_enter(id, SOFT_CM_CONNECT);
    id->tos = listener->tos;
    id->listener = listener;
    struct soft_cm_conn *conn = &id->conn;
    soft_cm_conn_enter(conn, SOFT_CM_CONN_REQ_RCVD);
    conn->peer = soft_peer_hold(peer);
    conn->remote = req->head.from;
    conn->remote_qpn = req->qp_num;
    /* What the peer initiates is what we respond to. */
    conn->responder_resources = req->initiator_depth;
    conn->initiator_depth = req->responder_resources;
    return id;
}

/* Its own future depths, exact data, and nothing that only InfiniBand's message has. */
static void tell_request(struct soft_cm_id *listener, struct soft_cm_id *id,
                         struct soft_cm_event *event, const struct soft_cm_wire_mpa *req) {
    event->event.id = &id->id;
    event->event.listen_id = &listener->id;
    event->event.param.conn.responder_resources = id->conn.responder_resources;
    event->event.param.conn.initiator_depth = id->conn.initiator_depth;
    soft_cm_event_set_data(event, req->data, req->bytes);
    event->request = id;
    listener->request_count++;
    soft_cm_event_post(event);
}

void soft_cm_mpa_on_req(struct soft_peer *peer, const struct soft_cm_wire_mpa *req) {
    struct sockaddr_storage src, dst;
    bool known;
    if (!req->head.from || req->qp_num >> 24 || !soft_cm_wire_addr_get(&src, &req->src) ||
        !soft_cm_wire_addr_get(&dst, &req->dst) || src.ss_family != dst.ss_family)
        return;
    struct soft_cm_id *first = req->again ? soft_cm_id_find_remote(peer, req->head.from) : NULL;
    if (first) {
        soft_cm_wire_send_plain(first, SOFT_CM_WIRE_MPA_SEEN);
        return;
    }
    struct soft_cm_id *listener = soft_cm_port_listener(req->ps, (struct sockaddr *)&dst, &known);
    if (!listener || soft_cm_id_is_ud(listener)) {
        soft_cm_wire_close(peer, req->head.from, true);
        return;
    }
    if (req->bytes > SOFT_CM_MPA_DATA) {
        soft_cm_wire_close(peer, req->head.from, false); /* without a reply: too much data */
        return;
    }
    if (listener->request_count >= listener->backlog)
        return;
    struct soft_cm_event *event = soft_cm_event_new(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct soft_cm_id *id = event ? request_id(peer, listener, req) : NULL;
    if (!id) {
        free(event);
        return; /* as if it had been lost */
    }
    soft_cm_wire_send_plain(id, SOFT_CM_WIRE_MPA_SEEN);
    tell_request(listener, id, event, req);
}

/* ---- the dialer -------------------------------------------------------------------------------------- */

void soft_cm_mpa_up(struct soft_cm_id *id, const uint8_t *data, size_t len) {
    struct soft_cm_event *event = soft_cm_conn_hears_of(id, RDMA_CM_EVENT_ESTABLISHED)
                                      ? soft_cm_event_new(id, RDMA_CM_EVENT_ESTABLISHED, 0)
                                      : NULL;
    if (!event)
        return;
    /* The peer's: it serves what we may ask for. */
    event->event.param.conn.responder_resources = id->conn.initiator_depth;
    event->event.param.conn.initiator_depth = id->conn.responder_resources;
    if (data)
        soft_cm_event_set_data(event, data, len);
    soft_cm_event_post(event);
}

static void seen(struct soft_cm_id *id, uint64_t remote) {
    if (id->conn.waiting)
        return;
    id->conn.remote = remote;
    id->conn.waiting = true;
    soft_cm_mpa_await_answer(id);
    soft_lock_wake();
}

void soft_cm_mpa_on_seen(struct soft_cm_id *id, const struct soft_cm_wire_head *head) {
    if (id->conn.state == SOFT_CM_CONN_REQ_SENT && head->from)
        seen(id, head->from);
}

void soft_cm_mpa_on_rep(struct soft_cm_id *id, const struct soft_cm_wire_mpa *rep) {
    struct soft_cm_conn *conn = &id->conn;
    if (conn->state != SOFT_CM_CONN_REQ_SENT || !rep->head.from || rep->qp_num >> 24 ||
        rep->bytes > SOFT_CM_MPA_DATA)
        return;
    seen(id, rep->head.from);
    soft_timer_cancel(&conn->timer);
    conn->remote_qpn = rep->qp_num;
    conn->responder_resources = rep->initiator_depth;
    conn->initiator_depth = rep->responder_resources;
    struct soft_qp *qp = soft_qp_find(conn->local_qpn);
    int error = EINVAL;
    if (qp && qp->cm == id->number)
        error = soft_qp_up(qp, conn->peer, rep->qp_num, conn->responder_resources,
                           conn->initiator_depth, false);
    if (error) {
        soft_cm_wire_send_plain(id, SOFT_CM_WIRE_FIN);
        soft_cm_mpa_failed(id, RDMA_CM_EVENT_CONNECT_ERROR, -error, NULL, 0);
        return;
    }
    soft_cm_conn_enter(conn, SOFT_CM_CONN_UP);
    soft_lock_wake();
    soft_cm_mpa_up(id, rep->data, rep->bytes);
}

/*
 * A process says that it does not listen. It may be from the port cache: has another process the port? Or another user
 * holds the port as well.
 */
static bool looks_again(struct soft_cm_id *id) {
    struct soft_cm_conn *conn = &id->conn;
    if (conn->looked_again && !soft_cm_port_turn_refused(&conn->turn))
        return false;
    conn->looked_again = true;
    soft_cm_port_cache_forget(soft_cm_id_ps(id), soft_cm_id_dst(id));
    soft_peer_release(conn->peer);
    conn->peer = NULL;
    soft_cm_mpa_handshake(id);
    return true;
}

void soft_cm_mpa_on_rej(struct soft_cm_id *id, const struct soft_cm_wire_mpa *rej) {
    if (id->conn.state != SOFT_CM_CONN_REQ_SENT || rej->bytes > SOFT_CM_MPA_DATA)
        return;
    if (!rej->reset || id->conn.waiting)
        soft_cm_mpa_failed(id, RDMA_CM_EVENT_REJECTED, -ECONNRESET, rej->data, rej->bytes);
    else if (!looks_again(id))
        soft_cm_mpa_not_connected(id, ECONNREFUSED);
}

/* ---- the end ----------------------------------------------------------------------------------------- */

void soft_cm_mpa_on_fin(struct soft_cm_id *id) {
    switch (id->conn.state) {
    case SOFT_CM_CONN_REQ_SENT:
        soft_cm_mpa_failed(id, RDMA_CM_EVENT_REJECTED, -ECONNRESET, NULL, 0);
        return;
    case SOFT_CM_CONN_REQ_RCVD: /* the listener hears of it when it accepts */
        id->conn.tcp_error = ECONNRESET;
        soft_cm_mpa_over(id);
        return;
    case SOFT_CM_CONN_UP:
        soft_cm_mpa_down(id, false);
        return;
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
        return;
    }
}

/* Its kernel closes what it had. A handshake that was not answered goes to the process that has the port now. */
void soft_cm_mpa_peer_gone(struct soft_cm_id *id) {
    bool asking = id->conn.state == SOFT_CM_CONN_REQ_SENT;
    int error = asking ? soft_files_or(id->conn.asked_ns, 0) : 0;
    /* This process left the peer, because the peer's descriptors found no place here: the peer is not at fault. */
    if (error != 0 && id->conn.waiting)
        soft_cm_mpa_failed(id, RDMA_CM_EVENT_UNREACHABLE, -error, NULL, 0);
    else if (error != 0)
        soft_cm_mpa_not_connected(id, error);
    else if (asking && !id->conn.waiting) {
        (void)soft_cm_port_turn_silent(&id->conn.turn);
        soft_cm_mpa_handshake(id);
    } else
        soft_cm_mpa_on_fin(id);
}

/* ---- attributes -------------------------------------------------------------------------------------- */

/* The device moves the queue pair itself: there is little to say, and nothing of the path. */
void soft_cm_mpa_attr(const struct soft_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
    attr->port_num = 1;
    *mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;
    if (id->conn.state == SOFT_CM_CONN_NONE)
        return;
    if (attr->qp_state == IBV_QPS_RTS)
        *mask = IBV_QP_PORT;
    else
        attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
}
