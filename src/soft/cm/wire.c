/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wire.c - cm messages: sent, received, checked and handed to the connection they name.
 *
 * Every outgoing message passes outgoing(), every incoming one soft_cm_on_message(): what delays,
 * loses or forges messages goes there. Control lock held throughout.
 */
#include "soft/cm/wire.h"

#include <string.h>

#include "soft/cm/addr.h"
#include "soft/cm/conn.h"
#include "soft/cm/id.h"
#include "soft/cm/listen.h"
#include "soft/cm/mpa.h"
#include "soft/verbs/device_state.h"
#include "soft/verbs/profile.h"

static_assert(CM_WIRE_END - CM_WIRE_REQ == SOFT_FAULT_MESSAGES, "counted by type");

void cm_wire_addr_set(struct cm_wire_addr *to, const struct sockaddr *from) {
    memset(to, 0, sizeof *to);
    to->port = cm_addr_port(from);
    if (from->sa_family == AF_INET) {
        to->family = 4;
        memcpy(to->bytes, &((const struct sockaddr_in *)from)->sin_addr, 4);
    } else {
        const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)from;
        to->family = 6;
        to->scope = sin6->sin6_scope_id;
        memcpy(to->bytes, &sin6->sin6_addr, 16);
    }
}

bool cm_wire_addr_get(struct sockaddr_storage *to, const struct cm_wire_addr *from) {
    if (from->family != 4 && from->family != 6)
        return false;
    cm_addr_any(to, from->family == 4 ? AF_INET : AF_INET6);
    if (from->family == 4) {
        memcpy(&((struct sockaddr_in *)to)->sin_addr, from->bytes, 4);
    } else {
        struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)to;
        sin6->sin6_scope_id = from->scope;
        memcpy(&sin6->sin6_addr, from->bytes, 16);
    }
    cm_addr_set_port(to, from->port);
    return true;
}

/* ---- out ------------------------------------------------------------------------------------------ */

/* id: whose message it is, or NULL. */
static void outgoing(struct cm_id *id, struct soft_peer *peer, enum cm_wire_type type,
                     const void *msg, size_t bytes) {
    if (soft_fault_active() && soft_fault_message(id ? &id->fault : NULL, peer, type, msg, bytes))
        return;
    (void)soft_peer_send(peer, type, msg, bytes, -1);
}

void cm_wire_send(struct cm_id *id, enum cm_wire_type type, union cm_wire_any *msg, size_t bytes) {
    if (!id->conn.peer)
        return;
    msg->head.to = id->conn.remote;
    msg->head.from = id->number;
    outgoing(id, id->conn.peer, type, msg, bytes);
}

void cm_wire_send_plain(struct cm_id *id, enum cm_wire_type type) {
    union cm_wire_any msg;
    cm_wire_send(id, type, &msg, sizeof msg.head);
}

void cm_wire_refuse(struct soft_peer *peer, uint64_t to, enum cm_wire_type request,
                    bool port_known) {
    if (request == CM_WIRE_REQ) {
        struct cm_wire_rej rej = {
            .head.to = to, .reason = port_known ? CM_REJECT_CONSUMER : CM_REJECT_NO_LISTENER};
        outgoing(NULL, peer, CM_WIRE_REJ, &rej, sizeof rej);
    } else {
        struct cm_wire_sidr_rep rep = {
            .head.to = to, .status = port_known ? CM_SIDR_REJECTED : CM_SIDR_UNSUPPORTED};
        outgoing(NULL, peer, CM_WIRE_SIDR_REP, &rep, sizeof rep);
    }
}

void cm_wire_close(struct soft_peer *peer, uint64_t to, bool reset) {
    struct cm_wire_mpa rej = {.head.to = to, .reset = reset};
    outgoing(NULL, peer, CM_WIRE_MPA_REJ, &rej, sizeof rej);
}

void cm_wire_confirm(struct soft_peer *peer, uint64_t to, uint64_t from) {
    struct cm_wire_head head = {.to = to, .from = from};
    outgoing(NULL, peer, CM_WIRE_DREP, &head, sizeof head);
}

/* ---- in ------------------------------------------------------------------------------------------- */

static size_t size_of(uint32_t type) {
    switch (type) {
    case CM_WIRE_REQ:
        return sizeof(struct cm_wire_req);
    case CM_WIRE_REP:
        return sizeof(struct cm_wire_rep);
    case CM_WIRE_REJ:
        return sizeof(struct cm_wire_rej);
    case CM_WIRE_SIDR_REQ:
        return sizeof(struct cm_wire_sidr_req);
    case CM_WIRE_SIDR_REP:
        return sizeof(struct cm_wire_sidr_rep);
    case CM_WIRE_MPA_REQ:
    case CM_WIRE_MPA_REP:
    case CM_WIRE_MPA_REJ:
        return sizeof(struct cm_wire_mpa);
    case CM_WIRE_MRA:
    case CM_WIRE_RTU:
    case CM_WIRE_DREQ:
    case CM_WIRE_DREP:
    case CM_WIRE_MPA_SEEN:
    case CM_WIRE_FIN:
        return sizeof(struct cm_wire_head);
    }
    return 0;
}

