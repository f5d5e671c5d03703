/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * accept.c - the listener's way from a request to an established connection.
 *
 *   CONNECT_REQUEST -> decide (-> ask the application) -> admission (-> a line) -> (loop: PREPARE)
 *        -> accept -> ESTABLISHED
 *
 * The loop moves the QP through INIT, RTR and RTS at once, so the QP is complete before the peer is answered, and
 * receives are posted before the peer could send.
 *
 * Owner: the CM thread. The request's private data is hostile.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cm/internal.h"
#include "core/auth/replay.h"
#include "core/context.h"
#include "core/session_table.h"

const char cm_no_random[] = "the system gives no random numbers to connect with";

/* Refuses a request that never became a session. */
static void refuse_with(struct cm *cm, struct rdma_cm_id *id, sluice_reason reason, uint16_t code,
                        const char *text) {
    struct private_data_rej rej = {.reason = (uint16_t)reason, .code = code};
    uint8_t data[PRIVATE_DATA_REJ_BYTES];
    snprintf(rej.text, sizeof rej.text, "%s", text ? text : sluice_reason_text((int)reason));
    size_t bytes = private_data_rej_encode(&rej, data);
    cm->node->fabric->reject(id, data, (uint8_t)bytes);
    cm->node->fabric->destroy_id(id);
    stats_add(&cm->stats->refused, 1);
}

static void refuse_request(struct cm *cm, struct rdma_cm_id *id, sluice_reason reason,
                           const char *text) {
    refuse_with(cm, id, reason, 0, text);
}

void cm_answer(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    struct session *s = session_of_conn(conn);
    if (!cm_conn_options(cm, conn))
        return;
    bool applies = !cm->node->traits.answer_is_up; /* else accept moves the QP */
    if (!cm_attributes(cm, conn, IBV_QPS_INIT, &conn->init, &conn->init_mask) ||
        (applies && !cm_attributes(cm, conn, IBV_QPS_RTR, &conn->rtr, &conn->rtr_mask)) ||
        (applies && !cm_attributes(cm, conn, IBV_QPS_RTS, &conn->rts, &conn->rts_mask))) {
        cm_fail(cm, conn, cm_reason_of_answer(errno), (uint32_t)errno,
                "no QP attributes for the answer: %s", strerror(errno));
        return;
    }
    /* Where a request's path is the dialer's, rdma_cm has taken its class with it, whatever is asked. */
    if (s->link_config.tos && conn->rtr.ah_attr.is_global)
        conn->rtr.ah_attr.grh.traffic_class = (uint8_t)s->link_config.tos;
    /* Before the accept rdma_cm knows the dialer's wishes only, which may be more than was decided. */
    conn->rtr.max_dest_rd_atomic = conn->rep.depth_in;
    conn->rts.max_rd_atomic = conn->rep.depth_out;
    cm_enter(cm, conn, CM_CREATING_QP_PASSIVE);
    cm_tell_loop(conn, LOOP_MSG_PREPARE);
}

/* The session that the request resumes has it now. NULL: refused. */
static struct cm_conn *resumed(struct cm *cm, struct rdma_cm_id *id,
                               const struct private_data_req *req) {
    bool busy = false;
    struct connection *c = cm->node->upcalls->session_resume(cm->node, req->session_id, &busy);
    if (!c && !busy) {
        refuse_request(cm, id, SLUICE_REASON_SESSION_UNKNOWN, NULL);
        return NULL;
    }
    if (!c) {
        stats_add(&cm->stats->busy, 1);
        refuse_request(cm, id, SLUICE_REASON_BUSY, ADMISSION_BUSY_TEXT);
        return NULL;
    }
    c->cm.resume.on = true;
    return &c->cm;
}

/* A new session for the request. NULL: refused. */
static struct cm_conn *created(struct cm *cm, struct rdma_cm_id *id,
                               const struct cm_listener *listener) {
    sluice_node *n = cm->node;
    bool room = admission_room(cm, listener->link.flags & SLUICE_ASK);
    struct session *s = room ? n->upcalls->session_new(n, &listener->link) : NULL;
    if (!s && atomic_load(&n->state) != NODE_OPEN) {
        refuse_request(cm, id, SLUICE_REASON_NODE_CLOSED, NULL);
        return NULL;
    }
    if (!s) {
        stats_add(&cm->stats->busy, 1);
        refuse_request(cm, id, SLUICE_REASON_BUSY, ADMISSION_BUSY_TEXT);
        return NULL;
    }
    return &session_connection(s)->cm;
}

