/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp.h - connections to other hosts: what the connection manager's messages are on a TCP connection with MPA.
 *
 * The states of a connection and the application's events are those of connections within the host (conn.h). Only the
 * way of its messages differs:
 *
 *   REQ         TCP's connection and MPA's request; sent once, as TCP loses nothing
 *   REP         MPA's reply
 *   REJ         the listener's: a reply that rejects. the dialer's: the end of the stream
 *   RTU         the dialer's first frame, of nothing; or any other that comes first
 *   DREQ, DREP  the end of the stream, either way
 *   MRA         that TCP is connected: the request waits over there
 *
 * The other end may be Linux's Soft-iWARP, or a NIC. What arrives becomes a message, is offered to the connection's
 * state like one from a process of this host, and offered again if a fault plan lost it or there was no room for it.
 *
 * The peer's queue pair has no number here. A number that no queue pair has, bit 23 set, stands for the connection:
 * the move to RTR with it gives the socket to the queue pair.
 *
 * Control lock for everything.
 */
#ifndef SOFT_CM_TCP_H
#define SOFT_CM_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <urcu/list.h>

#include "soft/cm/wire.h"
#include "soft/ipc/engine.h"
#include "soft/iwarp/handshake.h"
#include "soft/iwarp/tcp_guess.h"

struct soft_cm_id;
struct soft_cm_tcp_port;
struct soft_qp;

enum soft_cm_tcp_stage {
    SOFT_CM_TCP_IDLE,       /* the dialer's, which has not begun or begins again */
    SOFT_CM_TCP_CONNECTING, /* TCP does */
    SOFT_CM_TCP_REACHED,    /* the dialer's: TCP has, and there is no request yet */
    SOFT_CM_TCP_ASKED,      /* a request was sent, or is being read */
    SOFT_CM_TCP_ANSWERED,   /* the dialer's: there is a reply. the listener's: there is a request */
    SOFT_CM_TCP_AGREED,     /* the listener's: its reply was sent */
    SOFT_CM_TCP_ENDED       /* nothing comes any more */
};

struct soft_cm_tcp {
    struct soft_watch watch; /* its fd is the socket, -1: none */
    struct soft_timer timer;
    struct soft_cm_id *id; /* NULL: its request is not whole, or waits for room */
    enum soft_cm_tcp_stage stage;
    bool dialer, watched;
    bool reaching; /* the dialer's, which awaits that TCP connects, and has no request yet */
    bool carried;  /* the socket is the queue pair's */
    bool any_port; /* the dialer's: TCP chose its source port, and may choose another one */
    bool waited;   /* the dialer's connection was there for some time before its request */
    bool begun;    /* the dialer's application is ready */
    bool heard;    /* the dialer's first frame is here, or need not be waited for */
    bool quiet;    /* the dialer sends no first frame: the listener may speak before long */
    uint64_t quiet_ns;
    bool refused; /* no listener there */
    int error;    /* errno that connecting came to, or what is wrong with the reply */
    uint32_t qpn; /* carried: the QP that has it */
    struct iwarp_offer offer;
    struct iwarp_terms terms;
    struct iwarp_handshake request; /* the dialer's; its data is in `data` or `parser` */
    struct iwarp_handshake reply;   /* which the dialer got */
    struct iwarp_handshake_parser parser;
    uint8_t data[SOFT_CM_REQ_DATA];
    /* While there is no id: of a listener. */
    uint64_t serial;
    struct soft_cm_tcp_port *port;
    struct cds_list_head link;
    struct sockaddr_storage from, to;
    struct soft_cm_tcp_origin origin; /* which `from` is of */
    bool slowed;                      /* it is not read yet: tcp_guess.h */
};

/*
 * An id's address was resolved to one that TCP goes to: opens its socket, bound to its source, whose address and port
 * the id then has. 0 or an errno.
 */
int soft_cm_tcp_open(struct soft_cm_id *id);
/* The connection is over, or was resolved anew. A queue pair that has the socket is in ERR behind it. */
void soft_cm_tcp_forget(struct soft_cm_id *id);

/* A message of that connection; it may get lost by a fault plan. */
void soft_cm_tcp_outgoing(struct soft_cm_id *id, enum soft_cm_wire_type type,
                          const union soft_cm_wire_any *msg, size_t bytes);
/*
 * A message that a fault plan made late. By the id's number; that of a connection that is no more does nothing.
 */
void soft_cm_tcp_send(uint64_t number, uint32_t type, const void *msg);

/* The queue pair moves to RTR with that number: the socket is its own. 0 or an errno; ENOENT: it stands for nothing. */
int soft_cm_tcp_attach(struct soft_qp *qp, uint32_t qpn);
/*
 * Of the id's queue pair: its peer's first frame is here; its socket was closed, and nothing is to come: the
 * peer has ended the stream, too (answered), or did not within a second. */
void soft_cm_tcp_heard(uint64_t id);
void soft_cm_tcp_closed(uint64_t id, bool answered);

/* The number that stands for the peer's queue pair. */
uint32_t soft_cm_tcp_qpn(const struct soft_cm_id *id);

/* ---- for tcp_dial.c, tcp_offer.c and tcp_port.c ------------------------------------------------------------- */

void soft_cm_tcp_on_event(struct soft_watch *watch, uint32_t events);
/* Bound to the id's source. 0 or an errno. */
int soft_cm_tcp_socket(struct soft_cm_tcp *tcp);
/* What this device offers the other end. */
struct iwarp_offer soft_cm_tcp_terms(unsigned ird, unsigned ord);
/* The listener need not wait for the dialer's first frame any more. */
void soft_cm_tcp_quiet(struct soft_cm_tcp *tcp);
/* Of READs, as messages have it: no more than a queue pair here can use. */
uint8_t soft_cm_tcp_depth(unsigned said);
int soft_cm_tcp_watch(struct soft_cm_tcp *tcp, uint32_t events); /* 0 or an errno */
void soft_cm_tcp_unwatch(struct soft_cm_tcp *tcp);
/* Its socket is closed, if it still has one; said: what was sent is to arrive. */
void soft_cm_tcp_shut(struct soft_cm_tcp *tcp, bool said);
bool soft_cm_tcp_write(struct soft_cm_tcp *tcp, const struct iwarp_handshake *handshake);

#endif
