/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp.c - a connection's socket: opened, given to its queue pair, closed; and what the connection manager's messages
 * make of it. tcp_dial.c has the dialer's connecting, tcp_offer.c the messages that arrive, tcp_port.c the listeners.
 *
 * Control lock for everything. No call waits.
 */
#include "soft/cm/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/cm/addr.h"
#include "soft/cm/fault.h"
#include "soft/cm/id.h"
#include "soft/cm/net.h"
#include "soft/cm/tcp_dial.h"
#include "soft/cm/tcp_offer.h"
#include "soft/cm/tcp_port.h"
#include "soft/cm/tcp_source.h"
#include "soft/fault/inject.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_end.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/verbs/qp_modify.h"

/* The terms of this device: check values, and the operations of RFC 7306 where the other end has them. */
struct iwarp_offer soft_cm_tcp_terms(unsigned ird, unsigned ord) {
    return (struct iwarp_offer){.crc = soft_cm_net_asks_crc(),
                                .peer_to_peer = true,
                                .extended = true,
                                .ird = (uint16_t)ird,
                                .ord = (uint16_t)ord,
                                .depth_max = SOFT_RD_ATOMIC};
}

uint8_t soft_cm_tcp_depth(unsigned said) {
    return (uint8_t)(said < SOFT_RD_ATOMIC ? said : SOFT_RD_ATOMIC);
}

/* ---- the socket ---------------------------------------------------------------------------------------------- */

int soft_cm_tcp_watch(struct soft_cm_tcp *tcp, uint32_t events) {
    if (tcp->watched)
        return -soft_watch_modify(&tcp->watch, events);
    int error = -soft_watch_add(&tcp->watch, events);
    tcp->watched = error == 0;
    return error;
}

void soft_cm_tcp_unwatch(struct soft_cm_tcp *tcp) {
    if (tcp->watched)
        soft_watch_remove(&tcp->watch);
    tcp->watched = false;
}

void soft_cm_tcp_shut(struct soft_cm_tcp *tcp, bool said) {
    int fd = tcp->watch.fd;
    soft_cm_tcp_unwatch(tcp);
    tcp->watch.fd = -1;
    if (fd >= 0 && said)
        soft_tcp_read_away(fd);
    else if (fd >= 0)
        close(fd);
}

/* The queue pair that has the socket; NULL: none, or not any more. */
static struct soft_qp *carrier(const struct soft_cm_tcp *tcp) {
    struct soft_qp *qp = tcp->carried ? soft_qp_find(tcp->qpn) : NULL;
    return qp && qp->tcp && qp->cm == tcp->id->number ? qp : NULL;
}

static int socket_of(const struct soft_cm_tcp *tcp) {
    const struct soft_qp *qp = carrier(tcp);
    if (!tcp->carried)
        return tcp->watch.fd;
    return qp && qp->tcp->socket ? qp->tcp->fd : -1;
}