/* A session that makes a connection for the one with this id. NULL: refused. */
static struct cm_conn *joined(struct cm *cm, struct rdma_cm_id *id,
                              const struct private_data_req *req) {
    bool busy = !admission_room(cm, false);
    struct session *s =
        busy ? NULL : cm->node->upcalls->session_join(cm->node, req->session_id, &busy);
    if (!s) {
        stats_add(&cm->stats->busy, busy);
        refuse_request(cm, id, busy ? SLUICE_REASON_BUSY : SLUICE_REASON_SESSION_UNKNOWN,
                       busy ? ADMISSION_BUSY_TEXT : NULL);
        return NULL;
    }
    return &session_connection(s)->cm;
}

/* Decides about the request; *rep: the answer. Refused: *rej has the code, and a text if there is one. */
static sluice_reason judge(struct cm *cm, const struct cm_listener *listener,
                           const struct cm_event *event, struct private_data_req *req,
                           struct private_data_rep *rep, struct private_data_rej *rej) {
    sluice_node *n = cm->node;
    struct private_data_req own;
    sluice_reason reason = private_data_req_decode(req, event->data, event->data_bytes);
    if (reason == SLUICE_REASON_NONE &&
        (event->retry_count > CM_RETRIES_MAX || event->rnr_retry_count > CM_RETRIES_MAX))
        reason = SLUICE_REASON_VALUE;
    cm_proposal(cm, &listener->link, &own);
    if (reason == SLUICE_REASON_NONE && (req->features & PRIVATE_DATA_FEATURE_PROBE))
        cm_offer_probe(cm, &own);
    if (!n->env.random_bytes(n->env.arg, own.nonce, sizeof own.nonce)) {
        log_write(&n->log, SLUICE_LOG_ERROR, "a request refused: %s", cm_no_random);
        snprintf(rej->text, sizeof rej->text, "%s", cm_no_random);
        return SLUICE_REASON_DEVICE_ERROR;
    }
    if (reason == SLUICE_REASON_NONE)
        reason = private_data_decide(rep, req, &own);
    if (reason == SLUICE_REASON_NONE && req->key_id != 0 &&
        replay_seen(cm->node->replay, req->nonce))
        reason = SLUICE_REASON_AUTH_REPLAY;
    if (reason == SLUICE_REASON_NONE && n->traits.dialer_first &&
        !(rep->features & PRIVATE_DATA_FEATURE_HANDSHAKE)) {
        reason = SLUICE_REASON_UNSUPPORTED; /* it may wait for us to speak first */
        rej->code = PRIVATE_DATA_REJ_WANTS_HANDSHAKE;
    }
    return reason;
}

void cm_on_request(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    struct cm_listener *listener = (struct cm_listener *)(void *)owner;
    sluice_node *n = cm->node;
    struct rdma_cm_id *id = event->id;
    struct private_data_req req;
    struct private_data_rep rep;
    struct private_data_rej rej = {0};
    id->context = NULL; /* it had the listener's; until it has its own its events mean nothing */
    stats_add(&cm->stats->requests, 1);
    if (atomic_load(&n->state) != NODE_OPEN) {
        refuse_request(cm, id, SLUICE_REASON_NODE_CLOSED, NULL);
        return;
    }
    if (cm->device_lost) {
        refuse_request(cm, id, SLUICE_REASON_DEVICE_REMOVED, NULL);
        return;
    }
    if (!cm_same_device(cm, id)) {
        refuse_request(cm, id, SLUICE_REASON_WRONG_DEVICE, NULL);
        return;
    }
    sluice_reason reason = judge(cm, listener, event, &req, &rep, &rej);
    if (reason != SLUICE_REASON_NONE) {
        char peer[64];
        address_format(rdma_get_peer_addr(id), peer);
        log_write(&n->log, SLUICE_LOG_INFO, "a request from %s refused: %s", peer,
                  sluice_reason_text((int)reason));
        refuse_with(cm, id, reason, rej.code, rej.text[0] ? rej.text : NULL);
        return;
    }
    /* Where there is a handshake, the application is asked after HELLO; room for that there must be now. */
    bool resumes = req.features & PRIVATE_DATA_FEATURE_RESUMES;
    bool joins = req.features & PRIVATE_DATA_FEATURE_JOINS;
    bool asks = (listener->link.flags & SLUICE_ASK) && !resumes && !joins &&
                !(rep.features & PRIVATE_DATA_FEATURE_HANDSHAKE);
    struct cm_conn *conn = resumes ? resumed(cm, id, &req)
                           : joins ? joined(cm, id, &req)
                                   : created(cm, id, listener);
    if (!conn)
        return;
    struct session *s = session_of_conn(conn);
    conn->passive = true;
    conn->rejectable = true;
    conn->owner.id = id;
    conn->listener = listener;
    conn->req = req;
    conn->rep = rep;
    conn->retry_count = event->retry_count;
    conn->rnr_retry_count = event->rnr_retry_count;
    id->context = &conn->owner;
    if (!resumes) {
        address_format(rdma_get_peer_addr(id), s->peer.address);
        s->peer.version = rep.version;
        s->peer.message_bytes = req.message_log2;
    }
    cm_begin(cm, conn);
    if (!resumes)
        session_table_publish(s, n->index, 0);
    if (asks) {
        cm_enter(cm, conn, CM_AWAITING_APP);
        cm_tell_loop(conn, LOOP_MSG_ASK);
    } else {
        admission_start(cm, conn);
    }
}

