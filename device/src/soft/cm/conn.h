/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * conn.h - one end of a connection (RC) or of a service resolution (UD): the part of an id that
 * talks to a peer. Control lock for everything.
 *
 * A connection belongs to one peer (process) and to one id number there; a message from another peer
 * does not find it. Requests are kept and sent again until answered, as the fault layer may lose
 * them and a full backlog drops them; one timer serves all states, since no state needs two.
 */
#ifndef SOFT_CM_CONN_H
#define SOFT_CM_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/cm/port_owner.h"
#include "soft/cm/wire.h"
#include "soft/ipc/engine.h"

enum soft_cm_conn_state {
    SOFT_CM_CONN_NONE,
    SOFT_CM_CONN_REQ_SENT,
    SOFT_CM_CONN_REQ_RCVD,
    SOFT_CM_CONN_REP_SENT,
    SOFT_CM_CONN_REP_RCVD,
    SOFT_CM_CONN_UP,
    SOFT_CM_CONN_DREQ_SENT,
    SOFT_CM_CONN_DREQ_RCVD,
    SOFT_CM_CONN_TIMEWAIT,
    SOFT_CM_CONN_SIDR_SENT,
    SOFT_CM_CONN_SIDR_RCVD,
    SOFT_CM_CONN_SIDR_DONE,
    SOFT_CM_CONN_OVER, /* refused, timed out, or past timewait */
};

enum soft_cm_reject {
    SOFT_CM_REJECT_TIMEOUT = 4,
    SOFT_CM_REJECT_NO_LISTENER = 8,
    SOFT_CM_REJECT_CONSUMER = 28,
    SOFT_CM_REJECT_ECE = 35,
};

enum soft_cm_sidr {
    SOFT_CM_SIDR_OK = 0,
    SOFT_CM_SIDR_UNSUPPORTED = 1,
    SOFT_CM_SIDR_REJECTED = 2,
    SOFT_CM_SIDR_VERSION = 5,
};

struct soft_cm_id;
struct soft_peer;
struct rdma_conn_param;

struct soft_cm_conn {
    enum soft_cm_conn_state state;
    bool waiting;                  /* the peer has our request and asked for time */
    bool asked_before;             /* this is not the first time that it is sent */
    bool asked_the_dead;           /* a process that had our request is no more */
    bool guessed, looked_again;    /* the peer came from the port cache; was looked up since */
    struct soft_cm_port_turn turn; /* among other users that hold the port */
    unsigned tries_left;
    unsigned unsent;         /* tries in a row for which too many messages waited */
    uint64_t asked_ns;       /* when asking began */
    uint64_t refuse_ns;      /* no listener: when to refuse; 0: not looked for yet */
    uint64_t end_ns;         /* the peer has ended it, which is not told yet (quiet.h); 0: no */
    uint64_t taken_ns;       /* when there was last a completion that was not taken */
    struct soft_peer *peer;  /* held, or NULL */
    struct soft_cm_tcp *tcp; /* over TCP: tcp.h; NULL: within this host */
    uint64_t remote;         /* the id's number over there, 0 while unknown */
    struct soft_timer timer;
    uint32_t local_qpn, remote_qpn;
    uint32_t send_psn, recv_psn;
    uint8_t responder_resources, initiator_depth; /* of our QP */
    uint8_t retry_count, rnr_retry_count;         /* of our QP */
    uint32_t qkey;
    /* iWARP (mpa.c) */
    int tcp_error;     /* what connect is to fail with, or accept: an errno */
    uint64_t until_ns; /* when the answer is overdue */
    /* The request that is repeated until answered. */
    enum soft_cm_wire_type request_type;
    uint32_t request_bytes;
    union soft_cm_wire_any request;
};

/* Control lock. It is in that state from now on; builds with assertions stop where it may not follow the one before. */
void soft_cm_conn_enter(struct soft_cm_conn *conn, enum soft_cm_conn_state state);

/*
 * Enters a state that waits for an answer: sends request (already set) and keeps repeating it. Where
 * no peer can be asked the refusal is posted at once.
 */
void soft_cm_conn_ask(struct soft_cm_id *id, enum soft_cm_conn_state state);
void soft_cm_conn_enter_timewait(struct soft_cm_id *id);
/* The connection is over; nothing is sent. */
void soft_cm_conn_over(struct soft_cm_id *id);
void soft_cm_conn_peer_gone(struct soft_cm_id *id);
/* As if the connection had failed with that event: it is over. */
void soft_cm_conn_fault(struct soft_cm_id *id, int type, int status);
/* An event about the connection, if the id is in a state to hear of it. */
void soft_cm_conn_event(struct soft_cm_id *id, enum rdma_cm_event_type type, int status);

void soft_cm_conn_event_data(struct soft_cm_id *id, enum rdma_cm_event_type type, int status,
                             const uint8_t *data, size_t len);
bool soft_cm_conn_hears_of(const struct soft_cm_id *id, enum rdma_cm_event_type type);
/*
 * A process that has no id for our request refuses it. True: the port cache named that process, and the request
 * has now gone to the process that has the port at present.
 */
bool soft_cm_conn_guessed_wrong(struct soft_cm_id *id);
/* The process that was asked does not listen. True: another user holds the port as well, and is asked instead. */
bool soft_cm_conn_ask_next(struct soft_cm_id *id);
/* No process listens. True: it is asked again, in a while. */
bool soft_cm_conn_comes_again(struct soft_cm_id *id);
/* The peer asked for time: waits longer, and gives up then. */
void soft_cm_conn_wait(struct soft_cm_id *id);

#endif
