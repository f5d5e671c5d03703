/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wire.c - cm messages: sent, received, checked and handed to the connection they name.
 *
 * Every outgoing message passes outgoing(), every incoming one soft_cm_on_message(): code that delays,
 * loses or forges messages goes there. Control lock held throughout.
 */
#include "soft/cm/wire.h"

#include <errno.h>
#include <string.h>

#include "soft/cm/addr.h"
#include "soft/cm/answer.h"
#include "soft/cm/conn.h"
#include "soft/cm/fault.h"
#include "soft/cm/id.h"
#include "soft/cm/listen.h"
#include "soft/cm/mpa.h"
#include "soft/cm/mpa_answer.h"
#include "soft/cm/tcp.h"
#include "soft/fault/inject.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/peer_queue.h"
#include "soft/object/device.h"
#include "soft/object/profile.h"

static_assert(SOFT_CM_WIRE_END - SOFT_CM_WIRE_REQ == SOFT_FAULT_MESSAGES, "counted by type");

void soft_cm_wire_addr_set(struct soft_cm_wire_addr *to, const struct sockaddr *from) {
    memset(to, 0, sizeof *to);
    to->port = soft_cm_addr_port(from);
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

bool soft_cm_wire_addr_get(struct sockaddr_storage *to, const struct soft_cm_wire_addr *from) {
    if (from->family != 4 && from->family != 6)
        return false;
    soft_cm_addr_any(to, from->family == 4 ? AF_INET : AF_INET6);
    if (from->family == 4) {
        memcpy(&((struct sockaddr_in *)to)->sin_addr, from->bytes, 4);
    } else {
        struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)to;
        sin6->sin6_scope_id = from->scope;
        memcpy(&sin6->sin6_addr, from->bytes, 16);
    }
    soft_cm_addr_set_port(to, from->port);
    return true;
}

/* ---- out ------------------------------------------------------------------------------------------ */

/*
 * id: the one that sends the message, or NULL. What is repeated, or asked for again by a repeated one, may stay behind where many
 * messages wait for the peer. False: it did.
 */
static bool outgoing(struct soft_cm_id *id, struct soft_peer *peer, enum soft_cm_wire_type type,
                     const void *msg, size_t bytes, bool repeated) {
    if (soft_fault_active() &&
        soft_fault_message(id ? &id->fault : NULL, (struct soft_fault_way){.peer = peer}, type, msg,
                           bytes))
        return true;
    if (repeated)
        return soft_peer_send_repeated(peer, type, msg, bytes) != -ENOBUFS;
    (void)soft_peer_send(peer, type, msg, bytes, -1);
    return true;
}

static bool send_message(struct soft_cm_id *id, enum soft_cm_wire_type type,
                         union soft_cm_wire_any *msg, size_t bytes, bool repeated) {
    soft_assert_locked();
    msg->head.to = id->conn.remote;
    msg->head.from = id->number;
    if (id->conn.tcp)
        soft_cm_tcp_outgoing(id, type, msg, bytes);
    else if (id->conn.peer)
        return outgoing(id, id->conn.peer, type, msg, bytes, repeated);
    return true;
}

void soft_cm_wire_send(struct soft_cm_id *id, enum soft_cm_wire_type type,
                       union soft_cm_wire_any *msg, size_t bytes) {
    soft_assert_locked();
    (void)send_message(id, type, msg, bytes, false);
}

bool soft_cm_wire_send_repeated(struct soft_cm_id *id, enum soft_cm_wire_type type,
                                union soft_cm_wire_any *msg, size_t bytes) {
    soft_assert_locked();
    return send_message(id, type, msg, bytes, true);
}

void soft_cm_wire_send_plain(struct soft_cm_id *id, enum soft_cm_wire_type type) {
    soft_assert_locked();
    union soft_cm_wire_any msg;
    bool asked_for_again =
        type == SOFT_CM_WIRE_MRA || type == SOFT_CM_WIRE_RTU || type == SOFT_CM_WIRE_DREP;
    (void)send_message(id, type, &msg, sizeof msg.head, asked_for_again);
}

