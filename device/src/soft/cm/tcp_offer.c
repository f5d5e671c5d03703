/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp_offer.c - what arrives on a connection's socket, as messages to the states of the connection.
 *
 * Control lock held, on the engine thread. The bytes come from a peer: the parser has bounds, and what it took is
 * checked before any other code gets it.
 */
#include "soft/cm/tcp_offer.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "soft/cm/answer.h"
#include "soft/cm/fault.h"
#include "soft/cm/id.h"
#include "soft/cm/tcp.h"
#include "soft/cm/tcp_dial.h"
#include "soft/cm/tcp_port.h"
#include "soft/cm/timers.h"
#include "soft/fault/inject.h"
#include "soft/object/device.h"

/* After a reply to a dialer that sends no empty frame: Soft-iWARP misreads frames in the same segment as the reply. */
#define QUIET_NS 50000000u

/* ---- reading ------------------------------------------------------------------------------------------------- */

static void ended(struct soft_cm_tcp *tcp) {
    if (tcp->port) {
        soft_cm_tcp_port_drop(tcp);
        return;
    }
    soft_cm_tcp_shut(tcp, tcp->stage >= SOFT_CM_TCP_ASKED);
    tcp->stage = SOFT_CM_TCP_ENDED;
    soft_cm_tcp_offer_again(tcp);
}

static void judge_reply(struct soft_cm_tcp *tcp, const struct iwarp_handshake *reply) {
    enum iwarp_refusal refusal;
    tcp->reply = *reply;
    switch (iwarp_handshake_conclude(&tcp->offer, &tcp->request, reply, &tcp->terms, &refusal)) {
    case IWARP_VERDICT_ACCEPT:
        tcp->stage = SOFT_CM_TCP_ANSWERED;
        (void)soft_cm_tcp_watch(tcp, EPOLLRDHUP);
        soft_cm_tcp_offer(tcp);
        return;
    case IWARP_VERDICT_REJECT:
        break;
    case IWARP_VERDICT_MARKERS:
    case IWARP_VERDICT_FORM:
    case IWARP_VERDICT_TERMINATE:
        tcp->error = EPROTO;
        break;
    }
    ended(tcp);
}

