/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * event.c - making, fetching, completing and acknowledging events.
 *
 * rdma_get_cm_event does more than hand out an event: it moves a QP that sits on the id, answers
 * the peer, and makes the id of a request. All that runs in the fetching thread, between the pop
 * (from when on destroying the id waits for the acknowledgement) and the return.
 */
#include "soft/cm/event.h"

#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/cm/connect.h"
#include "soft/cm/fault.h"
#include "soft/cm/id.h"
#include "soft/cm/listen.h"
#include "soft/cm/mcast.h"
#include "soft/cm/qp.h"
#include "soft/fault/inject.h"
#include "soft/ipc/control_lock.h"
#include "soft/soft.h"

static struct soft_cm_event *event_of(struct soft_cm_node *node) {
    return (struct soft_cm_event *)((char *)node - offsetof(struct soft_cm_event, node));
}

struct soft_cm_event *soft_cm_event_new(struct soft_cm_id *id, int type, int status) {
    struct soft_cm_event *event = calloc(1, sizeof *event);
    if (!event)
        return NULL;
    event->event.id = &id->id;
    event->event.event = (enum rdma_cm_event_type)type;
    event->event.status = status;
    event->node.id = id;
    return event;
}

void soft_cm_event_set_data(struct soft_cm_event *event, const uint8_t *data, size_t len) {
    if (len)
        memcpy(event->data, data, len);
    if (soft_cm_id_is_ud(event->node.id)) {
        event->event.param.ud.private_data = event->data;
        event->event.param.ud.private_data_len = (uint8_t)len;
    } else {
        event->event.param.conn.private_data = event->data;
        event->event.param.conn.private_data_len = (uint8_t)len;
    }
}

/* A fault plan may want another event behind this one. Control lock. */
static void cm_event_follow(struct soft_cm_id *id, int type) {
    soft_assert_locked();
    struct soft_cm_channel *channel = atomic_load(&id->channel);
    int next, status;
    if (!soft_fault_id_after(&id->fault, type, &next, &status) || !channel)
        return;
    struct soft_cm_event *event = soft_cm_event_new(id, next, status);
    if (event)
        soft_cm_channel_append(channel, &event->node); /* nothing follows it in turn */
}

void soft_cm_event_post(struct soft_cm_event *event) {
    struct soft_cm_id *id = event->node.id;
    struct soft_cm_channel *channel = atomic_load(&id->channel);
    int type = (int)event->event.event;
    if (channel)
        soft_cm_channel_append(channel, &event->node);
    else
        free(event);
    if (soft_fault_active())
        cm_event_follow(id, type);
}

void soft_cm_event_raise(struct soft_cm_id *id, int type, int status) {
    struct soft_cm_event *event = soft_cm_event_new(id, type, status);
    if (event)
        soft_cm_event_post(event);
}

/* ---- taking back ---------------------------------------------------------------------------------- */

struct match {
    const struct soft_cm_id *id;
    const struct cm_group *group;
};

static bool matches(const struct soft_cm_node *node, const void *arg) {
    const struct match *match = arg;
    if (node->id != match->id)
        return false;
    return !match->group ||
           (!node->user && event_of((struct soft_cm_node *)node)->group == match->group);
}

static bool matches_all(const struct soft_cm_node *node, const void *arg) {
    (void)node;
    (void)arg;
    return true;
}

static void discard(struct cds_list_head *queue) {
    for (struct soft_cm_node *node; (node = soft_cm_queue_pop(queue));) {
        if (node->user) {
            soft_cm_channel_free_user((struct soft_cm_user_node *)node);
            continue;
        }
        struct soft_cm_event *event = event_of(node);
        if (event->request)
            soft_cm_id_drop_request(event->request);
        free(event);
    }
}

void soft_cm_event_discard_all(struct soft_cm_channel *channel, struct soft_cm_id *id,
                               struct cm_group *group) {
    CDS_LIST_HEAD(queue);
    soft_cm_channel_extract(channel, matches, &(struct match){id, group}, &queue);
    discard(&queue);
}

void soft_cm_event_discard_channel(struct soft_cm_channel *channel) {
    CDS_LIST_HEAD(queue);
    soft_cm_channel_extract(channel, matches_all, NULL, &queue);
    discard(&queue);
}

void soft_cm_event_move(struct soft_cm_id *id, struct soft_cm_channel *from,
                        struct soft_cm_channel *to) {
    CDS_LIST_HEAD(queue);
    soft_cm_channel_extract(from, matches, &(struct match){id, NULL}, &queue);
    soft_cm_channel_append_all(to, &queue);
}

/* ---- counting ------------------------------------------------------------------------------------- */

void soft_cm_event_count(struct soft_cm_node *node) {
    soft_cm_id_count(node->id);
    if (!node->user && event_of(node)->group)
        soft_cm_mcast_count(event_of(node)->group);
}

/* The last touch of the id: destroying it may finish right behind. */
static void event_done(struct soft_cm_event *event) {
    struct soft_cm_id *id = event->node.id;
    if (event->group)
        soft_cm_mcast_uncount(event->group);
    free(event);
    soft_cm_id_uncount(id);
}

int soft_ack_cm_event(struct rdma_cm_event *event) {
    UNCANCELLED;
    if (!event)
        return soft_cm_fail(EINVAL);
    struct soft_cm_event *own = (struct soft_cm_event *)event;
    if (own->node.id->generation != soft_generation_now)
        return soft_cm_fail(EPERM);
    event_done(own);
    return 0;
}

/* ---- fetching ------------------------------------------------------------------------------------- */

