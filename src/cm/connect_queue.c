/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connect_queue.c - which call of rdma_connect() begins next: a host that does not answer keeps HOST_MAX threads at
 * most, and other hosts' calls go ahead of the next one of it.
 *
 * Owner: the connector's lock.
 */
#include "cm/connect_queue.h"

#include "cm/addrinfo.h"

#define HOST_MAX 4 /* calls under way to one host */

void connect_queue_init(struct connect_queue *q) {
    *q = (struct connect_queue){0};
    CDS_INIT_LIST_HEAD(&q->waiting);
    CDS_INIT_LIST_HEAD(&q->burials);
}

struct cm_connect *connect_queue_pop(struct cds_list_head *list) {
    if (cds_list_empty(list))
        return NULL;
    struct cm_connect *call = cds_list_first_entry(list, struct cm_connect, link);
    cds_list_del_init(&call->link);
    return call;
}

static unsigned calls_to(const struct connect_queue *q, const union address *host) {
    unsigned count = 0;
    for (unsigned i = 0; i < CONNECT_THREADS_MAX; i++)
        count += q->calls[i] && cm_same_host(&q->calls[i]->host, host);
    return count;
}

static bool is_crowded(const struct connect_queue *q, const struct cm_connect *call) {
    return calls_to(q, &call->host) >= HOST_MAX;
}

/* Whether it could begin at once, behind those of its host that are in the queue already. */
static bool may_begin(const struct connect_queue *q, const struct cm_connect *call) {
    unsigned before = calls_to(q, &call->host);
    const struct cm_connect *at;
    cds_list_for_each_entry(at, &q->waiting, link)
        before += cm_same_host(&at->host, &call->host);
    return before < HOST_MAX;
}

void connect_queue_remove(struct connect_queue *q, struct cm_connect *call) {
    cds_list_del_init(&call->link);
    q->due -= call->due;
    call->due = false;
}

static void begin(struct connect_queue *q, struct cm_connect *call) {
    connect_queue_remove(q, call);
    call->step = CONNECT_CALLING;
    for (unsigned i = 0; i < CONNECT_THREADS_MAX; i++)
        if (!q->calls[i]) {
            q->calls[i] = call;
            break;
        }
}

struct cm_connect *connect_queue_take(struct connect_queue *q) {
    struct cm_connect *call;
    cds_list_for_each_entry(call, &q->waiting, link) {
        if (!is_crowded(q, call)) {
            begin(q, call);
            return call;
        }
    }
    return NULL;
}

void connect_queue_add(struct connect_queue *q, struct cm_connect *call) {
    call->due = may_begin(q, call);
    q->due += call->due;
    cds_list_add_tail(&call->link, &q->waiting);
}

void connect_queue_returned(struct connect_queue *q, struct cm_connect *call) {
    call->step = CONNECT_RETURNED;
    for (unsigned i = 0; i < CONNECT_THREADS_MAX; i++)
        if (q->calls[i] == call)
            q->calls[i] = NULL;
}

bool connect_queue_make_due(struct connect_queue *q, const union address *host) {
    struct cm_connect *call;
    cds_list_for_each_entry(call, &q->waiting, link) {
        if (call->due || !cm_same_host(&call->host, host))
            continue;
        call->due = true;
        q->due++;
        return true;
    }
    return false;
}

void connect_queue_bury(struct connect_queue *q, struct cm_connect *call) {
    cds_list_add_tail(&call->link, &q->burials);
    q->due++;
}

struct cm_connect *connect_queue_take_burial(struct connect_queue *q) {
    struct cm_connect *call = connect_queue_pop(&q->burials);
    if (call)
        q->due--;
    return call;
}