void soft_cm_wire_refuse(struct soft_peer *peer, uint64_t to, enum soft_cm_wire_type request,
                         bool port_known) {
    if (request == SOFT_CM_WIRE_REQ) {
        struct soft_cm_wire_rej rej = {.head.to = to,
                                       .reason = port_known ? SOFT_CM_REJECT_CONSUMER
                                                            : SOFT_CM_REJECT_NO_LISTENER};
        (void)outgoing(NULL, peer, SOFT_CM_WIRE_REJ, &rej, sizeof rej, true);
    } else {
        struct soft_cm_wire_sidr_rep rep = {
            .head.to = to, .status = port_known ? SOFT_CM_SIDR_REJECTED : SOFT_CM_SIDR_UNSUPPORTED};
        (void)outgoing(NULL, peer, SOFT_CM_WIRE_SIDR_REP, &rep, sizeof rep, true);
    }
}

void soft_cm_wire_close(struct soft_peer *peer, uint64_t to, bool reset) {
    struct soft_cm_wire_mpa rej = {.head.to = to, .reset = reset};
    (void)outgoing(NULL, peer, SOFT_CM_WIRE_MPA_REJ, &rej, sizeof rej, false);
}

static void soft_cm_wire_confirm(struct soft_peer *peer, uint64_t to, uint64_t from) {
    struct soft_cm_wire_head head = {.to = to, .from = from};
    (void)outgoing(NULL, peer, SOFT_CM_WIRE_DREP, &head, sizeof head, true);
}

/* ---- in ------------------------------------------------------------------------------------------- */

static size_t size_of(uint32_t type) {
    switch (type) {
    case SOFT_CM_WIRE_REQ:
        return sizeof(struct soft_cm_wire_req);
    case SOFT_CM_WIRE_REP:
        return sizeof(struct soft_cm_wire_rep);
    case SOFT_CM_WIRE_REJ:
        return sizeof(struct soft_cm_wire_rej);
    case SOFT_CM_WIRE_SIDR_REQ:
        return sizeof(struct soft_cm_wire_sidr_req);
    case SOFT_CM_WIRE_SIDR_REP:
        return sizeof(struct soft_cm_wire_sidr_rep);
    case SOFT_CM_WIRE_MPA_REQ:
    case SOFT_CM_WIRE_MPA_REP:
    case SOFT_CM_WIRE_MPA_REJ:
        return sizeof(struct soft_cm_wire_mpa);
    case SOFT_CM_WIRE_MRA:
    case SOFT_CM_WIRE_RTU:
    case SOFT_CM_WIRE_DREQ:
    case SOFT_CM_WIRE_DREP:
    case SOFT_CM_WIRE_MPA_SEEN:
    case SOFT_CM_WIRE_FIN:
        return sizeof(struct soft_cm_wire_head);
    }
    return 0;
}

/*
 * The id a message means: its connection must be with this peer and, once known, with that number.
 * A peer that gives up before it learnt our number names only its own.
 */
static struct soft_cm_id *addressee(struct soft_peer *peer, uint32_t type,
                                    const struct soft_cm_wire_head *head) {
    bool ends = type == SOFT_CM_WIRE_REJ || type == SOFT_CM_WIRE_FIN;
    if (!head->to)
        return ends && head->from ? soft_cm_id_find_remote(peer, head->from) : NULL;
    struct soft_cm_id *id = soft_cm_id_find(head->to);
    if (!id || id->conn.peer != peer)
        return NULL;
    /* A refusal without an id at the other end: only for an id that has sent a request. */
    bool asked =
        id->conn.state == SOFT_CM_CONN_REQ_SENT || id->conn.state == SOFT_CM_CONN_SIDR_SENT;
    bool refusal =
        type == SOFT_CM_WIRE_REJ || type == SOFT_CM_WIRE_SIDR_REP || type == SOFT_CM_WIRE_MPA_REJ;
    bool anonymous = asked && !head->from && refusal;
    return !id->conn.remote || id->conn.remote == head->from || anonymous ? id : NULL;
}

