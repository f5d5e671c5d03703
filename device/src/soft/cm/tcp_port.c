/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp_port.c - see tcp_port.h.
 *
 * Control lock for everything; no call waits.
 */
#define _GNU_SOURCE /* accept4 */
#include "soft/cm/tcp_port.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/cm/addr.h"
#include "soft/cm/id.h"
#include "soft/cm/listen.h"
#include "soft/cm/net.h"
#include "soft/cm/tcp.h"
#include "soft/cm/tcp_offer.h"
#include "soft/iwarp/stream.h"

#define HALF_OPEN_MOST 64u
#define ACCEPT_TURN 16u /* others have their turn between */
#define REQUEST_NS 5000000000u
#define PAUSE_NS 20000000u  /* where there is no descriptor, or no room */
#define SERIAL (1ull << 63) /* no number of an id */

struct soft_cm_tcp_port {
    struct soft_watch watch;
    struct soft_timer timer; /* accepts again */
    struct soft_cm_id *listener;
    unsigned unread, waiting; /* connections whose request is not whole; that wait for room */
};

static CDS_LIST_HEAD(half_open); /* of all listeners, the oldest first */
static uint64_t last_serial;

void soft_cm_tcp_port_forked(void) {
    CDS_INIT_LIST_HEAD(&half_open); /* the parent's */
}

/* ---- connections without an id ------------------------------------------------------------------------------- */

static bool is_unread(const struct soft_cm_tcp *tcp) {
    return tcp->stage == SOFT_CM_TCP_ASKED;
}

static void forget(struct soft_cm_tcp *tcp) {
    tcp->port->unread -= is_unread(tcp);
    tcp->port->waiting -= !is_unread(tcp);
    tcp->port = NULL;
    cds_list_del(&tcp->link);
    soft_timer_cancel(&tcp->timer);
}

static void drop(struct soft_cm_tcp *tcp, bool said) {
    forget(tcp);
    soft_cm_tcp_shut(tcp, said);
    free(tcp);
}

void soft_cm_tcp_port_drop(struct soft_cm_tcp *tcp) {
    drop(tcp, false);
}

struct soft_cm_tcp *soft_cm_tcp_port_find(uint64_t serial) {
    struct soft_cm_tcp *tcp;
    cds_list_for_each_entry(tcp, &half_open, link) {
        if (tcp->serial == serial)
            return tcp;
    }
    return NULL;
}

/* How many of that listener without a request come from there. */
static unsigned count_of(const struct soft_cm_tcp_port *port, struct soft_cm_tcp_origin from) {
    struct soft_cm_tcp *tcp;
    unsigned count = 0;
    cds_list_for_each_entry(tcp, &half_open, link) {
        count += tcp->port == port && is_unread(tcp) && soft_cm_tcp_same_origin(tcp->origin, from);
    }
    return count;
}

/* Its request may have come since it was looked at: then it leaves with that. */
static void read_or_drop(struct soft_cm_tcp *tcp) {
    uint64_t serial = tcp->serial;
    if (!tcp->slowed)
        soft_cm_tcp_readable(tcp, EPOLLIN);
    tcp = soft_cm_tcp_port_find(serial);
    if (tcp && is_unread(tcp))
        drop(tcp, false);
}

static void drop_oldest_of_most(struct soft_cm_tcp_port *port) {
    struct soft_cm_tcp *tcp, *victim = NULL;
    unsigned most = 0;
    cds_list_for_each_entry(tcp, &half_open, link) {
        if (tcp->port != port || !is_unread(tcp))
            continue;
        unsigned count = count_of(port, tcp->origin);
        if (count > most) {
            most = count;
            victim = tcp;
        }
    }
    if (victim)
        read_or_drop(victim);
}

/* ---- accepting ----------------------------------------------------------------------------------------------- */

static void accept_again(struct soft_timer *timer) {
    struct soft_cm_tcp_port *port = caa_container_of(timer, struct soft_cm_tcp_port, timer);
    (void)soft_watch_modify(&port->watch, EPOLLIN);
}