void cm_answered(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    if (conn->owner.state != CM_AWAITING_APP)
        return;              /* too late: the request is gone, and CLOSED on its way */
    if (conn->established) { /* the peer has said HELLO: the loop tells it */
        if (conn->accepted)
            cm_up(cm, conn);
        cm_tell_loop(conn, LOOP_MSG_HANDSHAKE_ANSWER);
        return;
    }
    if (conn->accepted) {
        admission_start(cm, conn);
        return;
    }
    struct private_data_rej rej = {.reason = SLUICE_REASON_REFUSED, .code = conn->refuse_code};
    uint8_t data[PRIVATE_DATA_REJ_BYTES];
    memcpy(rej.text, conn->refuse_text, sizeof rej.text);
    size_t bytes = private_data_rej_encode(&rej, data);
    cm->node->fabric->reject(conn->owner.id, data, (uint8_t)bytes);
    conn->rejectable = false;
    cm_fail(cm, conn, SLUICE_REASON_LOCAL_CLOSE, 0, "refused by this side's application");
}

void cm_accept_now(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    uint8_t data[PRIVATE_DATA_REP_BYTES];
    private_data_rep_encode(&conn->rep, data);
    struct rdma_conn_param param = {
        .private_data = data,
        .private_data_len = sizeof data,
        .responder_resources = conn->rep.depth_in,
        .initiator_depth = conn->rep.depth_out,
        .flow_control = 1,
        .rnr_retry_count = CM_RETRIES_MAX,
        .srq = conn->srq,
        .qp_num = conn->qp_num,
    };
    cm_enter(cm, conn, CM_ACCEPTING);
    conn->rejectable = false;
    if (cm->node->fabric->accept(conn->owner.id, &param) != 0) {
        cm_fail(cm, conn, cm_reason_of_answer(errno), (uint32_t)errno, "accept: %s",
                strerror(errno));
        return;
    }
    conn->established = true;
    conn->rejectable = cm->node->traits.rejects_accepted; /* until the dialer has confirmed it */
}

/* Data came before the handshake's last message: it counts as that message, which may be lost. */
void cm_arrived(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    if (conn->owner.state == CM_ACCEPTING)
        cm->node->fabric->notify(conn->owner.id, IBV_EVENT_COMM_EST);
}

void cm_on_established(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    struct cm_conn *conn = (struct cm_conn *)(void *)owner;
    if (conn->passive)
        cm_adopt(cm, conn);
    else if (cm->node->traits.answer_is_up)
        cm_on_response(cm, owner, event);
    /* Else it is nonsense: a dialer's is raised only with a QP on the id, which there is not. */
}

/*
 * The dialer closed what it had before its confirmation was seen: the connection was there, and what came over it
 * was acknowledged. So the session is up first.
 */
void cm_on_closed_early(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    cm_adopt(cm, (struct cm_conn *)(void *)owner);
    cm_on_disconnected(cm, owner, event);
}

/* The loop found the peer's HELLO or WELCOME in order: the session is up, or the application decides. */
void cm_handshake_done(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    struct session *s = session_of_conn(conn);
    if (conn->owner.state != CM_HANDSHAKE)
        return; /* it failed meanwhile */
    bool another = conn->resume.on || (conn->req.features & PRIVATE_DATA_FEATURE_JOINS);
    if (!conn->passive || another || !(s->link_config.flags & SLUICE_ASK)) {
        cm_up(cm, conn);
        return;
    }
    cm_enter(cm, conn, CM_AWAITING_APP);
    if (!conn->listener)
        cm_fail(cm, conn, SLUICE_REASON_NO_LISTENER, 0, "the listener was closed");
}