/* The object that a fault plan counts it for: a request has no id here yet, its listener has. */
static struct soft_fault_id *counted_for(struct soft_peer *peer, uint32_t type,
                                         const union soft_cm_wire_any *msg) {
    bool request =
        type == SOFT_CM_WIRE_REQ || type == SOFT_CM_WIRE_SIDR_REQ || type == SOFT_CM_WIRE_MPA_REQ;
    struct soft_cm_id *id =
        request ? soft_cm_listen_for(type, msg) : addressee(peer, type, &msg->head);
    return id ? &id->fault : NULL;
}

void soft_cm_on_message(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes) {
    union soft_cm_wire_any msg; /* a private copy: data may be unaligned */
    if (!size_of(type) || bytes != size_of(type) ||
        (type >= SOFT_CM_WIRE_MPA_REQ) != soft_profile()->iwarp)
        return;
    memcpy(&msg, data, bytes);
    if (soft_fault_active() &&
        soft_fault_arrival(counted_for(peer, type, &msg), (struct soft_fault_way){.peer = peer},
                           type, &msg, bytes))
        return;
    soft_cm_wire_deliver(peer, type, &msg, bytes);
}

void soft_cm_wire_deliver(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes) {
    soft_assert_locked();
    union soft_cm_wire_any msg;
    if (atomic_load(&soft_device_gone) || atomic_load(&soft_port_down))
        return; /* nothing reaches a device that is not there */
    memcpy(&msg, data, bytes);
    if (type == SOFT_CM_WIRE_REQ || type == SOFT_CM_WIRE_SIDR_REQ) {
        soft_cm_listen_on_request(peer, type, &msg);
        return;
    }
    if (type == SOFT_CM_WIRE_MPA_REQ) {
        soft_cm_mpa_on_req(peer, &msg.mpa);
        return;
    }
    struct soft_cm_id *id = addressee(peer, type, &msg.head);
    if (!id) {
        /* A disconnect of something long forgotten is confirmed, so that the peer may finish. */
        if (type == SOFT_CM_WIRE_DREQ && msg.head.from)
            soft_cm_wire_confirm(peer, msg.head.from, msg.head.to);
        return;
    }
    switch ((enum soft_cm_wire_type)type) {
    case SOFT_CM_WIRE_MRA:
        soft_cm_conn_on_wait(id, &msg.head);
        break;
    case SOFT_CM_WIRE_REP:
        soft_cm_conn_on_rep(id, &msg.rep);
        break;
    case SOFT_CM_WIRE_RTU:
        soft_cm_conn_on_rtu(id);
        break;
    case SOFT_CM_WIRE_REJ:
        soft_cm_conn_on_rej(id, &msg.rej);
        break;
    case SOFT_CM_WIRE_DREQ:
        soft_cm_conn_on_dreq(id);
        break;
    case SOFT_CM_WIRE_DREP:
        soft_cm_conn_on_drep(id);
        break;
    case SOFT_CM_WIRE_SIDR_REP:
        soft_cm_conn_on_sidr_rep(id, &msg.sidr_rep);
        break;
    case SOFT_CM_WIRE_MPA_SEEN:
        soft_cm_mpa_on_seen(id, &msg.head);
        break;
    case SOFT_CM_WIRE_MPA_REP:
        soft_cm_mpa_on_rep(id, &msg.mpa);
        break;
    case SOFT_CM_WIRE_MPA_REJ:
        soft_cm_mpa_on_rej(id, &msg.mpa);
        break;
    case SOFT_CM_WIRE_FIN:
        soft_cm_mpa_on_fin(id);
        break;
    case SOFT_CM_WIRE_REQ:
    case SOFT_CM_WIRE_SIDR_REQ:
    case SOFT_CM_WIRE_MPA_REQ:
    case SOFT_CM_WIRE_END:
        break; /* above, or none */
    }
}