static void pause_accepting(struct soft_cm_tcp_port *port) {
    (void)soft_watch_modify(&port->watch, 0);
    soft_timer_arm(&port->timer, soft_now_ns() + PAUSE_NS, accept_again);
}

/* An IPv4 address that a socket of both families shows as one of IPv6. */
static void unmap(struct sockaddr_storage *addr) {
    struct sockaddr_in6 six;
    memcpy(&six, addr, sizeof six);
    if (addr->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
        return;
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = six.sin6_port};
    memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, 4);
    soft_cm_addr_copy(addr, (struct sockaddr *)&four);
}

/* From where keys are guessed, later. */
static int begin_reading(struct soft_cm_tcp *tcp, uint64_t wait_ns) {
    tcp->slowed = wait_ns > 0;
    soft_timer_arm(&tcp->timer, soft_now_ns() + (wait_ns > 0 ? wait_ns : REQUEST_NS),
                   soft_cm_tcp_on_timer);
    return soft_cm_tcp_watch(tcp, wait_ns > 0 ? 0 : EPOLLIN);
}

static void begin(struct soft_cm_tcp_port *port, int fd, struct sockaddr_storage *from) {
    unmap(from);
    uint64_t wait_ns;
    struct soft_cm_tcp_origin origin = soft_cm_tcp_origin((struct sockaddr *)from);
    bool taken = soft_cm_tcp_guess_wait(origin, soft_now_ns(), &wait_ns);
    struct soft_cm_tcp *tcp = taken ? calloc(1, sizeof *tcp) : NULL;
    socklen_t bytes = sizeof tcp->to;
    if (!tcp) {
        close(fd);
        return;
    }
    tcp->origin = origin;
    tcp->watch = (struct soft_watch){.fd = fd, .fn = soft_cm_tcp_on_event};
    tcp->stage = SOFT_CM_TCP_ASKED;
    tcp->serial = SERIAL | ++last_serial;
    tcp->from = *from;
    if (getsockname(fd, (struct sockaddr *)&tcp->to, &bytes) != 0 ||
        iwarp_stream_prepare(fd) != 0 || begin_reading(tcp, wait_ns) != 0) {
        soft_timer_cancel(&tcp->timer);
        soft_cm_tcp_shut(tcp, false);
        free(tcp);
        return;
    }
    unmap(&tcp->to);
    iwarp_handshake_expect(&tcp->parser, false);
    tcp->port = port;
    port->unread++;
    cds_list_add_tail(&tcp->link, &half_open);
}

static void on_accept(struct soft_watch *watch, uint32_t events) {
    struct soft_cm_tcp_port *port = caa_container_of(watch, struct soft_cm_tcp_port, watch);
    (void)events;
    for (unsigned turn = 0; turn < ACCEPT_TURN; turn++) {
        struct sockaddr_storage from;
        socklen_t bytes = sizeof from;
        if (port->waiting >= HALF_OPEN_MOST) {
            pause_accepting(port);
            return;
        }
        int fd = accept4(watch->fd, (struct sockaddr *)&from, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            pause_accepting(port);
        if (fd < 0)
            return; /* none, or it was closed: the next one is reported */
        if (port->unread >= HALF_OPEN_MOST)
            drop_oldest_of_most(port);
        begin(port, fd, &from);
    }
}

/* ---- the port ------------------------------------------------------------------------------------------------ */

/* As any server's: what the last one left behind is not in the way. */
static int make_socket(const struct soft_cm_id *id, const struct sockaddr *addr, int *fd) {
    int one = 1, only = id->port.afonly;
    int made = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0)
        return -errno;
    int bad = setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (addr->sa_family == AF_INET6)
        bad |= setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    if (bad != 0 || bind(made, addr, soft_cm_addr_bytes(addr)) != 0) {
        int error = errno;
        close(made);
        return -error;
    }
    *fd = made;
    return 0;
}

