/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * open.c - a session's way to UP, in step with the CM thread.
 *
 *   PREPARE  create the QP on this loop's CQ, INIT, post the receives        -> PREPARED
 *            again: the last try has used that one up: drain it, create another
 *   APPLY    RTR and RTS (a listener's session gets these with PREPARE)      -> READY
 *   ADOPT    the connection is up, and with it the session, unless there is a handshake (handshake.c)
 *   ASK      the application decides first
 *
 * Whatever fails ends in session_close(), and from there on the way of close.c.
 *
 * Owner: the loop's thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "datapath/session/open.h"
#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/session/close.h"
#include "datapath/session/queue_pair.h"
#include "core/connection_table.h"
#include "core/context.h"
#include "core/techniques.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/landing.h"
#include "datapath/rma/one_sided.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rx/credits.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/rx/srq.h"
#include "datapath/session/drain.h"
#include "datapath/session/handshake.h"
#include "datapath/session/keepalive.h"
#include "datapath/tx/coalesce.h"
#include "datapath/tx/framed.h"
#include "datapath/tx/confirm.h"
#include "fabric/fast.h"

#define SIGNAL_EVERY 16u

void session_attach(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->attached)
        return;
    s->attached = true;
    s->next = l->sessions;
    s->link = &l->sessions;
    if (s->next)
        s->next->link = &s->next;
    l->sessions = s;
}

/* Sets the values that both sides agreed on, before the first frame can come or go. */
static void agree(struct session *s) {
    struct connection *c = session_connection(s);
    const struct private_data_rep *rep = &c->cm.rep;
    const struct node_options *options = &s->node->options;
    uint64_t agreed = 1ull << rep->message_log2;
    s->tx.frame_payload = (1u << rep->eager_log2) - FRAME_BYTES;
    c->rx.payload_max = s->tx.frame_payload;
    s->rx.message_max = agreed;
    s->tx.message_max = agreed < options->message_bytes_max ? agreed : options->message_bytes_max;
    c->tx.credits = CREDITS_INITIAL;
    c->tx.reserve = CREDIT_RESERVE;
    c->tx.credits_max = c->cm.passive ? c->cm.req.credits : rep->credits;
    /* So often that a window that is full always has a signalled send in it. */
    uint64_t inline_max = c->sq.inline_max ? c->sq.inline_max : 1;
    uint64_t every = SIGNAL_EVERY;
    every = every < c->sq.depth / 4 ? every : c->sq.depth / 4;
    every = every < s->window.messages / 4 ? every : s->window.messages / 4;
    every = every < s->window.bytes / 4 / inline_max ? every : s->window.bytes / 4 / inline_max;
    if ((options->without & WITHOUT_SIGNALLING) || s->node->traits.sends_in_place)
        every = 1; /* no completion stands for another's memory */
    c->sq.signal_every = every ? (uint32_t)every : 1;
    coalesce_begin(s);
    s->framed_end = framed_end(s);
    pthread_mutex_lock(&s->node->lock);
    s->info.message_bytes_max = s->tx.message_max;
    s->info.eager_bytes = s->tx.frame_payload;
    s->info.credits = c->tx.credits_max;
    s->info.keepalive_ns = rep->keepalive * PRIVATE_DATA_KEEPALIVE_NS;
    pthread_mutex_unlock(&s->node->lock);
}

/*
 * The rights of the peer through this queue pair, given a key: rdma_cm's own answer is from before it
 * knew of READs.
 */
static unsigned remote_rights(const struct session *s) {
    unsigned rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    if (s->node->device_attr.atomic_cap != IBV_ATOMIC_NONE)
        rights |= IBV_ACCESS_REMOTE_ATOMIC;
    return rights;
}

/* Which operations one of the two devices does not have. */
static void settle_operations(struct session *s) {
    struct connection *c = session_connection(s);
    unsigned lacks = fabric_peer_lacks(s->node->fabric, c->qp);
    if (s->node->traits.no_immediate)
        lacks |= FABRIC_LACKS_IMMEDIATE;
    if (s->node->device_attr.atomic_cap == IBV_ATOMIC_NONE)
        lacks |= FABRIC_LACKS_ATOMICS;
    c->lacks = (uint8_t)lacks;
    if ((lacks & FABRIC_LACKS_ARRIVAL) && !c->confirm.on)
        confirm_init(s); /* nothing was posted yet */
}

/*
 * RTR and RTS, where the kernel does not set them. A dialer that has not made its handshake yet may only send: until
 * WELCOME its queue pair reaches no region, whatever keys it has learnt.
 */