/* For a connection whose socket holds no bytes yet: bytes that it does not take at once it will never take. */
bool soft_cm_tcp_write(struct soft_cm_tcp *tcp, const struct iwarp_handshake *handshake) {
    uint8_t bytes[IWARP_HANDSHAKE_MAX];
    size_t count = iwarp_handshake_put(bytes, handshake);
    ssize_t n;
    do
        n = send(socket_of(tcp), bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return count > 0 && n == (ssize_t)count;
}

/* The source's address as the route has it, and its port as TCP has it. */
int soft_cm_tcp_socket(struct soft_cm_tcp *tcp) {
    struct soft_cm_id *id = tcp->id;
    struct sockaddr_storage src = id->id.route.addr.src_storage;
    socklen_t bytes = sizeof src;
    tcp->any_port |= id->port.ephemeral;
    uint16_t port = tcp->any_port ? 0 : soft_cm_addr_port(soft_cm_id_src(id));
    int fd = -1, error = 0;
    if (soft_cm_addr_is_any((struct sockaddr *)&src))
        error = soft_cm_net_source(soft_cm_id_dst(id), &src);
    if (error != 0)
        return error;
    soft_cm_addr_set_port(&src, port);
    soft_cm_tcp_port_close(id); /* of one that was bound to a port of its own: it is needed now */
    error = soft_cm_tcp_source(&src, &fd);
    if (error == 0 && getsockname(fd, (struct sockaddr *)&src, &bytes) != 0) {
        error = errno;
        close(fd);
    }
    if (error != 0)
        return error;
    tcp->watch = (struct soft_watch){.fd = fd, .fn = soft_cm_tcp_on_event};
    error = -soft_watch_hold(&tcp->watch);
    tcp->watched = error == 0;
    if (error != 0) {
        soft_cm_tcp_shut(tcp, false);
        return error;
    }
    if (id->port.ephemeral)
        soft_cm_port_release(id);
    id->id.route.addr.src_storage = src;
    return 0;
}

int soft_cm_tcp_open(struct soft_cm_id *id) {
    soft_cm_tcp_forget(id);
    struct soft_cm_tcp *tcp = calloc(1, sizeof *tcp);
    if (!tcp)
        return ENOMEM;
    tcp->id = id;
    tcp->dialer = true;
    tcp->watch.fd = -1;
    int error = soft_cm_tcp_socket(tcp);
    if (error != 0) {
        free(tcp);
        return error;
    }
    id->conn.tcp = tcp;
    return 0;
}

void soft_cm_tcp_forget(struct soft_cm_id *id) {
    struct soft_cm_tcp *tcp = id->conn.tcp;
    if (!tcp)
        return;
    struct soft_qp *qp = carrier(tcp);
    id->conn.tcp = NULL;
    soft_timer_cancel(&tcp->timer);
    if (qp && qp->tcp->socket)
        soft_qp_to_error(qp);
    soft_cm_tcp_shut(tcp, tcp->stage >= SOFT_CM_TCP_ASKED);
    free(tcp);
}

/* ---- the listener's answer ----------------------------------------------------------------------------------- */

static void answer(struct soft_cm_tcp *tcp, const struct soft_cm_wire_rep *rep) {
    struct iwarp_offer own = soft_cm_tcp_terms(rep->responder_resources, rep->initiator_depth);
    own.depth_max = own.ird; /* the queue pair serves no more, whatever the dialer asks */
    struct iwarp_handshake reply;
    if (tcp->stage != SOFT_CM_TCP_ANSWERED ||
        iwarp_handshake_answer(&own, &tcp->request, &tcp->terms, &reply) != IWARP_VERDICT_ACCEPT)
        return;
    reply.data = rep->data;
    reply.bytes = sizeof rep->data;
    tcp->stage = soft_cm_tcp_write(tcp, &reply) ? SOFT_CM_TCP_AGREED : SOFT_CM_TCP_ENDED;
    tcp->heard = tcp->quiet = !tcp->terms.peer_to_peer;
    if (!tcp->carried && tcp->stage == SOFT_CM_TCP_AGREED)
        (void)soft_cm_tcp_watch(tcp, EPOLLIN | EPOLLRDHUP);
    if (tcp->stage == SOFT_CM_TCP_ENDED || tcp->quiet)
        soft_cm_tcp_offer_again(tcp);
    soft_cm_conn_wait(tcp->id);
}

static void refuse(struct soft_cm_tcp *tcp, const struct soft_cm_wire_rej *rej) {
    if (tcp->dialer || tcp->stage != SOFT_CM_TCP_ANSWERED)
        return; /* the end of the stream says it */
    struct iwarp_handshake no = iwarp_handshake_reject(&tcp->request, rej->data, sizeof rej->data);
    (void)soft_cm_tcp_write(tcp, &no);
}

/* ---- the end ------------------------------------------------------------------------------------------------- */

static void hang_up(struct soft_cm_tcp *tcp) {
    struct soft_qp *qp = carrier(tcp);
    if (qp && qp->tcp->socket) {
        soft_qp_to_error(qp);
        return; /* soft_cm_tcp_closed() comes */
    }
    if (!tcp->carried) {
        soft_cm_tcp_shut(tcp, true);
        tcp->stage = SOFT_CM_TCP_ENDED;
    }
    if (tcp->stage == SOFT_CM_TCP_ENDED)
        soft_cm_tcp_offer_again(tcp);
}

void soft_cm_tcp_closed(uint64_t number, bool answered) {
    struct soft_cm_id *id = soft_cm_id_find(number);
    struct soft_cm_tcp *tcp = id ? id->conn.tcp : NULL;
    if (!tcp || !tcp->carried)
        return;
    if (!answered && id->conn.state == SOFT_CM_CONN_DREQ_SENT)
        return; /* the timer reports that the peer does not answer */
    tcp->stage = SOFT_CM_TCP_ENDED;
    soft_cm_tcp_offer_again(tcp);
}

void soft_cm_tcp_heard(uint64_t number) {
    struct soft_cm_id *id = soft_cm_id_find(number);
    if (!id || !id->conn.tcp)
        return;
    id->conn.tcp->heard = true;
    soft_cm_tcp_offer_again(id->conn.tcp);
}

/* ---- messages ------------------------------------------------------------------------------------------------ */

/* For a dialer whose application has no QP here, or not yet. A READ must wait for the QP that gets its answer. */
static void send_first_frame(struct soft_cm_tcp *tcp) {
    struct iwarp_tx_message message = {.opcode = IWARP_WRITE};
    struct iwarp_tx *tx = malloc(sizeof *tx);
    uint64_t end;
    if (!tx)
        return; /* it goes before the first message */
    iwarp_tx_init(tx, tcp->terms.crc, IWARP_MULPDU_MIN);
    if (iwarp_tx_begin(tx, &message, &end) == 0 &&
        iwarp_stream_send(tcp->watch.fd, tx, IWARP_TX_BYTES) == 0)
        tcp->terms.rtr = IWARP_RTR_NONE;
    free(tx);
}

static void begin(struct soft_cm_tcp *tcp) {
    struct soft_qp *qp = carrier(tcp);
    tcp->begun = true;
    if (qp)
        soft_tcp_begin(qp);
    else if (tcp->watch.fd >= 0 && tcp->terms.rtr == IWARP_RTR_WRITE)
        send_first_frame(tcp);
}

static void send_message(struct soft_cm_tcp *tcp, enum soft_cm_wire_type type,
                         const union soft_cm_wire_any *msg) {
    switch (type) {
    case SOFT_CM_WIRE_REQ:
        soft_cm_tcp_dial(tcp, &msg->req);
        return;
    case SOFT_CM_WIRE_REP:
        answer(tcp, &msg->rep);
        return;
    case SOFT_CM_WIRE_RTU:
        begin(tcp);
        return;
    case SOFT_CM_WIRE_REJ:
        refuse(tcp, &msg->rej);
        return;
    case SOFT_CM_WIRE_DREQ:
        hang_up(tcp);
        return;
    case SOFT_CM_WIRE_MRA:
    case SOFT_CM_WIRE_DREP:
    case SOFT_CM_WIRE_SIDR_REQ:
    case SOFT_CM_WIRE_SIDR_REP:
    case SOFT_CM_WIRE_MPA_REQ:
    case SOFT_CM_WIRE_MPA_SEEN:
    case SOFT_CM_WIRE_MPA_REP:
    case SOFT_CM_WIRE_MPA_REJ:
    case SOFT_CM_WIRE_FIN:
    case SOFT_CM_WIRE_END:
        return; /* the stream's end says it, or TCP, or there is none over it */
    }
}

void soft_cm_tcp_outgoing(struct soft_cm_id *id, enum soft_cm_wire_type type,
                          const union soft_cm_wire_any *msg, size_t bytes) {
    if (soft_fault_active() &&
        soft_fault_message(&id->fault, (struct soft_fault_way){.tcp = id->number}, type, msg,
                           bytes)) {
        if (type == SOFT_CM_WIRE_RTU && id->conn.tcp) /* the peer does not ask for it again */
            soft_cm_tcp_offer_later(id->conn.tcp);
        return;
    }
    send_message(id->conn.tcp, type, msg);
}

void soft_cm_tcp_send(uint64_t number, uint32_t type, const void *msg) {
    struct soft_cm_id *id = soft_cm_id_find(number);
    if (id && id->conn.tcp)
        send_message(id->conn.tcp, (enum soft_cm_wire_type)type, msg);
}

/* ---- the queue pair ------------------------------------------------------------------------------------------ */

uint32_t soft_cm_tcp_qpn(const struct soft_cm_id *id) {
    return SOFT_TCP_QPN | ((uint32_t)id->number & ~SOFT_TCP_QPN);
}

int soft_cm_tcp_attach(struct soft_qp *qp, uint32_t qpn) {
    struct soft_cm_id *id = soft_cm_id_at(qpn & ~SOFT_TCP_QPN);
    struct soft_cm_tcp *tcp = id ? id->conn.tcp : NULL;
    if (!tcp || tcp->carried || tcp->watch.fd < 0 ||
        (tcp->stage != SOFT_CM_TCP_ANSWERED && tcp->stage != SOFT_CM_TCP_AGREED))
        return ENOENT;
    struct iwarp_terms terms = tcp->terms;
    if (!tcp->dialer) { /* the queue pair's attributes say what is less */
        terms.ird = SOFT_RD_ATOMIC;
        terms.ord = soft_cm_tcp_depth(tcp->request.ird);
    }
    soft_cm_tcp_unwatch(tcp);
    int error = soft_tcp_attach(qp, tcp->watch.fd, &terms);
    if (error != 0) {
        (void)soft_cm_tcp_watch(tcp, EPOLLRDHUP);
        return error;
    }
    tcp->watch.fd = -1;
    tcp->carried = true;
    tcp->qpn = qp->ibv.qp_num;
    qp->tcp->origin = soft_cm_tcp_origin(soft_cm_id_dst(id));
    soft_tcp_connects(qp, id->number, !tcp->dialer, tcp->dialer ? terms.rtr : IWARP_RTR_NONE);
    if (tcp->begun)
        soft_tcp_begin(qp);
    return 0;
}

void soft_cm_tcp_quiet(struct soft_cm_tcp *tcp) {
    struct soft_qp *qp = carrier(tcp);
    if (qp)
        soft_tcp_speak(qp);
}

void soft_cm_tcp_on_event(struct soft_watch *watch, uint32_t events) {
    struct soft_cm_tcp *tcp = caa_container_of(watch, struct soft_cm_tcp, watch);
    if (tcp->stage == SOFT_CM_TCP_CONNECTING)
        soft_cm_tcp_connected(tcp);
    else
        soft_cm_tcp_readable(tcp, events);
}