int soft_cm_tcp_port_reserve(struct soft_cm_id *id) {
    const struct sockaddr *addr = soft_cm_id_src(id);
    if (id->tcp_port || !soft_cm_net_opens_port(id, addr))
        return 0;
    struct soft_cm_tcp_port *port = calloc(1, sizeof *port);
    if (!port)
        return -ENOMEM;
    port->listener = id;
    port->watch.fn = on_accept;
    int error = make_socket(id, addr, &port->watch.fd);
    if (error == 0) {
        error = soft_watch_hold(&port->watch);
        if (error != 0)
            close(port->watch.fd);
    }
    if (error != 0)
        free(port);
    else
        id->tcp_port = port;
    return error;
}

int soft_cm_tcp_port_listen(struct soft_cm_id *id) {
    int error = soft_cm_tcp_port_reserve(id);
    struct soft_cm_tcp_port *port = id->tcp_port;
    if (error != 0 || !port)
        return error;
    error =
        listen(port->watch.fd, SOMAXCONN) != 0 ? -errno : soft_watch_modify(&port->watch, EPOLLIN);
    if (error != 0)
        soft_cm_tcp_port_close(id);
    return error;
}

void soft_cm_tcp_port_close(struct soft_cm_id *id) {
    struct soft_cm_tcp_port *port = id->tcp_port;
    struct soft_cm_tcp *tcp, *next;
    if (!port)
        return;
    id->tcp_port = NULL;
    cds_list_for_each_entry_safe(tcp, next, &half_open, link) {
        if (tcp->port == port)
            drop(tcp, !is_unread(tcp));
    }
    soft_watch_remove(&port->watch);
    soft_timer_cancel(&port->timer);
    close(port->watch.fd);
    free(port);
}

/* ---- a request ----------------------------------------------------------------------------------------------- */

/* Its private data is filled up as that of a process of this host is. */
static void offer(struct soft_cm_tcp *tcp) {
    union soft_cm_wire_any msg = {
        .req = {.head.from = tcp->serial,
                .ps = RDMA_PS_TCP,
                .responder_resources = soft_cm_tcp_depth(tcp->request.ird),
                .initiator_depth = soft_cm_tcp_depth(tcp->request.ord),
                .retry_count = 7,
                .rnr_retry_count = 7}};
    size_t n = tcp->request.bytes < sizeof msg.req.data ? tcp->request.bytes : sizeof msg.req.data;
    memcpy(msg.req.data, tcp->request.data, n);
    soft_timer_arm(&tcp->timer, soft_now_ns() + soft_cm_tcp_again_ns(), soft_cm_tcp_on_timer);
    soft_cm_tcp_arrived(tcp, &tcp->port->listener->fault, SOFT_CM_WIRE_REQ, &msg, sizeof msg.req);
}

void soft_cm_tcp_port_asked(struct soft_cm_tcp *tcp, const struct iwarp_handshake *request) {
    struct iwarp_offer own = {.crc = soft_cm_net_asks_crc(), .extended = true};
    struct iwarp_handshake reply;
    tcp->request = *request;
    if (iwarp_handshake_answer(&own, request, &tcp->terms, &reply) != IWARP_VERDICT_ACCEPT) {
        struct iwarp_handshake no = iwarp_handshake_reject(request, NULL, 0);
        (void)soft_cm_tcp_write(tcp, &no);
        drop(tcp, true);
        return;
    }
    tcp->port->unread--;
    tcp->port->waiting++;
    tcp->stage = SOFT_CM_TCP_ANSWERED;
    (void)soft_cm_tcp_watch(tcp, EPOLLRDHUP);
    offer(tcp);
}

/* Without room in the backlog, or memory, it is asked again later: a dialer that gives up ends the stream. */
void soft_cm_tcp_port_take(struct soft_cm_tcp *tcp, const struct soft_cm_wire_req *req) {
    struct soft_cm_id *listener = tcp->port->listener;
    if (!soft_cm_listen_on_tcp(listener, tcp, req))
        return;
    forget(tcp);
}

void soft_cm_tcp_port_due(struct soft_cm_tcp *tcp) {
    if (!is_unread(tcp))
        offer(tcp);
    else if (!tcp->slowed || begin_reading(tcp, 0) != 0)
        drop(tcp, false);
}
