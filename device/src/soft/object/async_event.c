/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * async_event.c - asynchronous events: queued behind the counting eventfd of a context, fetched and acked.
 *
 * Owner: the lock of the context's queue.
 */
#define _GNU_SOURCE
#include "soft/object/async_event.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/uncancelled.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/token.h"
#include "soft/object/device.h"
#include "soft/soft.h"

struct soft_event_node {
    struct cds_list_head link;
    struct ibv_async_event event;
};

/* The QP, CQ or SRQ an event is about; NULL: the port or the device. */
static void *element_of(const struct ibv_async_event *event) {
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
        return event->element.cq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        return event->element.qp;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        return event->element.srq;
    case IBV_EVENT_WQ_FATAL:
        return event->element.wq;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
#ifdef HAVE_IBV_EVENT_DEVICE_SPEED_CHANGE
    case IBV_EVENT_DEVICE_SPEED_CHANGE:
#endif
        break;
    }
    return NULL;
}

/*
 * Of the events of the device itself only the last of a kind waits: an application that does not fetch them does not
 * make the queue grow. The token of the old one in the eventfd stays for the new one.
 */
static bool replaces_older(struct soft_event_queue *q, enum ibv_event_type type) {
    struct soft_event_node *node;
    cds_list_for_each_entry(node, &q->waiting, link) {
        if (node->event.event_type != type || element_of(&node->event))
            continue;
        cds_list_del(&node->link);
        free(node);
        return true;
    }
    return false;
}

void soft_async_event(struct ibv_context *ibctx, enum ibv_event_type type, void *element) {
    UNCANCELLED;
    struct soft_context *ctx = soft_context_of(ibctx);
    struct soft_event_node *node = calloc(1, sizeof *node);
    if (!node)
        return;
    node->event.event_type = type;
    node->event.element.qp = element; /* one pointer in a union */
    if (!element)
        node->event.element.port_num = 1;
    pthread_mutex_lock(&ctx->async.lock);
    bool told = !element && replaces_older(&ctx->async, type);
    cds_list_add_tail(&node->link, &ctx->async.waiting);
    pthread_mutex_unlock(&ctx->async.lock);
    uint64_t one = 1;
    if (!told)
        (void)!write(ctx->ibv.async_fd, &one, sizeof one);
}

int soft_get_async_event(struct ibv_context *ibctx, struct ibv_async_event *event) {
    UNCANCELLED;
    struct soft_context *ctx = soft_context_of(ibctx);
    if (soft_stale(ctx)) {
        errno = EPERM;
        return -1;
    }
    for (;;) {
        if (!soft_token_take(ctx->ibv.async_fd, uncancelled_before))
            return -1;
        pthread_mutex_lock(&ctx->async.lock);
        struct soft_event_node *node = NULL;
        if (!cds_list_empty(&ctx->async.waiting)) {
            node = cds_list_first_entry(&ctx->async.waiting, struct soft_event_node, link);
            cds_list_del(&node->link);
            /* counted until acked; under the same lock, so that a drain cannot miss it */
            if (element_of(&node->event))
                cds_list_add(&node->link, &ctx->async.fetched);
        }
        pthread_mutex_unlock(&ctx->async.lock);
        if (node) {
            *event = node->event;
            if (!element_of(&node->event))
                free(node);
            return 0;
        }
    }
}

void soft_ack_async_event(struct ibv_async_event *event) {
    UNCANCELLED;
    void *element = element_of(event);
    if (!element)
        return;
    struct ibv_context *ctx = *(struct ibv_context **)element; /* first member of all three */
    struct soft_event_queue *q = &soft_context_of(ctx)->async;
    pthread_mutex_lock(&q->lock);
    struct soft_event_node *node;
    cds_list_for_each_entry(node, &q->fetched, link) {
        if (element_of(&node->event) == element && node->event.event_type == event->event_type) {
            cds_list_del(&node->link);
            free(node);
            break;
        }
    }
    pthread_cond_broadcast(&q->acked);
    pthread_mutex_unlock(&q->lock);
}

static bool is_fetched(struct soft_event_queue *q, const void *element) {
    const struct soft_event_node *node;
    cds_list_for_each_entry(node, &q->fetched, link) {
        if (element_of(&node->event) == element)
            return true;
    }
    return false;
}

void soft_async_drain(struct ibv_context *ibctx, void *element) {
    struct soft_context *ctx = soft_context_of(ibctx);
    struct soft_event_queue *q = &ctx->async;
    pthread_mutex_lock(&q->lock);
    struct soft_event_node *node, *next;
    cds_list_for_each_entry_safe(node, next, &q->waiting, link) {
        if (element_of(&node->event) != element)
            continue;
        cds_list_del(&node->link);
        uint64_t token; /* a fetcher that holds it already finds the queue empty and waits on */
        struct iovec iov = {.iov_base = &token, .iov_len = sizeof token};
        (void)!preadv2(ctx->ibv.async_fd, &iov, 1, -1, RWF_NOWAIT);
        free(node);
    }
    while (is_fetched(q, element))
        pthread_cond_wait(&q->acked, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

void soft_async_free(struct soft_context *ctx) {
    struct soft_event_node *node, *next;
    cds_list_for_each_entry_safe(node, next, &ctx->async.waiting, link)
        free(node);
}
