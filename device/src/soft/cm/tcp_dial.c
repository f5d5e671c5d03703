/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp_dial.c - a dialer's connection until its request is sent: TCP connects with the request at hand, or ahead of it,
 * for a dial that has other addresses and sends its request to the first whose host answers (soft_cm_reach()).
 *
 * Control lock for everything. No call waits.
 */
#include "soft/cm/tcp_dial.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "soft/cm/addr.h"
#include "soft/cm/event.h"
#include "soft/cm/id.h"
#include "soft/cm/resolve.h"
#include "soft/cm/tcp.h"
#include "soft/cm/tcp_offer.h"
#include "soft/cm/timers.h"
#include "soft/iwarp/qp_tcp.h"

void soft_cm_tcp_unreached(struct soft_cm_tcp *tcp, int error) {
    soft_timer_cancel(&tcp->timer);
    soft_cm_tcp_shut(tcp, false);
    tcp->reaching = false;
    tcp->stage = SOFT_CM_TCP_IDLE;
    soft_cm_event_raise(tcp->id, RDMA_CM_EVENT_ROUTE_ERROR, -error);
}

static void failed(struct soft_cm_tcp *tcp, int error) {
    if (tcp->reaching) {
        soft_cm_tcp_unreached(tcp, error);
        return;
    }
    soft_cm_tcp_shut(tcp, false);
    tcp->stage = SOFT_CM_TCP_ENDED;
    tcp->error = error;
    tcp->refused = error == ECONNREFUSED;
    soft_cm_tcp_offer_again(tcp);
}

/* TCP lets a socket connect to itself; but there is no listener there, as the port is taken. */
static bool is_itself(struct soft_cm_id *id) {
    const struct sockaddr *src = soft_cm_id_src(id), *dst = soft_cm_id_dst(id);
    return soft_cm_addr_port(src) == soft_cm_addr_port(dst) && soft_cm_addr_equal(src, dst);
}

/* Within a host it is when connect() returns. So the request is there when the listener takes the connection. */
static bool is_connected(int fd) {
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    return poll(&ready, 1, 0) == 1;
}

static void connect_tcp(struct soft_cm_tcp *tcp) {
    tcp->error = 0;
    tcp->refused = false;
    int error = tcp->watch.fd < 0 ? soft_cm_tcp_socket(tcp) : 0;
    if (error == 0)
        error = iwarp_stream_prepare(tcp->watch.fd);
    if (error == 0 && is_itself(tcp->id))
        error = ECONNREFUSED;
    const struct sockaddr *dst = soft_cm_id_dst(tcp->id);
    if (error == 0 && connect(tcp->watch.fd, dst, soft_cm_addr_bytes(dst)) != 0 &&
        errno != EINPROGRESS)
        error = errno;
    tcp->stage = SOFT_CM_TCP_CONNECTING;
    if (error == 0 && !tcp->reaching && is_connected(tcp->watch.fd)) {
        soft_cm_tcp_connected(tcp);
        return;
    }
    if (error == 0)
        error = soft_cm_tcp_watch(tcp, EPOLLOUT);
    if (error != 0)
        failed(tcp, error);
}

int soft_cm_tcp_reach(struct soft_cm_id *id, int timeout_ms) {
    struct soft_cm_tcp *tcp = id->conn.tcp;
    uint64_t ms = soft_cm_timers()->answer_ms;
    if (tcp->stage != SOFT_CM_TCP_IDLE)
        return EINVAL;
    tcp->reaching = true;
    if ((uint64_t)timeout_ms < ms)
        ms = (uint64_t)timeout_ms;
    soft_timer_arm(&tcp->timer, soft_now_ns() + ms * 1000000, soft_cm_tcp_on_timer);
    connect_tcp(tcp);
    return 0;
}

/* The request waits for connect(); of what the socket says meanwhile, only the end is heard. */
static void reached(struct soft_cm_tcp *tcp) {
    int error = soft_cm_tcp_watch(tcp, EPOLLRDHUP);
    if (error == 0) {
        tcp->stage = SOFT_CM_TCP_REACHED;
        error = soft_cm_route_found(tcp->id);
    }
    if (error != 0) {
        soft_cm_tcp_unreached(tcp, error);
        return;
    }
    tcp->reaching = false;
    soft_timer_cancel(&tcp->timer);
}

static void ask(struct soft_cm_tcp *tcp) {
    int error = soft_cm_tcp_watch(tcp, EPOLLIN);
    if (error == 0 && !soft_cm_tcp_write(tcp, &tcp->request))
        error = ECONNRESET;
    if (error == ECONNRESET && soft_cm_tcp_ask_anew(tcp))
        return;
    if (error != 0) {
        failed(tcp, error);
        return;
    }
    tcp->stage = SOFT_CM_TCP_ASKED;
    iwarp_handshake_expect(&tcp->parser, true);
    soft_cm_conn_wait(tcp->id);
}

bool soft_cm_tcp_ask_anew(struct soft_cm_tcp *tcp) {
    if (!tcp->waited)
        return false;
    tcp->waited = false;
    soft_cm_tcp_shut(tcp, false);
    connect_tcp(tcp);
    return true;
}

void soft_cm_tcp_connected(struct soft_cm_tcp *tcp) {
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(tcp->watch.fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    if (error != 0)
        failed(tcp, error);
    else if (tcp->reaching)
        reached(tcp);
    else
        ask(tcp);
}

void soft_cm_tcp_dial(struct soft_cm_tcp *tcp, const struct soft_cm_wire_req *req) {
    if (tcp->stage != SOFT_CM_TCP_IDLE && tcp->stage != SOFT_CM_TCP_REACHED)
        return; /* TCP repeats it */
    tcp->offer = soft_cm_tcp_terms(req->responder_resources, req->initiator_depth);
    memcpy(tcp->data, req->data, sizeof tcp->data);
    tcp->request = iwarp_handshake_request(&tcp->offer, tcp->data, sizeof tcp->data);
    tcp->waited = tcp->stage == SOFT_CM_TCP_REACHED;
    if (tcp->waited)
        ask(tcp);
    else
        connect_tcp(tcp);
}
