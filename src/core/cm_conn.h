/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm_conn.h - the CM thread's part of a connection, and the fields handed over with each message.
 *
 * A conn is part of a connection. Everything in it belongs to the CM thread except the groups marked
 * otherwise, which are written by one side before it posts the message named there and read by the
 * other after it took that message.
 */
#ifndef CORE_CM_CONN_H
#define CORE_CM_CONN_H

#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

#include "base/address.h"
#include "core/wire/private_data.h"
#include "fabric/fabric.h"

/* X(name, what it waits for) - rows of the table in cm_table.c */
#define CM_STATES(X)                                                                               \
    X(IDLE, "nothing: no connection")                                                              \
    X(REMOVAL_WATCH, "the device's removal (the watch)")                                           \
    X(RESOLVING_ADDRINFO, "the address of a name from rdma_cm")                                    \
    X(LISTENING, "connection requests (a listener)")                                               \
    X(RESOLVING_NAME, "the resolver thread")                                                       \
    X(BACKOFF, "its next try (dialer)")                                                            \
    X(RESOLVING_ADDR, "ADDR_RESOLVED")                                                             \
    X(RESOLVING_ROUTE, "ROUTE_RESOLVED")                                                           \
    X(CREATING_QP, "the loop's QP (dialer)")                                                       \
    X(IN_LINE, "its turn among the dials to that address")                                         \
    X(CONNECTING, "the listener's answer")                                                         \
    X(MODIFYING_QP, "the loop moving its QP to RTS")                                               \
    X(AWAITING_APP, "the application's decision (listener)")                                       \
    X(QUEUED, "a free handshake (listener)")                                                       \
    X(CREATING_QP_PASSIVE, "the loop's QP (listener)")                                             \
    X(ACCEPTING, "ESTABLISHED")                                                                    \
    X(HANDSHAKE, "the peer's HELLO or WELCOME")                                                    \
    X(UP, "the end")                                                                               \
    X(FAILED, "the loop's RELEASE")                                                                \
    X(RELEASED, "the loop's DRAINED")

enum cm_state {
#define CM_X(name, text) CM_##name,
    CM_STATES(CM_X)
#undef CM_X
        CM_STATE_COUNT
};

/* Behind every rdma_cm_id's context: which row of the table its events belong to. */
struct cm_owner {
    struct rdma_cm_id *id;
    uint8_t state; /* enum cm_state */
    bool listener; /* a struct cm_listener; else a struct cm_conn, in RESOLVING_ADDRINFO a struct
                      cm_addrinfo_query, or in REMOVAL_WATCH none of them */
    bool aside;    /* a struct cm_aside instead of a struct cm_conn */
};

#define CM_CANDIDATES 8 /* addresses of one dial that are tried */
#define CM_RACE 4       /* of them at a time */

/* How far a try has come on its way to one address. */
struct cm_search {
    uint64_t until_ns; /* RESOLVING_ADDR: until when the address is looked for */
    uint64_t slice_ns; /* since when the kernel does */
    uint32_t slice_ms; /* for how long it does this time */
    uint32_t number;   /* of the try */
    uint8_t candidate; /* the address */
    bool reaches;      /* RESOLVING_ROUTE: what is awaited is that the peer's host answers */
};

struct cm_conn;
struct cm_lookup;

/* One of the addresses that a dial was given: a number, or a name and what it stands for. */
struct cm_place {
    struct cm_conn *conn;
    struct cm_lookup *lookup;    /* of its name, for which the dial waits, or NULL (resolver.c) */
    struct cds_list_head asking; /* among those that wait for that lookup */
    union address addresses[CM_CANDIDATES];
    uint8_t count;
    bool failed;    /* the last lookup; what was found before is kept */
    uint16_t port;  /* of a name */
    char host[256]; /* a name to be looked up, or empty */
};

struct cm_places {
    unsigned count;
    struct cm_place at[CM_CANDIDATES];
};

/* A try that goes on while another has the place of the connection (dial_race.c). */
struct cm_aside {
    struct cm_owner owner; /* first; without an id: none */
    struct cm_conn *conn;
    struct cm_search search;
};

/* Why a connection ended, or a try failed. */
struct cm_failure {
    sluice_reason reason;
    uint32_t vendor;
    uint16_t code;
    int32_t cm_event, cm_status; /* the event behind it; -1 and 0: none */
    char text[124];
};

/* Messages that the CM thread takes: of a connection, and of a listener. */
enum cm_msg {
    CM_MSG_DIAL,
    CM_MSG_PREPARED,
    CM_MSG_READY,
    CM_MSG_ANSWER,
    CM_MSG_ARRIVED,        /* the dialer's first frame, before its handshake's last message */
    CM_MSG_HANDSHAKE_DONE, /* the peer's HELLO (listener) or WELCOME (dialer) is in order */
    CM_MSG_RELEASE,
    CM_MSG_DRAINED,
    CM_MSG_CONNECTION_COUNT,
    CM_MSG_LISTEN = CM_MSG_CONNECTION_COUNT,
    CM_MSG_UNLISTEN,
};