static bool modify_up(struct session *s) {
    struct connection *c = session_connection(s);
    struct cm_conn *conn = &c->cm;
    one_sided_up(s);
    if (s->node->traits.answer_is_up) {
        settle_operations(s);
        return true; /* it is, or will be */
    }
    conn->rtr.qp_access_flags = conn->passive && c->handshake ? 0 : remote_rights(s);
    if (!session_modify(s, &conn->rtr, conn->rtr_mask | IBV_QP_ACCESS_FLAGS))
        return false;
    settle_operations(s);
    return session_modify(s, &conn->rts, conn->rts_mask);
}

/* Where the connection moves the queue pair, it has opened it already, and there is no later word on it. */
bool session_admit(struct session *s) {
    struct ibv_qp_attr attr = {.qp_access_flags = remote_rights(s)};
    return s->node->traits.answer_is_up || session_modify(s, &attr, IBV_QP_ACCESS_FLAGS);
}

static struct ibv_qp *create_qp(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    struct ibv_qp_init_attr init = {
        .qp_context = c,
        .send_cq = l->cq,
        .recv_cq = l->cq,
        .srq = c->rx.queue->srq,
        .cap = {.max_send_wr = c->sq.depth,
                .max_recv_wr = c->rx.queue->srq ? 0 : c->rx.queue->depth,
                .max_send_sge = c->sq.sges,
                .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = queue_pair_create(l->node, &init, &c->extended);
    if (qp) {
        c->sq.inline_max = init.cap.max_inline_data;
        if (init.cap.max_send_sge < c->sq.sges)
            c->sq.sges = init.cap.max_send_sge;
    }
    return qp;
}

/*
 * Shared receives, unless there are none, or the link forbids it: a peer that has not proven its identity
 * yet must not be able to take the receives of other sessions.
 */
static void choose_receives(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    const struct link_config *link = &s->link_config;
    bool stranger = c->cm.passive && link->keys;
    uint32_t most = (uint32_t)l->node->device_attr.max_qp_wr;
    struct recv_queue *shared = &l->srq.queue;
    c->rx.queue = &c->recv.own;
    if (shared->srq && !stranger && !(link->flags & SLUICE_ISOLATED) &&
        srq_room(l) + shared->spare >= CREDITS_INITIAL)
        c->rx.queue = shared;
    c->recv.own.depth =
        c->credits.max + link->requests < most ? c->credits.max + link->requests : most;
    c->recv.own.spare_max = link->requests;
    c->credits.granted = 0;
    c->rx.repost_batch = 1;
    pthread_mutex_lock(&s->node->lock);
    s->info.shared = c->rx.queue == shared;
    pthread_mutex_unlock(&s->node->lock);
}

static const char *build_qp(struct sluice_loop *l, struct session *s, sluice_reason *reason) {
    struct connection *c = session_connection(s);
    struct cm_conn *conn = &c->cm;
    choose_receives(l, s);
    uint32_t share = c->sq.depth + (c->rx.queue->srq ? 0 : c->rx.queue->depth);
    *reason = SLUICE_REASON_BUSY;
    if (l->cq_used + share > (uint32_t)l->cq_size)
        return "the completion queue of the loop has no room for another session";
    *reason = SLUICE_REASON_NO_MEMORY;
    c->sq.entries = calloc(c->sq.depth, sizeof *c->sq.entries);
    if (!c->sq.entries)
        return "out of memory";
    if (!c->rx.queue->srq && l->node->traits.silent_in_err) {
        c->recv.own.trail =
            (struct sluice_msg **)calloc(c->recv.own.depth, sizeof *c->recv.own.trail);
        if (!c->recv.own.trail)
            return "out of memory";
    }
    *reason = SLUICE_REASON_DEVICE_ERROR;
    c->qp = create_qp(l, s);
    if (!c->qp)
        return "the device cannot create another queue pair";
    c->recv.own.qp = c->qp;
    c->cq_share = share;
    l->cq_used += c->cq_share;
    if (!session_modify(s, &conn->init, conn->init_mask))
        return "the queue pair cannot be moved to INIT";
    if (conn->passive && (conn->rep.features & PRIVATE_DATA_FEATURE_HANDSHAKE))
        c->handshake = HANDSHAKE_HELLO;
    errno = ENOMEM; /* of what is not the device's */
    if (c->rx.queue->srq && !srq_join(l, s))
        return "too many queue pairs share receives";
    if (!recv_queue_prime(l, s)) {
        landing_missed(l);
        *reason = SLUICE_REASON_NO_MEMORY;
        return "no registered memory for the receive buffers";
    }
    if (!conn->passive)
        return NULL;
    c->recv.heard = true;
    agree(s);
    if (!modify_up(s))
        return "the queue pair cannot be moved to RTS";
    return NULL;
}

/* The device refused a call, and errno says why. */
static void refused(struct sluice_loop *l, struct session *s, const char *what) {
    char text[sizeof s->info.close_text];
    int error = errno;
    snprintf(text, sizeof text, "%s: %s", what, strerror(error));
    session_close(l, s, SLUICE_REASON_DEVICE_ERROR, (uint32_t)error, text);
}

void session_prepare(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    session_attach(l, s);
    if (s->state != SESSION_OPENING)
        return;
    if (session_has_qp(s)) { /* the next try; session_renewed() */
        drain_begin(l, s);
        return;
    }
    sluice_reason reason = handshake_prove(s);
    if (reason != SLUICE_REASON_NONE) {
        session_close(l, s, reason, 0, NULL);
        return;
    }
    if (c->cm.passive && c->cm.accepted)
        s->arg = c->cm.answer_arg;
    c->sq.depth = queue_pair_sends(l->node);
    c->sq.sges = queue_pair_sges(l->node);
    c->sq.mask = c->sq.depth - 1;
    c->sq.limit = c->sq.quick = c->sq.depth - SQ_RESERVE;
    if (l->node->traits.sent_is_local)
        confirm_init(s);
    const char *wrong = build_qp(l, s, &reason);
    if (wrong) {
        if (reason == SLUICE_REASON_DEVICE_ERROR)
            refused(l, s, wrong);
        else
            session_close(l, s, reason, 0, wrong);
        return;
    }
    c->cm.qp_num = c->qp->qp_num;
    c->cm.srq = c->rx.queue->srq != NULL;
    cm_post(l->node, s, CM_MSG_PREPARED);
}

/* The queue pair of the last try is gone, or no longer this session's. */
void session_renewed(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    connection_renew(c);
    c->recv.own = (struct recv_queue){0};
    c->rx.granted = c->credits.granted = 0;
    session_prepare(l, s);
}

void session_apply(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    struct cm_conn *conn = &c->cm;
    if (s->state != SESSION_OPENING)
        return;
    sluice_reason reason = handshake_verify(s);
    if (reason != SLUICE_REASON_NONE) {
        char text[sizeof s->info.close_text];
        snprintf(text, sizeof text, "the listener's answer: %s", sluice_reason_text((int)reason));
        session_close(l, s, reason, 0, reason == SLUICE_REASON_AUTH_KEY ? greet_no_key : text);
        return;
    }
    if (conn->rep.features & PRIVATE_DATA_FEATURE_HANDSHAKE)
        c->handshake = HANDSHAKE_HELLO;
    agree(s);
    c->recv.heard = true;
    if (!modify_up(s)) {
        refused(l, s, "the queue pair cannot be moved to RTS");
        return;
    }
    cm_post(l->node, s, CM_MSG_READY);
}

/* Messages may go: UP is the first event, and from now on each side hears of the other. */
void session_begin(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    pthread_mutex_lock(&l->node->lock);
    s->info.transport = fabric_transport(l->node->fabric, c->qp, s->info.transport);
    pthread_mutex_unlock(&l->node->lock);
    c->copies = s->info.transport == SLUICE_TRANSPORT_SHARED_MEMORY;
    c->shares = c->copies && rndv_agreed_copy(s);
    s->tx.rndv_above = rndv_threshold(s);
    s->tx.rpc_above = rndv_rpc_threshold(s);
    s->tx.alone_max = rndv_alone_max(s);
    keepalive_start(l, s);
    credits_start(l, s);
    event_notice(l, s, NOTICE_UP);
}

void session_adopt(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->state != SESSION_OPENING)
        return;
    s->adopted = true;
    if (session_connection(s)->handshake)
        handshake_begin(l, s);
    else
        session_begin(l, s);
}

/*
 * The first frame of a dialer whose confirmation (RTU) was not seen yet. The frame confirms as well: a
 * device on which a lost confirmation stays lost is told so. The kernel asks for it again by itself, and 6.1
 * keeps an id for a minute that is told and then disconnected at once.
 */
void session_arrived(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (!s->adopted && session_connection(s)->cm.passive && s->state == SESSION_OPENING &&
        l->node->traits.rtu_stays_lost)
        cm_post(l->node, s, CM_MSG_ARRIVED);
}

void session_ask(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    session_attach(l, s);
    if (s->state != SESSION_OPENING)
        return;
    session_ref_set(&s->ref, SESSION_REF_ASKED);
    event_notice(l, s, NOTICE_CONNECT);
}
