/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connect_queue.h - the calls of rdma_connect() that wait for a thread of the connector or have one.
 *
 * Owner: the connector's lock.
 */
#ifndef CM_CONNECT_QUEUE_H
#define CM_CONNECT_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

#include "base/address.h"
#include "core/cm_conn.h"
#include "core/wire/private_data.h"
#include "fabric/fabric.h"

#define CONNECT_THREADS_MAX 64

enum connect_step {
    CONNECT_QUEUED,
    CONNECT_CALLING,
    CONNECT_RETURNED, /* its answer waits to be taken, or was; left: the id is being destroyed */
    CONNECT_ENDED,    /* left, and the id is destroyed */
};

struct cm_connect {
    struct cds_list_head link; /* queue, burials or answers; alone: in none of them */
    struct cm_conn *conn;      /* the connection that waits for it, unless it was left */
    struct rdma_cm_id *id;
    struct ibv_qp *qp;
    struct rdma_conn_param param;
    uint8_t data[PRIVATE_DATA_REQ_BYTES];
    union address host;
    int error; /* errno of the call */
    enum connect_step step;
    bool left, given; /* given: qp is known, or that there is none */
    bool due;         /* queued, and it may begin at once */
};

struct connect_queue {
    struct cds_list_head waiting, burials;
    struct cm_connect *calls[CONNECT_THREADS_MAX]; /* under way */
    unsigned due; /* calls that may begin, and burials: each wants a thread */
};

void connect_queue_init(struct connect_queue *q);
void connect_queue_add(struct connect_queue *q, struct cm_connect *call);
/* Out of the queue, begun or not. */
void connect_queue_remove(struct connect_queue *q, struct cm_connect *call);
/* The next call whose host has a thread left: it is under way. NULL: there is none. */
struct cm_connect *connect_queue_take(struct connect_queue *q);
void connect_queue_returned(struct connect_queue *q, struct cm_connect *call);
/* The next call of that host may begin, and no thread of the host's comes round for it. False: none waits. */
bool connect_queue_make_due(struct connect_queue *q, const union address *host);

/* A call that was left, and has an id or a queue pair to destroy. */
void connect_queue_bury(struct connect_queue *q, struct cm_connect *call);
struct cm_connect *connect_queue_take_burial(struct connect_queue *q);

/* The oldest of a list of calls, no longer in it; NULL: it is empty. */
struct cm_connect *connect_queue_pop(struct cds_list_head *list);

#endif
