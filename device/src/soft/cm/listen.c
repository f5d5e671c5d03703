/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * listen.c - listening: requests arrive, wait in a bounded queue, and are fetched.
 *
 * The backlog bounds requests that are queued and not fetched. A request above it is dropped without a
 * reply and the peer sends it again, as with the kernel. Control lock as each function says.
 */
#include "soft/cm/listen.h"

#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/cm/addr.h"
#include "soft/cm/answer.h"
#include "soft/cm/device.h"
#include "soft/cm/event.h"
#include "soft/cm/id.h"
#include "soft/cm/qp.h"
#include "soft/cm/tcp.h"
#include "soft/cm/tcp_port.h"
#include "soft/ipc/control_lock.h"
#include "soft/soft.h"

/* ---- the call -------------------------------------------------------------------------------------- */

static int listen_locked(struct soft_cm_id *id, int backlog) {
    if (id->state == SOFT_CM_IDLE) {
        soft_cm_addr_any(&id->id.route.addr.src_storage, AF_INET);
        int error = soft_cm_port_claim(id);
        if (error) {
            memset(&id->id.route.addr.src_storage, 0, sizeof id->id.route.addr.src_storage);
            return -error;
        }
        soft_cm_id_enter(id, SOFT_CM_BOUND);
    }
    if (id->state != SOFT_CM_BOUND || id->port.name < 0)
        return EINVAL;
    if (id->port.reuse) {
        /* A listener has its port for itself and loses the flag. */
        id->port.reuse = false;
        int error = soft_cm_port_rename(id);
        if (error) {
            id->port.reuse = true;
            return -error;
        }
    }
    int error = soft_cm_tcp_port_listen(id);
    if (error)
        return -error;
    id->backlog =
        backlog <= 0 || backlog > SOFT_CM_BACKLOG_MAX ? SOFT_CM_BACKLOG_MAX : (unsigned)backlog;
    soft_cm_id_enter(id, SOFT_CM_LISTEN);
    return 0;
}

int soft_listen(struct rdma_cm_id *id, int backlog) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (error)
        return soft_cm_fail(error);
    soft_lock();
    error = listen_locked(soft_cm_id_of(id), backlog);
    soft_unlock();
    return error ? soft_cm_fail(error) : 0;
}

/* ---- a request arrives; control lock held ------------------------------------------------------------ */

/* The request was sent again: if the first one is here, it is answered once more. */
static bool answered_before(struct soft_peer *peer, const struct soft_cm_wire_head *head) {
    struct soft_cm_id *first = soft_cm_id_find_remote(peer, head->from);
    if (first)
        soft_cm_conn_on_duplicate(first);
    return first;
}

static bool req_valid(const struct soft_cm_wire_req *req) {
    return !(req->qp_num >> 24) && !(req->psn >> 24) && req->retry_count <= 7 &&
           req->rnr_retry_count <= 7;
}

static void take_req(struct soft_cm_id *id, struct soft_cm_event *event,
                     const struct soft_cm_wire_req *req) {
    struct soft_cm_conn *conn = &id->conn;
    soft_cm_conn_enter(conn, SOFT_CM_CONN_REQ_RCVD);
    conn->remote_qpn = req->qp_num;
    conn->recv_psn = req->psn;
    conn->responder_resources = req->initiator_depth;
    conn->initiator_depth = req->responder_resources;
    conn->retry_count = req->retry_count;
    conn->rnr_retry_count = req->rnr_retry_count;
    struct rdma_conn_param *param = &event->event.param.conn;
    param->responder_resources = req->initiator_depth;
    param->initiator_depth = req->responder_resources;
    param->flow_control = req->flow_control;
    param->retry_count = req->retry_count;
    param->rnr_retry_count = req->rnr_retry_count;
    param->srq = req->srq;
    param->qp_num = req->qp_num;
    soft_cm_event_set_data(event, req->data, sizeof req->data);
}

struct soft_cm_id *soft_cm_listen_for(uint32_t type, const union soft_cm_wire_any *msg) {
    soft_assert_locked();
    bool ud = type == SOFT_CM_WIRE_SIDR_REQ, known;
    struct sockaddr_storage dst;
    bool mpa = type == SOFT_CM_WIRE_MPA_REQ;
    const struct soft_cm_wire_addr *to = ud    ? &msg->sidr_req.dst
                                         : mpa ? &msg->mpa.dst
                                               : &msg->req.dst;
    if (!soft_cm_wire_addr_get(&dst, to))
        return NULL;
    return soft_cm_port_listener(ud    ? msg->sidr_req.ps
                                 : mpa ? msg->mpa.ps
                                       : msg->req.ps,
                                 (struct sockaddr *)&dst, &known);
}

