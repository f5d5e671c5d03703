/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_attr.c - the CM thread's queries to the device: QP attributes, limits, asynchronous events.
 *
 * Owner: the CM thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cm/internal.h"
#include "core/auth/keyring.h"
#include "core/context.h"
#include "core/session_table.h"
#include "fabric/fast.h"

#define MIN_RNR_TIMER 12 /* 0.64 ms; 0 would mean 655 ms */
#define ACK_TIMEOUT 14   /* 67 ms, where rdma_cm leaves 0, which means for ever */
#define DEPTH_MAX 16     /* one-sided operations in flight that are proposed */

/* rdma_cm opens contexts of its own: the device is compared, not the context. */
bool cm_same_device(struct cm *cm, struct rdma_cm_id *id) {
    cm_assert_thread(cm);
    const struct fabric_ops *fabric = cm->node->fabric;
    if (!id->verbs || !cm->node->context)
        return false;
    if (id->verbs == cm->node->context)
        return true;
    if (strcmp(fabric->get_device_name(id->verbs->device),
               fabric->get_device_name(cm->node->context->device)) != 0)
        return false;
    fabric->cm_mark(&cm->mark, id->verbs);
    return true;
}

bool cm_attributes(struct cm *cm, struct cm_conn *conn, enum ibv_qp_state state,
                   struct ibv_qp_attr *attr, int *mask) {
    cm_assert_thread(cm);
    memset(attr, 0, sizeof *attr);
    attr->qp_state = state;
    *mask = 0;
    if (cm->node->fabric->init_qp_attr(conn->owner.id, attr, mask) != 0)
        return false;
    if (state == IBV_QPS_INIT && cm->node->traits.answer_is_up) {
        /* There is no later word on it; of keys see RTR. */
        attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        *mask |= IBV_QP_ACCESS_FLAGS;
    }
    if (state == IBV_QPS_RTR) {
        attr->min_rnr_timer = MIN_RNR_TIMER;
        /* The rights that rdma_cm gives at INIT depend on what it knew of the connection by then. A peer's key
         * makes no use of the QP's rights, unless a region was opened with rights. */
        attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        if (cm->node->device_attr.atomic_cap != IBV_ATOMIC_NONE)
            attr->qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
        *mask |= IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS;
    }
    if (state == IBV_QPS_RTS) {
        if (attr->timeout == 0)
            attr->timeout = ACK_TIMEOUT;
        attr->retry_cnt = conn->retry_count;
        attr->rnr_retry = conn->rnr_retry_count;
        *mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
    }
    return true;
}

static uint8_t depth(int device_max) {
    return (uint8_t)(device_max < 0 ? 0 : device_max > DEPTH_MAX ? DEPTH_MAX : device_max);
}

/* A listener can make a handshake with every peer; a dialer asks for it when it has something to say, or has to speak
 * first. */
static uint32_t features(const struct cm *cm, const struct link_config *link) {
    uint32_t bits = PRIVATE_DATA_FEATURE_ENDED | PRIVATE_DATA_FEATURE_NUMBERS |
                    PRIVATE_DATA_FEATURE_ANSWERS | PRIVATE_DATA_FEATURE_PIECES;
    if (cm->node->traits.shares)
        bits |= PRIVATE_DATA_FEATURE_SHARED;
    if (link->resume_ns > 0)
        bits |=
            PRIVATE_DATA_FEATURE_RESUME | PRIVATE_DATA_FEATURE_AGAIN | PRIVATE_DATA_FEATURE_MOVE;
    if (link->resume_ns > 0 && !link->dialing) /* where a dialer asks for it */
        bits |= PRIVATE_DATA_FEATURE_RESUMES | PRIVATE_DATA_FEATURE_JOINS;
    if (!link->dialing || link->private_bytes > 0 || cm->node->traits.dialer_first)
        bits |= PRIVATE_DATA_FEATURE_HANDSHAKE;
    if (link->keys)
        bits |= PRIVATE_DATA_FEATURE_HANDSHAKE | PRIVATE_DATA_FEATURE_HMAC;
    if (cm->node->traits.sent_is_local)
        bits |= PRIVATE_DATA_FEATURE_PROBE;
    return bits;
}

void cm_offer_probe(struct cm *cm, struct private_data_req *out) {
    cm_assert_thread(cm);
    if (fabric_peers_differ(cm->node->fabric) && probe_open(cm->node) == 0)
        out->features |= PRIVATE_DATA_FEATURE_PROBE;
}

void cm_proposal(struct cm *cm, const struct link_config *link, struct private_data_req *out) {
    cm_assert_thread(cm);
    const struct node_options *options = &cm->node->options;
    *out = (struct private_data_req){
        .version_min = PRIVATE_DATA_VERSION_MIN,
        .version_max = PRIVATE_DATA_VERSION_MAX,
        .features = features(cm, link),
        .eager_log2 = (uint8_t)options->eager_log2,
        .message_log2 = (uint8_t)options->message_log2,
        .depth_in = depth(cm->node->device_attr.max_qp_rd_atom),
        .depth_out = depth(cm->node->device_attr.max_qp_init_rd_atom),
        .credits = (uint16_t)link->credits,
        .key_id = link->dialing ? keyring_dial_id(link->keys) : 0,
        .keepalive = (uint16_t)link->keepalive,
    };
}

