/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wire.h - cm messages between processes, and the one place they pass in either direction.
 *
 * Fixed sizes, no padding, host byte order (both ends are this host), the version is that of the
 * peers' greeting. Private data has the length of its message type, zero filled. Every message
 * names the receiver's id and the sender's; a field of a received message counts only after it was
 * checked, and a message never touches an id whose connection belongs to another peer.
 */
#ifndef SOFT_CM_WIRE_H
#define SOFT_CM_WIRE_H

#include <assert.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/peer.h"

enum soft_cm_wire_type {
    SOFT_CM_WIRE_REQ = SOFT_MSG_CM_FIRST,
    SOFT_CM_WIRE_MRA, /* "I have it, give me time" */
    SOFT_CM_WIRE_REP,
    SOFT_CM_WIRE_RTU,
    SOFT_CM_WIRE_REJ,
    SOFT_CM_WIRE_DREQ,
    SOFT_CM_WIRE_DREP,
    SOFT_CM_WIRE_SIDR_REQ,
    SOFT_CM_WIRE_SIDR_REP,
    /* Of a device that is like iWARP (mpa.h); others do not know these, and it knows no others. */
    SOFT_CM_WIRE_MPA_REQ,  /* TCP's handshake and MPA's request in one */
    SOFT_CM_WIRE_MPA_SEEN, /* "the connection exists, and your request waits" */
    SOFT_CM_WIRE_MPA_REP,
    SOFT_CM_WIRE_MPA_REJ,
    SOFT_CM_WIRE_FIN, /* the end of the connection, in whatever state */
    SOFT_CM_WIRE_END,
};

enum {
    SOFT_CM_REQ_DATA = 56,
    SOFT_CM_REP_DATA = 196,
    SOFT_CM_REJ_DATA = 148,
    SOFT_CM_SIDR_REQ_DATA = 180,
    SOFT_CM_SIDR_REP_DATA = 136,
    SOFT_CM_MPA_DATA = 251, /* exact, not filled up */
    SOFT_CM_DATA_MAX = 251,
};

struct soft_cm_wire_head {
    uint64_t to;   /* the receiver's id; 0: not known yet */
    uint64_t from; /* the sender's id; 0: there is none */
};

struct soft_cm_wire_addr {
    uint8_t family; /* 4 or 6 */
    uint8_t zero;
    uint16_t port; /* host order */
    uint32_t scope;
    uint8_t bytes[16];
};

struct soft_cm_wire_req {
    struct soft_cm_wire_head head;
    struct soft_cm_wire_addr src, dst;
    uint32_t qp_num, psn;
    uint16_t ps;
    uint8_t again; /* nonzero: sent before, look for the first one */
    uint8_t responder_resources, initiator_depth;
    uint8_t flow_control, retry_count, rnr_retry_count, srq;
    uint8_t zero[7];
    uint8_t data[SOFT_CM_REQ_DATA];
};

struct soft_cm_wire_rep {
    struct soft_cm_wire_head head;
    uint32_t qp_num, psn;
    uint8_t responder_resources, initiator_depth;
    uint8_t flow_control, rnr_retry_count, srq;
    uint8_t zero[7];
    uint8_t data[SOFT_CM_REP_DATA];
};

struct soft_cm_wire_rej {
    struct soft_cm_wire_head head;
    uint32_t reason;
    uint8_t data[SOFT_CM_REJ_DATA];
};

struct soft_cm_wire_sidr_req {
    struct soft_cm_wire_head head;
    struct soft_cm_wire_addr src, dst;
    uint16_t ps;
    uint8_t again;
    uint8_t zero;
    uint8_t data[SOFT_CM_SIDR_REQ_DATA];
};

struct soft_cm_wire_sidr_rep {
    struct soft_cm_wire_head head;
    uint32_t status, qp_num, qkey, zero;
    uint8_t data[SOFT_CM_SIDR_REP_DATA];
};

/* MPA_REQ, MPA_REP, MPA_REJ. */
struct soft_cm_wire_mpa {
    struct soft_cm_wire_head head;
    struct soft_cm_wire_addr src, dst;
    uint32_t qp_num;
    uint16_t ps;
    uint8_t again;                                /* MPA_REQ */
    uint8_t responder_resources, initiator_depth; /* of the sender */
    uint8_t reset;                                /* MPA_REJ: no listener */
    uint8_t bytes;                                /* of data */
    uint8_t zero[5];
    uint8_t data[256]; /* room for what a caller may give, and is then refused */
};

union soft_cm_wire_any {
    struct soft_cm_wire_head head;
    struct soft_cm_wire_req req;
    struct soft_cm_wire_rep rep;
    struct soft_cm_wire_rej rej;
    struct soft_cm_wire_sidr_req sidr_req;
    struct soft_cm_wire_sidr_rep sidr_rep;
    struct soft_cm_wire_mpa mpa;
};

static_assert(sizeof(struct soft_cm_wire_req) == 16 + 48 + 8 + 16 + SOFT_CM_REQ_DATA, "padding");
static_assert(sizeof(struct soft_cm_wire_rep) == 16 + 8 + 12 + SOFT_CM_REP_DATA, "padding");
static_assert(sizeof(struct soft_cm_wire_rej) == 16 + 4 + SOFT_CM_REJ_DATA, "padding");
static_assert(sizeof(struct soft_cm_wire_sidr_req) == 16 + 48 + 4 + SOFT_CM_SIDR_REQ_DATA,
              "padding");
static_assert(sizeof(struct soft_cm_wire_sidr_rep) == 16 + 16 + SOFT_CM_SIDR_REP_DATA, "padding");
static_assert(sizeof(struct soft_cm_wire_mpa) == 16 + 48 + 16 + 256, "padding");

struct soft_cm_id;

void soft_cm_wire_addr_set(struct soft_cm_wire_addr *to, const struct sockaddr *from);
bool soft_cm_wire_addr_get(struct sockaddr_storage *to, const struct soft_cm_wire_addr *from);

/*
 * Sends a message of this connection to its peer; fills in the head. A peer that is gone or drowned
 * is no error here: its end is reported separately, and what must arrive is repeated. Control lock.
 */
void soft_cm_wire_send(struct soft_cm_id *id, enum soft_cm_wire_type type,
                       union soft_cm_wire_any *msg, size_t bytes);
/* A message that is sent again until it is answered. False: it was not sent, as too many wait for this peer already. */
bool soft_cm_wire_send_repeated(struct soft_cm_id *id, enum soft_cm_wire_type type,
                                union soft_cm_wire_any *msg, size_t bytes);
/* A message that only consists of its head. */
void soft_cm_wire_send_plain(struct soft_cm_id *id, enum soft_cm_wire_type type);
/* Answers without a connection: refusal of a request, confirmation of an unknown disconnect. */
void soft_cm_wire_refuse(struct soft_peer *peer, uint64_t to, enum soft_cm_wire_type request,
                         bool port_known);
/* Refuses a request of iWARP, as TCP would do it: reset if there is no listener, else the connection is closed. */
void soft_cm_wire_close(struct soft_peer *peer, uint64_t to, bool reset);
/* Hands a received message of the right size to the connection it names. */
void soft_cm_wire_deliver(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes);

/* From peer.c: a message of type CM_FIRST..CM_LAST arrived from a live peer. */
void soft_cm_on_message(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes);

#endif