/* A USER event becomes an event like the others. NULL and ENOMEM: it is queued again. */
static struct soft_cm_event *from_user(struct soft_cm_channel *channel, struct soft_cm_node *node) {
    struct soft_cm_event *event = soft_cm_event_new(node->id, SOFT_CM_EVENT_USER, 0);
    if (!event) {
        soft_cm_channel_unfetch(channel, node);
        errno = ENOMEM;
        return NULL;
    }
    struct soft_cm_user_node *user = (struct soft_cm_user_node *)node;
    event->event.status = user->status;
    /* param.arg of newer headers: the first eight bytes. */
    memcpy(&event->event.param, &user->arg, sizeof user->arg);
    soft_cm_channel_free_user(user);
    return event;
}

/* The reply to our request: with a QP on the id the library finishes the connection itself. */
static void complete_response(struct soft_cm_event *event) {
    struct soft_cm_id *id = event->node.id;
    if (!id->id.qp)
        return;
    if (soft_cm_qp_connect(id, RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH) ||
        soft_cm_qp_establish(id)) {
        soft_cm_qp_error(id);
        event->event.event = RDMA_CM_EVENT_CONNECT_ERROR;
        event->event.status = -1;
        id->connect_failed = true;
        return;
    }
    event->event.event = RDMA_CM_EVENT_ESTABLISHED;
    if (soft_fault_active()) {
        soft_lock();
        cm_event_follow(id, RDMA_CM_EVENT_ESTABLISHED);
        soft_unlock();
    }
}

enum verdict { DELIVER, SWALLOW, FAIL };

static enum verdict complete(struct soft_cm_channel *channel, struct soft_cm_event *event) {
    struct soft_cm_id *id = event->node.id;
    switch ((int)event->event.event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        return soft_cm_listen_fetched(channel, event) ? FAIL : DELIVER;
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
        complete_response(event);
        return DELIVER;
    case RDMA_CM_EVENT_REJECTED:
        if (id->connect_failed)
            return SWALLOW;
        soft_cm_qp_error(id);
        return DELIVER;
    case RDMA_CM_EVENT_DISCONNECTED:
        return id->connect_failed ? SWALLOW : DELIVER;
    case RDMA_CM_EVENT_MULTICAST_JOIN:
        if (event->group && event->event.status == 0 && soft_cm_mcast_attach(event->group)) {
            event->event.event = RDMA_CM_EVENT_MULTICAST_ERROR;
            event->event.status = -1;
        }
        return DELIVER;
    case RDMA_CM_EVENT_ADDR_RESOLVED:
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    case RDMA_CM_EVENT_MULTICAST_ERROR:
    case RDMA_CM_EVENT_ADDR_CHANGE:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
    case SOFT_CM_EVENT_ADDRINFO_RESOLVED:
    case SOFT_CM_EVENT_ADDRINFO_ERROR:
    case SOFT_CM_EVENT_USER:
    case SOFT_CM_EVENT_INTERNAL:
        return DELIVER; /* complete as they were made */
    }
    return DELIVER;
}

static int get_event(struct soft_cm_channel *own, struct rdma_cm_event **out, int cancel_state) {
    for (;;) {
        struct soft_cm_node *node = soft_cm_channel_fetch(own, cancel_state);
        if (!node)
            return -1;
        struct soft_cm_event *event = node->user ? from_user(own, node) : event_of(node);
        if (!event)
            return -1;
        enum verdict verdict = complete(own, event);
        if (verdict == DELIVER) {
            *out = &event->event;
            return 0;
        }
        int error = errno;
        event_done(event);
        if (verdict == FAIL)
            return soft_cm_fail(error);
    }
}

int soft_cm_get_event(struct rdma_event_channel *channel, struct rdma_cm_event **out,
                      int cancel_state) {
    if (!channel || !out)
        return soft_cm_fail(EINVAL);
    struct soft_cm_channel *own = (struct soft_cm_channel *)channel;
    if (own->generation != soft_generation_now)
        return soft_cm_fail(EPERM);
    int rc;
    soft_cm_channel_enter(own);
    pthread_cleanup_push(soft_cm_channel_leave, own);
    rc = get_event(own, out, cancel_state);
    pthread_cleanup_pop(1);
    return rc;
}

int soft_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **out) {
    UNCANCELLED;
    return soft_cm_get_event(channel, out, uncancelled_before);
}

#define NAME(event) [RDMA_CM_EVENT_##event] = "RDMA_CM_EVENT_" #event

/* As the system's library: USER and whatever it does not know have no name. */
const char *soft_event_str(enum rdma_cm_event_type event) {
    static const char *const names[] = {
        NAME(ADDR_RESOLVED),
        NAME(ADDR_ERROR),
        NAME(ROUTE_RESOLVED),
        NAME(ROUTE_ERROR),
        NAME(CONNECT_REQUEST),
        NAME(CONNECT_RESPONSE),
        NAME(CONNECT_ERROR),
        NAME(UNREACHABLE),
        NAME(REJECTED),
        NAME(ESTABLISHED),
        NAME(DISCONNECTED),
        NAME(DEVICE_REMOVAL),
        NAME(MULTICAST_JOIN),
        NAME(MULTICAST_ERROR),
        NAME(ADDR_CHANGE),
        NAME(TIMEWAIT_EXIT),
        [SOFT_CM_EVENT_ADDRINFO_RESOLVED] = "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        [SOFT_CM_EVENT_ADDRINFO_ERROR] = "RDMA_CM_EVENT_ADDRINFO_ERROR",
    };
    unsigned index = (unsigned)event;
    return index < sizeof names / sizeof names[0] ? names[index] : "UNKNOWN EVENT";
}