/* ---- asynchronous events --------------------------------------------------------------------- */

static void qp_failed(struct cm *cm, struct ibv_qp *qp, enum ibv_event_type type) {
    struct connection *c = qp->qp_context; /* the event, not acknowledged yet, keeps the QP alive */
    if (!c)
        return; /* left to the connector */
    struct cm_conn *conn = &c->cm;
    bool access = type == IBV_EVENT_QP_ACCESS_ERR;
    /* An iWARP device says so when the connection under a queue pair breaks while it sends: FATAL of what was
     * posted, REQ_ERR of the answer to a READ of the peer. */
    bool broke = !access && cm->node->traits.sent_is_local;
    sluice_reason reason = access  ? SLUICE_REASON_ACCESS
                           : broke ? SLUICE_REASON_PEER_LOST
                                   : SLUICE_REASON_DEVICE_ERROR;
    if (access)
        atomic_store(&c->accessed,
                     true); /* for a loop that was told "lost" before this was known */
    const char *what = access  ? "the peer accessed memory that it may not"
                       : broke ? "the connection broke while something was sent"
                               : "the queue pair failed";
    if (cm_try_broke(cm, conn, reason, (uint32_t)type, what))
        return;
    cm_fail(cm, conn, reason, (uint32_t)type, "%s (event %d)", what, (int)type);
    if (conn->reported || conn->owner.state != CM_RELEASED)
        return;
    /* Its completions were faster, and nothing said why. As long as the QP lives, GONE is still to be
     * posted: the message arrives while there is a session. */
    conn->reported = true;
    conn->down = (struct cm_failure){.reason = reason, .vendor = (uint32_t)type, .cm_event = -1};
    snprintf(conn->down.text, sizeof conn->down.text, "%s (event %d)", what, (int)type);
    cm_tell_loop(conn, LOOP_MSG_DOWN);
}

static void on_async(struct cm *cm, const struct ibv_async_event *event) {
    struct cm_conn *conn;
    cm_async_event_count(cm, event);
    switch (event->event_type) {
    case IBV_EVENT_DEVICE_FATAL:
        cm_device_lost(cm);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
        qp_failed(cm, event->element.qp, event->event_type);
        break;
    case IBV_EVENT_COMM_EST: {
        struct connection *c = event->element.qp->qp_context;
        if (c)
            cm_arrived(cm, &c->cm);
        break;
    }
    case IBV_EVENT_CQ_ERR:
        log_write(&cm->node->log, SLUICE_LOG_ERROR, "a completion queue overran");
        cds_list_for_each_entry(conn, &cm->conns, link) {
            if (connection_of_conn(conn)->loop == event->element.cq->cq_context)
                cm_fail(cm, conn, SLUICE_REASON_DEVICE_ERROR, (uint32_t)event->event_type,
                        "the completion queue overran");
        }
        break;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
        cm->node->upcalls->loop_srq_low(event->element.srq->srq_context);
        break;
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
        /* Once in a queue pair's life; while it lives the connection is not freed, nor while this is posted. */
        struct connection *c = event->element.qp->qp_context;
        if (c)
            cm->node->upcalls->loop_last_wqe(c->loop, c);
        break;
    }
    case IBV_EVENT_SRQ_ERR:
        log_write(&cm->node->log, SLUICE_LOG_ERROR, "a shared receive queue failed");
        cds_list_for_each_entry(conn, &cm->conns, link) {
            if (connection_of_conn(conn)->loop == event->element.srq->srq_context)
                cm_fail(cm, conn, SLUICE_REASON_DEVICE_ERROR, (uint32_t)event->event_type,
                        "the shared receive queue failed");
        }
        break;
    case IBV_EVENT_PORT_ERR:    /* a cable may be put back: the sessions find out by themselves */
    case IBV_EVENT_PORT_ACTIVE: /* what waits goes on by itself */
    case IBV_EVENT_LID_CHANGE:  /* what addresses mean is rdma_cm's business */
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
        cm_async_event_port(cm, event);
        break;
    case IBV_EVENT_SQ_DRAINED: /* SQD is not used */
    case IBV_EVENT_PATH_MIG:   /* nor alternate paths */
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_WQ_FATAL: /* nor work queues */
#ifdef HAVE_IBV_EVENT_DEVICE_SPEED_CHANGE
    case IBV_EVENT_DEVICE_SPEED_CHANGE: /* nothing here is reckoned from a port's rate */
#endif
        cm_async_event_device(cm, event);
        break;
    }
}

int cm_async(struct cm *cm, unsigned *count) {
    cm_assert_thread(cm);
    const struct fabric_ops *fabric = cm->node->fabric;
    struct ibv_async_event event;
    *count = 0;
    if (!cm->node->context)
        return 0;
    while (fabric->get_async_event(cm->node->context, &event) == 0) {
        on_async(cm, &event);
        fabric->ack_async_event(&event);
        ++*count;
    }
    return errno;
}
