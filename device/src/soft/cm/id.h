/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * id.h - rdma_cm ids: what an id consists of, its states, the table of all ids.
 *
 * The part that the application sees (struct rdma_cm_id) comes first. Everything behind it is guarded by the
 * control lock, except for fields that say otherwise. Other processes know an id by its
 * number (index and generation): a stale or invented number finds no id.
 *
 * A request that arrives creates an id that the application has not fetched yet: the queued event owns it,
 * and it counts in its listener's backlog. The fetch makes it the application's.
 */
#ifndef SOFT_CM_ID_H
#define SOFT_CM_ID_H

#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

#include "soft/cm/channel.h"
#include "soft/cm/conn.h"
#include "soft/cm/fault.h"
#include "soft/cm/port.h"
#include "soft/ipc/engine.h"

/* Event numbers that headers before librdmacm 60 do not have. */
enum {
    SOFT_CM_EVENT_ADDRINFO_RESOLVED = 16,
    SOFT_CM_EVENT_ADDRINFO_ERROR = 17,
    SOFT_CM_EVENT_USER = 18,
    SOFT_CM_EVENT_INTERNAL = 19,
};

#define SOFT_CM_BACKLOG_MAX 1024

/* The kernel's address and route queries finish within the call here, so they are no states. */
enum soft_cm_state {
    SOFT_CM_IDLE,
    SOFT_CM_BOUND,
    SOFT_CM_ADDR_RESOLVED,
    SOFT_CM_ROUTE_RESOLVED,
    SOFT_CM_CONNECT, /* from connect or an arrived request on, also after a refusal: single use */
    SOFT_CM_DISCONNECT,
    SOFT_CM_LISTEN,
    SOFT_CM_DEAD, /* being destroyed, or its channel or device is gone */
};

struct cm_group;

struct soft_cm_id {
    struct rdma_cm_id id; /* first */
    uint32_t generation;  /* of the process that made it; constant */

    /* Where USER events go: writers read it without any lock, and count themselves in `writers`. */
    _Atomic(struct soft_cm_channel *) channel;
    atomic_uint writers;
    atomic_bool removed; /* the device was removed: ENXIO */

    /* Fetched and not acknowledged; its own lock, innermost. */
    pthread_mutex_t ack_mutex;
    pthread_cond_t acked;
    unsigned unacked;

    /* The application's side; touched by its calls on this id only. */
    bool sync;
    bool connect_failed; /* CONNECT_ERROR was reported: REJECTED and DISCONNECTED are swallowed */
    struct ibv_qp_init_attr *stored_qp_attr; /* create_ep on a listener */
    uint8_t *connect_prefix;                 /* create_ep: goes before the private data */
    size_t connect_prefix_len;
    struct rdma_addrinfo *info; /* result of resolve_addrinfo; control lock */
    bool info_busy;

    uint64_t number;
    enum soft_cm_state state;
    bool published; /* the application knows it: false for a request until accept succeeded */
    bool engine_held;
    struct ibv_context *context; /* held, or NULL: the device it is bound to (device.h) */
    struct soft_fault_id fault;
    uint8_t net; /* enum soft_cm_net, as its channel said; constant */
    uint8_t tos;
    bool ack_timeout_set;
    uint8_t ack_timeout;
    uint8_t gid_index;
    struct soft_cm_port port;
    struct soft_cm_conn conn;
    struct soft_cm_tcp_port *tcp_port; /* of a listener: tcp_port.h */
    struct cds_list_head groups;       /* joined: mcast.c */

    unsigned backlog, request_count; /* listener: requests queued and not fetched */
    struct soft_cm_id *listener;     /* unfetched request: its listener */
};

static inline struct soft_cm_id *soft_cm_id_of(struct rdma_cm_id *id) {
    return (struct soft_cm_id *)id;
}

static inline struct sockaddr *soft_cm_id_src(struct soft_cm_id *id) {
    return &id->id.route.addr.src_addr;
}

static inline struct sockaddr *soft_cm_id_dst(struct soft_cm_id *id) {
    return &id->id.route.addr.dst_addr;
}

/* The port space as messages and names have it. */
static inline int soft_cm_id_ps(const struct soft_cm_id *id) {
    return (int)id->id.ps;
}

static inline bool soft_cm_id_is_ud(const struct soft_cm_id *id) {
    return id->id.qp_type == IBV_QPT_UD;
}

static inline int soft_cm_fail(int error) {
    errno = error;
    return -1;
}

/* An errno for an id no call may be made on, else 0. Signal-safe. */
static inline int soft_cm_id_unusable(struct rdma_cm_id *id) {
    if (!id)
        return EINVAL;
    if (soft_cm_id_of(id)->generation != soft_generation_now)
        return EPERM;
    return atomic_load(&soft_cm_id_of(id)->removed) ? ENXIO : 0;
}

/* Control lock. It is in that state from now on; builds with assertions stop where it may not follow the one before. */
void soft_cm_id_enter(struct soft_cm_id *id, enum soft_cm_state state);

/* ---- table; control lock ----------------------------------------------------------------------- */

/* A new id without channel, engine reference or address. NULL: no memory. */
struct soft_cm_id *soft_cm_id_new(enum rdma_port_space ps, enum ibv_qp_type type, void *context);
struct soft_cm_id *soft_cm_id_find(uint64_t number);
struct soft_cm_id *soft_cm_id_at(uint32_t place); /* the id whose number has these lower 32 bits */
/* The id whose connection is with that peer's id of that number. */
struct soft_cm_id *soft_cm_id_find_remote(const struct soft_peer *peer, uint64_t remote);
/* Calls fn for every id; fn may kill ids but not free them. */
void soft_cm_id_each(void (*fn)(struct soft_cm_id *id, void *arg), void *arg);
/*
 * Ends what other processes see of an id: connection, port, unfetched requests, its number. Its events
 * stay. Harmless when repeated.
 */
void soft_cm_id_kill(struct soft_cm_id *id);
/* Kills and frees an id of a request that no thread has begun to fetch: the application never saw it. */
void soft_cm_id_drop_request(struct soft_cm_id *id);
/* Frees a killed id. Not under the lock if it holds the engine or a context, which it gives back. */
void soft_cm_id_free(struct soft_cm_id *id);
/* The listener's unfetched request is one no more: it frees its place in the backlog. */
void soft_cm_id_unlink_request(struct soft_cm_id *id);
/* On return no thread writes USER events of this id to the former channel any more. */
void soft_cm_id_set_channel(struct soft_cm_id *id, struct soft_cm_channel *channel);

/* ---- acknowledging; no lock needed --------------------------------------------------------------- */

void soft_cm_id_count(struct soft_cm_id *id);
void soft_cm_id_uncount(struct soft_cm_id *id);
void soft_cm_id_wait_acked(struct soft_cm_id *id); /* control lock not held */

/* From peer.c: the peer's process or connection died; each peer once. It turns its ids' states. */
void soft_cm_on_peer_gone(struct soft_peer *peer);

#endif