/* The id of a request and the event that tells of it, which is to be filled in and posted. NULL: no room. */
static struct soft_cm_event *announce(struct soft_cm_id *listener,
                                      const struct sockaddr_storage *own,
                                      const struct sockaddr_storage *peer) {
    if (listener->request_count >= listener->backlog)
        return NULL;
    struct soft_cm_event *event = soft_cm_event_new(listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct soft_cm_id *id =
        event ? soft_cm_id_new(listener->id.ps, listener->id.qp_type, listener->id.context) : NULL;
    if (!id) {
        free(event);
        return NULL;
    }
    id->id.route.addr.src_storage = *own;
    id->id.route.addr.dst_storage = *peer;
    soft_cm_id_enter(id, SOFT_CM_CONNECT);
    id->tos = listener->tos;
    id->ack_timeout_set = listener->ack_timeout_set;
    id->ack_timeout = listener->ack_timeout;
    id->listener = listener;
    event->event.id = &id->id;
    event->event.listen_id = &listener->id;
    event->request = id;
    listener->request_count++;
    return event;
}

bool soft_cm_listen_on_tcp(struct soft_cm_id *listener, struct soft_cm_tcp *tcp,
                           const struct soft_cm_wire_req *req) {
    struct soft_cm_event *event = announce(listener, &tcp->to, &tcp->from);
    if (!event)
        return false;
    struct soft_cm_id *id = event->request;
    struct soft_cm_wire_req own = *req;
    own.qp_num = soft_cm_tcp_qpn(id); /* the peer's has none here */
    id->conn.tcp = tcp;
    tcp->id = id;
    take_req(id, event, &own);
    soft_cm_event_post(event);
    return true;
}

void soft_cm_listen_on_request(struct soft_peer *peer, uint32_t type,
                               const union soft_cm_wire_any *msg) {
    soft_assert_locked();
    bool ud = type == SOFT_CM_WIRE_SIDR_REQ;
    const struct soft_cm_wire_req *req = &msg->req;
    const struct soft_cm_wire_sidr_req *sidr = &msg->sidr_req;
    struct sockaddr_storage src, dst;
    if (!msg->head.from || !soft_cm_wire_addr_get(&src, ud ? &sidr->src : &req->src) ||
        !soft_cm_wire_addr_get(&dst, ud ? &sidr->dst : &req->dst) ||
        src.ss_family != dst.ss_family || (!ud && !req_valid(req)))
        return;
    if ((ud ? sidr->again : req->again) && answered_before(peer, &msg->head))
        return;
    bool known;
    struct soft_cm_id *listener =
        soft_cm_port_listener(ud ? sidr->ps : req->ps, (struct sockaddr *)&dst, &known);
    if (!listener || soft_cm_id_is_ud(listener) != ud) {
        soft_cm_wire_refuse(peer, msg->head.from, (enum soft_cm_wire_type)type, known);
        return;
    }
    struct soft_cm_event *event = announce(listener, &dst, &src);
    if (!event)
        return; /* as if it had been lost */
    struct soft_cm_id *id = event->request;
    id->conn.peer = soft_peer_hold(peer);
    id->conn.remote = msg->head.from;
    if (ud) {
        soft_cm_conn_enter(&id->conn, SOFT_CM_CONN_SIDR_RCVD);
        soft_cm_event_set_data(event, sidr->data, sizeof sidr->data);
    } else {
        take_req(id, event, req);
    }
    soft_cm_event_post(event);
}

/* ---- a request is fetched ----------------------------------------------------------------------------- */

int soft_cm_listen_fetched(struct soft_cm_channel *channel, struct soft_cm_event *event) {
    struct soft_cm_id *id = event->request, *listener = event->node.id;
    int error = 0;
    if (soft_engine_get()) {
        error = errno;
    } else {
        id->engine_held = true;
        error = atomic_load(&id->removed) ? 0 : soft_cm_device_attach(id, channel);
    }
    struct soft_cm_channel *own = channel;
    if (!error && listener->sync) {
        own = soft_cm_channel_open();
        error = own ? 0 : errno;
    }
    soft_lock();
    soft_cm_id_unlink_request(id);
    event->request = NULL;
    if (!error) {
        id->sync = listener->sync;
        soft_cm_id_set_channel(id, own);
    } else {
        soft_cm_id_kill(id);
    }
    soft_unlock();
    if (!error)
        return 0;
    soft_cm_id_free(id);
    return soft_cm_fail(error);
}
