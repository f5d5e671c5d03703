/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connect_call.c - a dial's rdma_connect(): called here, or by the connector where it blocks; the meaning of its errno;
 * and how a try is given up while the kernel still uses its id or QP.
 *
 * While conn->call is set, destroying the id or the queue pair would block: until the call has returned
 * and the event with its outcome came (decided). A dial that is given up before leaves both to the
 * connector: the id at once, so that a connection that still comes about ends as well; the queue pair when
 * its loop has drained it, with PREPARED (of the next one) or DRAINED.
 *
 * Owner: the CM thread.
 */
#include <errno.h>
#include <string.h>

#include "cm/connector.h"
#include "cm/internal.h"
#include "core/context.h"
#include "core/failure_text.h"

/* ---- what the call itself says ---------------------------------------------------------------- */

/*
 * Where rdma_connect() itself asks the peer (iWARP) its errno is the peer's or the network's answer; every
 * other one is this side's own, and says nothing of the peer.
 */
void cm_connect_failed(struct cm *cm, struct cm_conn *conn, int error) {
    cm_assert_thread(cm);
    enum cm_hope hope = CM_HOPE_ELSEWHERE;
    sluice_reason reason = SLUICE_REASON_DEVICE_ERROR;
    const char *text = strerror(error);
    switch (error) {
    case ECONNREFUSED:
        reason = SLUICE_REASON_NO_LISTENER;
        text = "no listener there";
        break;
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ECONNRESET:
        hope = CM_HOPE_LATER;
        reason = SLUICE_REASON_UNREACHABLE;
        break;
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
    case ECONNABORTED:
        reason = SLUICE_REASON_UNREACHABLE;
        break;
    case EMFILE:
    case ENFILE:
        hope = CM_HOPE_LATER;
        break;
    case EADDRNOTAVAIL:
        hope = CM_HOPE_LATER;
        text = failure_text_no_port;
        break;
    case ENOMEM:
    case ENOBUFS:
    case EAGAIN:
        reason = SLUICE_REASON_NO_MEMORY;
        break;
    default:
        break;
    }
    cm_try_failed(cm, conn, hope, reason, (uint32_t)error, "connect: %s", text);
}

/* True for an event that ends a try with a cause that the software device found on its own side. */
static bool was_found_here(const struct cm_conn *conn, int status) {
    int error = (int)cm_code(status);
    if (error == EMFILE || error == ENFILE)
        return true;
    return status < 0 && conn->owner.state != CM_UP &&
           (error == EADDRNOTAVAIL || error == ENETUNREACH || error == EHOSTUNREACH ||
            error == ENETDOWN || error == ENOBUFS || error == ENOMEM);
}

/* A cause that the software device found on its own side says more than "the peer did not answer". */
bool cm_failed_here(struct cm *cm, struct cm_conn *conn, const struct cm_event *event) {
    cm_assert_thread(cm);
    int error = (int)cm_code(event->status);
    if (!was_found_here(conn, event->status))
        return false;
    cm_connect_failed(cm, conn, error);
    return true;
}

void cm_connect(struct cm *cm, struct cm_conn *conn, struct rdma_conn_param *param) {
    cm_assert_thread(cm);
    if (!cm->connector) {
        if (cm->node->fabric->connect(conn->owner.id, param) != 0)
            cm_connect_failed(cm, conn, errno);
        else
            conn->established = true;
        return;
    }
    conn->decided = false;
    conn->call = connector_connect(cm->connector, conn, param);
    if (!conn->call)
        cm_connect_failed(cm, conn, errno);
}

/* Both are known: that it returned, and what came of it. */
static void end_call(struct cm_conn *conn) {
    connector_end(conn->call);
    conn->call = NULL;
}

unsigned cm_take_calls(struct cm *cm) {
    cm_assert_thread(cm);
    unsigned count = 0;
    struct cm_conn *conn;
    int error;
    while (cm->connector && (conn = connector_answer(cm->connector, &error))) {
        count++;
        if (error == 0) {
            conn->used_up = true;
            if (conn->decided)
                end_call(conn);
            else
                conn->answered = true;
            continue;
        }
        end_call(conn);
        if (conn->owner.state == CM_CONNECTING)
            cm_connect_failed(cm, conn, error);
    }
    return count;
}

void cm_decided(struct cm_conn *conn) {
    conn->used_up |= conn->call != NULL;
    conn->decided = true;
    if (conn->call && conn->answered)
        end_call(conn);
    conn->answered = false;
}

/* ---- giving up -------------------------------------------------------------------------------- */

bool cm_leave(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    struct cm_connect *call = conn->call;
    conn->call = NULL;
    conn->answered = false;
    if (!call || !connector_leave(cm->connector, call))
        return false;
    conn->owner.id = NULL; /* from here on no object takes its events */
    conn->used_up = true;
    conn->left = call;
    conn->qp_left = true;
    return true;
}

void cm_give_left(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    struct ibv_qp *qp = conn->left_qp;
    if (qp)
        qp->qp_context = NULL; /* the session does not answer for it any more */
    connector_give(cm->connector, conn->left, qp);
    conn->left = NULL;
    conn->left_qp = NULL;
    conn->qp_left = false;
}
