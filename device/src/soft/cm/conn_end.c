/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* conn_end.c - what the peer is told when this side ends a connection. Control lock held throughout. */
#include "soft/cm/conn_end.h"

#include <string.h>

#include "soft/cm/conn.h"
#include "soft/cm/id.h"
#include "soft/cm/mpa.h"
#include "soft/object/profile.h"
#include "soft/rc/requester.h"

void soft_cm_conn_reject(struct soft_cm_id *id, enum soft_cm_reject reason, const void *data,
                         uint8_t len) {
    union soft_cm_wire_any msg = {.rej.reason = (uint32_t)reason};
    if (len)
        memcpy(msg.rej.data, data, len);
    soft_cm_wire_send(id, SOFT_CM_WIRE_REJ, &msg, sizeof msg.rej);
    soft_cm_conn_over(id);
}

void soft_cm_conn_sidr_reply(struct soft_cm_id *id, enum soft_cm_sidr status, const void *data,
                             uint8_t len) {
    struct soft_cm_conn *conn = &id->conn;
    memset(&conn->request, 0, sizeof conn->request);
    conn->request.sidr_rep.status = (uint32_t)status;
    conn->request.sidr_rep.qp_num = conn->local_qpn;
    conn->request.sidr_rep.qkey = conn->qkey;
    if (len)
        memcpy(conn->request.sidr_rep.data, data, len);
    conn->request_type = SOFT_CM_WIRE_SIDR_REP;
    conn->request_bytes = sizeof conn->request.sidr_rep;
    soft_cm_conn_enter(conn, SOFT_CM_CONN_SIDR_DONE); /* stays there to answer a repeated request */
    soft_cm_wire_send(id, SOFT_CM_WIRE_SIDR_REP, &conn->request, conn->request_bytes);
}

/*
 * The peer gives up its queue pair when it learns that the connection ends. Messages taken from it by then
 * are acknowledged here, even if a poller that has not come again has not acknowledged them yet.
 */
void soft_cm_conn_acknowledge(const struct soft_cm_id *id) {
    soft_qp_acknowledge(id->conn.local_qpn);
}

/* The request is answered in vain from now on. If this stays behind, the listener finds out when it accepts. */
static void withdraw(struct soft_cm_id *id) {
    union soft_cm_wire_any msg = {.rej.reason = SOFT_CM_REJECT_TIMEOUT};
    (void)soft_cm_wire_send_repeated(id, SOFT_CM_WIRE_REJ, &msg, sizeof msg.rej);
}

void soft_cm_conn_kill(struct soft_cm_id *id) {
    if (soft_profile()->iwarp) {
        soft_cm_mpa_kill(id);
        return;
    }
    switch (id->conn.state) {
    case SOFT_CM_CONN_REQ_SENT:
        withdraw(id);
        break;
    case SOFT_CM_CONN_REQ_RCVD:
    case SOFT_CM_CONN_REP_SENT:
    case SOFT_CM_CONN_REP_RCVD:
        soft_cm_conn_reject(id, SOFT_CM_REJECT_CONSUMER, NULL, 0);
        break;
    case SOFT_CM_CONN_UP:
        soft_cm_conn_acknowledge(id);
        soft_cm_wire_send_plain(id, SOFT_CM_WIRE_DREQ);
        break;
    case SOFT_CM_CONN_DREQ_RCVD:
        soft_cm_wire_send_plain(id, SOFT_CM_WIRE_DREP);
        break;
    case SOFT_CM_CONN_SIDR_RCVD:
        soft_cm_conn_sidr_reply(id, SOFT_CM_SIDR_REJECTED, NULL, 0);
        break;
    case SOFT_CM_CONN_NONE:
    case SOFT_CM_CONN_DREQ_SENT:
    case SOFT_CM_CONN_TIMEWAIT:
    case SOFT_CM_CONN_SIDR_SENT:
    case SOFT_CM_CONN_SIDR_DONE:
    case SOFT_CM_CONN_OVER:
        break; /* the peer knows, or will find out by asking */
    }
    soft_cm_conn_over(id);
}