/* A dialer has to wait for the reply (RFC 5044, 7.1): what comes right behind its request was not made for this listener. */
static bool says_more(const struct soft_cm_tcp *tcp) {
    uint8_t byte;
    return recv(tcp->watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void judge(struct soft_cm_tcp *tcp, enum iwarp_parsed parsed,
                  const struct iwarp_handshake *handshake) {
    if (parsed == IWARP_PARSED_BAD || (!tcp->dialer && says_more(tcp))) {
        tcp->error = EPROTO;
        ended(tcp);
    } else if (tcp->dialer) {
        judge_reply(tcp, handshake);
    } else {
        soft_cm_tcp_port_asked(tcp, handshake);
    }
}

/* No byte more than the handshake has: what follows is the queue pair's. */
static void read_handshake(struct soft_cm_tcp *tcp) {
    struct iwarp_handshake handshake;
    enum iwarp_parsed parsed = IWARP_PARSED_MORE;
    while (parsed == IWARP_PARSED_MORE) {
        uint8_t bytes[IWARP_HANDSHAKE_BEHIND];
        size_t wants = iwarp_handshake_wants(&tcp->parser), taken;
        wants = wants < sizeof bytes ? wants : sizeof bytes;
        ssize_t n = recv(tcp->watch.fd, bytes, wants, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (n <= 0) {
            if (!soft_cm_tcp_ask_anew(tcp))
                ended(tcp);
            return;
        }
        tcp->waited = false; /* it was not given up: this is an answer */
        parsed = iwarp_handshake_take(&tcp->parser, bytes, (size_t)n, &taken, &handshake);
    }
    judge(tcp, parsed, &handshake);
}

/* The dialer's first frame is here, and no queue pair to take it: the bytes stay in the socket. */
static void look(struct soft_cm_tcp *tcp) {
    if (!says_more(tcp))
        return;
    tcp->heard = true;
    (void)soft_cm_tcp_watch(tcp, EPOLLRDHUP);
    soft_cm_tcp_offer_again(tcp);
}

void soft_cm_tcp_readable(struct soft_cm_tcp *tcp, uint32_t events) {
    bool over = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    switch (tcp->stage) {
    case SOFT_CM_TCP_ASKED:
        read_handshake(tcp);
        return;
    case SOFT_CM_TCP_AGREED:
        look(tcp);
        if (over)
            ended(tcp);
        return;
    case SOFT_CM_TCP_ANSWERED: /* an event of before may come late: that there are bytes to read */
        if (over)
            ended(tcp);
        return;
    case SOFT_CM_TCP_IDLE:
    case SOFT_CM_TCP_REACHED: /* the peer waits for a request no longer: that connects anew */
        soft_cm_tcp_shut(tcp, false);
        tcp->stage = SOFT_CM_TCP_IDLE;
        return;
    case SOFT_CM_TCP_CONNECTING:
    case SOFT_CM_TCP_ENDED:
        soft_cm_tcp_unwatch(tcp);
        return;
    }
}

/* ---- messages ------------------------------------------------------------------------------------------------ */

static void deliver(struct soft_cm_id *id, uint32_t type, const union soft_cm_wire_any *msg) {
    switch (type) {
    case SOFT_CM_WIRE_REP:
        soft_cm_conn_on_rep(id, &msg->rep);
        return;
    case SOFT_CM_WIRE_RTU:
        soft_cm_conn_on_rtu(id);
        return;
    case SOFT_CM_WIRE_REJ:
        soft_cm_conn_on_rej(id, &msg->rej);
        return;
    case SOFT_CM_WIRE_DREQ:
        soft_cm_conn_on_dreq(id);
        return;
    case SOFT_CM_WIRE_DREP:
        soft_cm_conn_on_drep(id);
        return;
    default:
        return; /* nothing else is made of what arrives */
    }
}

void soft_cm_tcp_deliver(uint64_t number, uint32_t type, const void *data, size_t bytes) {
    union soft_cm_wire_any msg;
    if (atomic_load(&soft_device_gone) || atomic_load(&soft_port_down))
        return; /* it is offered again */
    memcpy(&msg, data, bytes);
    if (type == SOFT_CM_WIRE_REQ) {
        struct soft_cm_tcp *tcp = soft_cm_tcp_port_find(number);
        if (tcp)
            soft_cm_tcp_port_take(tcp, &msg.req);
        return;
    }
    struct soft_cm_id *id = soft_cm_id_find(number);
    if (id && id->conn.tcp)
        deliver(id, type, &msg);
}

void soft_cm_tcp_arrived(struct soft_cm_tcp *tcp, struct soft_fault_id *counted, uint32_t type,
                         union soft_cm_wire_any *msg, size_t bytes) {
    uint64_t number = tcp->id ? tcp->id->number : tcp->serial;
    msg->head.to = number;
    if (soft_fault_active() &&
        soft_fault_arrival(counted, (struct soft_fault_way){.tcp = number}, type, msg, bytes))
        return;
    soft_cm_tcp_deliver(number, type, msg, bytes);
}

static void offer_reply(struct soft_cm_tcp *tcp) {
    union soft_cm_wire_any msg = {.rep = {.head.from = 1,
                                          .qp_num = soft_cm_tcp_qpn(tcp->id),
                                          .responder_resources = soft_cm_tcp_depth(tcp->reply.ird),
                                          .initiator_depth = soft_cm_tcp_depth(tcp->reply.ord),
                                          .rnr_retry_count = 7}};
    size_t n = tcp->reply.bytes < sizeof msg.rep.data ? tcp->reply.bytes : sizeof msg.rep.data;
    memcpy(msg.rep.data, tcp->reply.data, n);
    soft_cm_tcp_arrived(tcp, &tcp->id->fault, SOFT_CM_WIRE_REP, &msg, sizeof msg.rep);
}

/* For want of a listener; by its stack, which had no room or no patience; or by its application. */
static uint32_t reason_of_refusal(const struct soft_cm_tcp *tcp) {
    if (tcp->refused)
        return SOFT_CM_REJECT_NO_LISTENER;
    if (tcp->id->conn.state == SOFT_CM_CONN_REQ_SENT && !tcp->reply.reject)
        return SOFT_CM_REJECT_TIMEOUT;
    return SOFT_CM_REJECT_CONSUMER;
}

static void offer_refusal(struct soft_cm_tcp *tcp) {
    union soft_cm_wire_any msg = {
        .rej = {.head.from = !tcp->refused, .reason = reason_of_refusal(tcp)}};
    size_t n = tcp->reply.reject ? tcp->reply.bytes : 0;
    n = n < sizeof msg.rej.data ? n : sizeof msg.rej.data;
    if (n > 0)
        memcpy(msg.rej.data, tcp->reply.data, n);
    if (tcp->refused)
        tcp->stage = SOFT_CM_TCP_IDLE; /* it may be asked for again */
    soft_cm_tcp_arrived(tcp, &tcp->id->fault, SOFT_CM_WIRE_REJ, &msg, sizeof msg.rej);
}

static void offer_plain(struct soft_cm_tcp *tcp, enum soft_cm_wire_type type) {
    union soft_cm_wire_any msg = {.head.from = 1};
    soft_cm_tcp_arrived(tcp, &tcp->id->fault, type, &msg, sizeof msg.head);
}

/* The stream is over before there was an answer. */
static void offer_failure(struct soft_cm_tcp *tcp) {
    struct soft_cm_id *id = tcp->id;
    int error = tcp->error;
    if (error == 0 || error == ECONNRESET || tcp->refused)
        offer_refusal(tcp);
    else if (error == EPROTO)
        soft_cm_conn_fault(id, RDMA_CM_EVENT_CONNECT_ERROR, -error);
    else
        soft_cm_conn_fault(id, RDMA_CM_EVENT_UNREACHABLE, -error);
}

/* False: there is nothing to be heard. */
static bool offer_once(struct soft_cm_tcp *tcp) {
    bool over = tcp->stage == SOFT_CM_TCP_ENDED;
    switch (tcp->id->conn.state) {
    case SOFT_CM_CONN_REQ_SENT:
        if (tcp->stage == SOFT_CM_TCP_ANSWERED)
            offer_reply(tcp);
        else if (over)
            offer_failure(tcp);
        return over || tcp->stage == SOFT_CM_TCP_ANSWERED;
    case SOFT_CM_CONN_REP_SENT:
        if (tcp->heard)
            offer_plain(tcp, SOFT_CM_WIRE_RTU);
        else if (over)
            offer_refusal(tcp);
        return over || tcp->heard;
    case SOFT_CM_CONN_REQ_RCVD:
    case SOFT_CM_CONN_REP_RCVD:
        if (over)
            offer_refusal(tcp);
        return over;
    case SOFT_CM_CONN_UP:
        if (over)
            offer_plain(tcp, SOFT_CM_WIRE_DREQ);
        else if (tcp->dialer && !tcp->begun)
            soft_cm_wire_send_plain(tcp->id, SOFT_CM_WIRE_RTU); /* a fault plan lost it */
        return over;
    case SOFT_CM_CONN_DREQ_SENT:
        if (over)
            offer_plain(tcp, SOFT_CM_WIRE_DREP);
        return over;
    case SOFT_CM_CONN_NONE:
    case SOFT_CM_CONN_DREQ_RCVD:
    case SOFT_CM_CONN_TIMEWAIT:
    case SOFT_CM_CONN_SIDR_SENT:
    case SOFT_CM_CONN_SIDR_RCVD:
    case SOFT_CM_CONN_SIDR_DONE:
    case SOFT_CM_CONN_OVER:
        return false;
    }
    return false;
}

void soft_cm_tcp_offer(struct soft_cm_tcp *tcp) {
    uint64_t number = tcp->id->number;
    enum soft_cm_conn_state before = tcp->id->conn.state;
    while (offer_once(tcp)) {
        struct soft_cm_id *id = soft_cm_id_find(number);
        if (!id || id->conn.tcp != tcp)
            return; /* that was the end of it */
        if (id->conn.state == before) {
            soft_cm_tcp_offer_later(tcp);
            return;
        }
        before = id->conn.state;
    }
}

/* ---- the timer ----------------------------------------------------------------------------------------------- */

uint64_t soft_cm_tcp_again_ns(void) {
    return (uint64_t)soft_cm_timers()->answer_ms * 1000000 / soft_cm_timers()->tries;
}

void soft_cm_tcp_on_timer(struct soft_timer *timer) {
    struct soft_cm_tcp *tcp = caa_container_of(timer, struct soft_cm_tcp, timer);
    if (!tcp->id) {
        soft_cm_tcp_port_due(tcp);
        return;
    }
    if (tcp->reaching) {
        soft_cm_tcp_unreached(tcp, ETIMEDOUT);
        return;
    }
    if (tcp->quiet && tcp->heard && tcp->quiet_ns == 0) {
        tcp->quiet_ns = soft_now_ns() + QUIET_NS;
        soft_timer_arm(&tcp->timer, tcp->quiet_ns, soft_cm_tcp_on_timer);
    } else if (tcp->quiet && soft_now_ns() >= tcp->quiet_ns) {
        tcp->quiet = false;
        soft_cm_tcp_quiet(tcp);
    }
    soft_cm_tcp_offer(tcp);
}

void soft_cm_tcp_offer_later(struct soft_cm_tcp *tcp) {
    soft_timer_arm(&tcp->timer, soft_now_ns() + soft_cm_tcp_again_ns(), soft_cm_tcp_on_timer);
}

void soft_cm_tcp_offer_again(struct soft_cm_tcp *tcp) {
    soft_timer_arm(&tcp->timer, soft_now_ns(), soft_cm_tcp_on_timer);
}