/* The class of the node's admission that counts a listener's connection (admission.h). */
enum admission_class {
    ADMISSION_NONE,
    ADMISSION_ASKING,
    ADMISSION_QUEUED,
    ADMISSION_OPEN, /* a handshake */
};

struct cm_listener;
struct cm_connect;
struct dial_line;

struct cm_conn {
    struct cm_owner owner; /* first */
    bool passive, prepared, linked, reported;
    bool over;                 /* the loop has released it */
    bool rejectable;           /* the peer waits for our accept or reject */
    bool established;          /* connect or accept was called: rdma_disconnect() makes sense */
    uint64_t deadline_ns;      /* of the whole way to UP; 0: none */
    struct cds_list_head link; /* the CM thread's list */
    uint8_t admission_class;   /* enum admission_class; this and the next three: admission.c only */
    struct cds_list_head line; /* also of a dialer that is IN_LINE: dial_line.c only */
    uint64_t open_ns;          /* OPEN: since when */
    uint64_t way_deadline_ns;  /* OPEN: the deadline it had before */
    struct cm_listener *listener; /* passive: valid while that listens */
    struct private_data_req req;  /* dialer: what was proposed; listener: what the peer proposed */
    struct private_data_rep rep;  /* what was decided */
    /* of our QP: the dialer chooses how often packets are repeated on both sides, and each side how
     * often the other repeats what found no receive */
    uint8_t retry_count, rnr_retry_count;

    /* dialer: the line that it stands in, or has its turn of, or NULL (dial_line.c) */
    struct dial_line *dial_line;
    bool has_turn;

    /* dialer: its tries (dial_retry.c) */
    struct cm_failure last;  /* the failure to report when time runs out; reason NONE: none yet */
    uint64_t step_ns;        /* end of the pause, of the head start or of the share; 0: none */
    uint64_t head_start_ns;  /* of a try whose peer does not answer, before the next one begins */
    uint64_t pause_ns;       /* middle of the next pause */
    struct cm_search search; /* of the try whose id is the owner's */
    struct cm_aside asides[CM_RACE]; /* the others */
    uint8_t begun;                   /* a bit for each candidate of this round that was tried */
    bool pausing;                    /* step_ns ends a pause, whatever is under way meanwhile */
    bool naming;    /* likewise: the next round waits for the names, until step_ns */
    bool unread;    /* the answer came too late; the event that says why follows */
    bool may_pass;  /* a failure of this round was one that may pass */
    bool preparing; /* PREPARE was posted: once a session, unless a try uses the QP up */
    bool greets;    /* a listener would not have it without a handshake */
    bool used_up;   /* this QP was connected, or nearly: another try needs another */
    /* where connecting blocks: that of this try, until its outcome is known; and one that was left and
     * waits for the QP it was made with */
    struct cm_connect *call, *left;
    bool answered, decided; /* `call` has returned; its outcome is known */

    /* DIAL: written by the dialing thread; the candidates, where there are places, before each round from those */
    union address candidates[CM_CANDIDATES];
    uint8_t candidate_count;
    struct cm_places *places; /* of a dial to a name, or to several addresses; else NULL */

    /* DIAL: written by the loop; passive: by the CM thread before PREPARE, with `req` */
    struct {
        bool on; /* a connection for a session that there is; else a new session */
        uint8_t session_id[16];
        uint32_t last_sequence;
    } resume;
    bool
        joins; /* the same: of a guest (datapath/session/guest.h); resume.session_id is its host's */
    struct {   /* DIAL: written by the loop, with `last`, and the two pauses above */
        bool on; /* a listener has answered the dial, and given it up */
        uint64_t
            deadline_ns; /* of a dial that is not the session's first; UINT64_MAX: none, 0: it is the first */
    } again;

    /* PREPARE, APPLY: written by the CM thread, read by the loop */
    struct ibv_qp_attr init, rtr, rts;
    int init_mask, rtr_mask, rts_mask;
    bool qp_left; /* and with DRAIN: the QP is not to be destroyed but given to `left` */

    /* PREPARED: written by the loop; of an authenticated session, the proof in rep too */
    uint32_t qp_num;
    struct ibv_qp *left_qp; /* and with DRAINED: that QP, drained; NULL: there is none */
    bool srq;               /* it shares receives */

    /* ANSWER: written by the application's thread */
    bool accepted;
    uint16_t refuse_code;
    char refuse_text[PRIVATE_DATA_REJ_TEXT + 1];
    void *answer_arg;

    /* RELEASE: written by the loop; what to tell a peer that still waits for an answer */
    struct private_data_rej release;

    /* DOWN: written by the CM thread, read by the loop */
    struct cm_failure down;
};

#endif