/*
 * The id a message means: its connection must be with this peer and, once known, with that number.
 * Whoever gives up before it learnt our number names only its own.
 */
static struct cm_id *addressee(struct soft_peer *peer, uint32_t type,
                               const struct cm_wire_head *head) {
    bool ends = type == CM_WIRE_REJ || type == CM_WIRE_FIN;
    if (!head->to)
        return ends && head->from ? cm_id_find_remote(peer, head->from) : NULL;
    struct cm_id *id = cm_id_find(head->to);
    if (!id || id->conn.peer != peer)
        return NULL;
    /* A refusal without an id at the other end: only to one who has asked. */
    bool asked = id->conn.state == CM_CONN_REQ_SENT || id->conn.state == CM_CONN_SIDR_SENT;
    bool refusal = type == CM_WIRE_REJ || type == CM_WIRE_SIDR_REP || type == CM_WIRE_MPA_REJ;
    bool anonymous = asked && !head->from && refusal;
    return !id->conn.remote || id->conn.remote == head->from || anonymous ? id : NULL;
}

/* Whom a fault plan counts it for: a request has no id here yet, its listener has. */
static struct soft_fault_id *counted_for(struct soft_peer *peer, uint32_t type,
                                         const union cm_wire_any *msg) {
    bool request = type == CM_WIRE_REQ || type == CM_WIRE_SIDR_REQ || type == CM_WIRE_MPA_REQ;
    struct cm_id *id = request ? cm_listen_for(type, msg) : addressee(peer, type, &msg->head);
    return id ? &id->fault : NULL;
}

void soft_cm_on_message(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes) {
    union cm_wire_any msg; /* a private copy: data may be unaligned */
    if (!size_of(type) || bytes != size_of(type) ||
        (type >= CM_WIRE_MPA_REQ) != soft_profile()->iwarp)
        return;
    memcpy(&msg, data, bytes);
    if (soft_fault_active() &&
        soft_fault_arrival(counted_for(peer, type, &msg), peer, type, &msg, bytes))
        return;
    cm_wire_deliver(peer, type, &msg, bytes);
}

void cm_wire_deliver(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes) {
    union cm_wire_any msg;
    if (atomic_load(&soft_device_gone) || atomic_load(&soft_port_down))
        return; /* nothing reaches a device that is not there */
    memcpy(&msg, data, bytes);
    if (type == CM_WIRE_REQ || type == CM_WIRE_SIDR_REQ) {
        cm_listen_on_request(peer, type, &msg);
        return;
    }
    if (type == CM_WIRE_MPA_REQ) {
        cm_mpa_on_req(peer, &msg.mpa);
        return;
    }
    struct cm_id *id = addressee(peer, type, &msg.head);
    if (!id) {
        /* A disconnect of something long forgotten is confirmed, so that the peer may finish. */
        if (type == CM_WIRE_DREQ && msg.head.from)
            cm_wire_confirm(peer, msg.head.from, msg.head.to);
        return;
    }
    switch ((enum cm_wire_type)type) {
    case CM_WIRE_MRA:
        cm_conn_on_wait(id, &msg.head);
        break;
    case CM_WIRE_REP:
        cm_conn_on_rep(id, &msg.rep);
        break;
    case CM_WIRE_RTU:
        cm_conn_on_rtu(id);
        break;
    case CM_WIRE_REJ:
        cm_conn_on_rej(id, &msg.rej);
        break;
    case CM_WIRE_DREQ:
        cm_conn_on_dreq(id);
        break;
    case CM_WIRE_DREP:
        cm_conn_on_drep(id);
        break;
    case CM_WIRE_SIDR_REP:
        cm_conn_on_sidr_rep(id, &msg.sidr_rep);
        break;
    case CM_WIRE_MPA_SEEN:
        cm_mpa_on_seen(id, &msg.head);
        break;
    case CM_WIRE_MPA_REP:
        cm_mpa_on_rep(id, &msg.mpa);
        break;
    case CM_WIRE_MPA_REJ:
        cm_mpa_on_rej(id, &msg.mpa);
        break;
    case CM_WIRE_FIN:
        cm_mpa_on_fin(id);
        break;
    case CM_WIRE_REQ:
    case CM_WIRE_SIDR_REQ:
    case CM_WIRE_MPA_REQ:
    case CM_WIRE_END:
        break; /* above, or none */
    }
}
