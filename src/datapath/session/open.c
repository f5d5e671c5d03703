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
    const struct private_data_rep *rep = &s->connection.cm.rep;
    const struct node_options *options = &s->node->options;
    uint64_t agreed = 1ull << rep->message_log2;
    s->tx.frame_payload = (1u << rep->eager_log2) - FRAME_BYTES;
    s->connection.rx.payload_max = s->tx.frame_payload;
    s->rx.message_max = agreed;
    s->tx.message_max = agreed < options->message_bytes_max ? agreed : options->message_bytes_max;
    s->connection.tx.credits = CREDITS_INITIAL;
    s->connection.tx.reserve = CREDIT_RESERVE;
    s->connection.tx.credits_max =
        s->connection.cm.passive ? s->connection.cm.req.credits : rep->credits;
    /* So often that a window that is full always has a signalled send in it. */
    uint64_t inline_max = s->connection.sq.inline_max ? s->connection.sq.inline_max : 1;
    uint64_t every = SIGNAL_EVERY;
    every = every < s->connection.sq.depth / 4 ? every : s->connection.sq.depth / 4;
    every = every < s->window.messages / 4 ? every : s->window.messages / 4;
    every = every < s->window.bytes / 4 / inline_max ? every : s->window.bytes / 4 / inline_max;
    if ((options->without & WITHOUT_SIGNALLING) || s->node->traits.sends_in_place)
        every = 1; /* no completion stands for another's memory */
    s->connection.sq.signal_every = every ? (uint32_t)every : 1;
    coalesce_begin(s);
    s->framed_end = framed_end(s);
    pthread_mutex_lock(&s->node->lock);
    s->info.message_bytes_max = s->tx.message_max;
    s->info.eager_bytes = s->tx.frame_payload;
    s->info.credits = s->connection.tx.credits_max;
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
    unsigned lacks = fabric_peer_lacks(s->node->fabric, s->connection.qp);
    if (s->node->traits.no_immediate)
        lacks |= FABRIC_LACKS_IMMEDIATE;
    if (s->node->device_attr.atomic_cap == IBV_ATOMIC_NONE)
        lacks |= FABRIC_LACKS_ATOMICS;
    s->connection.lacks = (uint8_t)lacks;
    if ((lacks & FABRIC_LACKS_ARRIVAL) && !s->connection.confirm.on)
        confirm_init(s); /* nothing was posted yet */
}

/*
 * RTR and RTS, where the kernel does not set them. A dialer that has not made its handshake yet may only send: until
 * WELCOME its queue pair reaches no region, whatever keys it has learnt.
 */
static bool modify_up(struct session *s) {
    struct cm_conn *conn = &s->connection.cm;
    one_sided_up(s);
    if (s->node->traits.answer_is_up) {
        settle_operations(s);
        return true; /* it is, or will be */
    }
    conn->rtr.qp_access_flags = conn->passive && s->connection.handshake ? 0 : remote_rights(s);
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
    struct ibv_qp_init_attr init = {
        .qp_context = s,
        .send_cq = l->cq,
        .recv_cq = l->cq,
        .srq = s->connection.rx.queue->srq,
        .cap = {.max_send_wr = s->connection.sq.depth,
                .max_recv_wr = s->connection.rx.queue->srq ? 0 : s->connection.rx.queue->depth,
                .max_send_sge = s->connection.sq.sges,
                .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = queue_pair_create(l->node, &init, &s->connection.extended);
    if (qp) {
        s->connection.number = ++l->connections;
        s->connection.sq.inline_max = init.cap.max_inline_data;
        if (init.cap.max_send_sge < s->connection.sq.sges)
            s->connection.sq.sges = init.cap.max_send_sge;
    }
    return qp;
}

/*
 * Shared receives, unless there are none, or the link forbids it: a peer that has not proven its identity
 * yet must not be able to take the receives of other sessions.
 */
static void choose_receives(struct sluice_loop *l, struct session *s) {
    const struct link_config *link = &s->link_config;
    bool stranger = s->connection.cm.passive && link->keys;
    uint32_t most = (uint32_t)l->node->device_attr.max_qp_wr;
    struct recv_queue *shared = &l->srq.queue;
    s->connection.rx.queue = &s->connection.recv.own;
    if (shared->srq && !stranger && !(link->flags & SLUICE_ISOLATED) &&
        srq_room(l) + shared->spare >= CREDITS_INITIAL)
        s->connection.rx.queue = shared;
    s->connection.recv.own.depth = s->connection.credits.max + link->requests < most
                                       ? s->connection.credits.max + link->requests
                                       : most;
    s->connection.recv.own.spare_max = link->requests;
    s->connection.credits.granted = 0;
    s->connection.rx.repost_batch = 1;
    pthread_mutex_lock(&s->node->lock);
    s->info.shared = s->connection.rx.queue == shared;
    pthread_mutex_unlock(&s->node->lock);
}

static const char *build_qp(struct sluice_loop *l, struct session *s, sluice_reason *reason) {
    struct cm_conn *conn = &s->connection.cm;
    choose_receives(l, s);
    uint32_t share =
        s->connection.sq.depth + (s->connection.rx.queue->srq ? 0 : s->connection.rx.queue->depth);
    *reason = SLUICE_REASON_BUSY;
    if (l->cq_used + share > (uint32_t)l->cq_size)
        return "the completion queue of the loop has no room for another session";
    *reason = SLUICE_REASON_NO_MEMORY;
    s->connection.sq.entries = calloc(s->connection.sq.depth, sizeof *s->connection.sq.entries);
    if (!s->connection.sq.entries)
        return "out of memory";
    if (!s->connection.rx.queue->srq && l->node->traits.silent_in_err) {
        s->connection.recv.own.trail = (struct sluice_msg **)calloc(
            s->connection.recv.own.depth, sizeof *s->connection.recv.own.trail);
        if (!s->connection.recv.own.trail)
            return "out of memory";
    }
    *reason = SLUICE_REASON_DEVICE_ERROR;
    s->connection.qp = create_qp(l, s);
    if (!s->connection.qp)
        return "the device cannot create another queue pair";
    s->connection.recv.own.qp = s->connection.qp;
    s->connection.cq_share = share;
    l->cq_used += s->connection.cq_share;
    if (!session_modify(s, &conn->init, conn->init_mask))
        return "the queue pair cannot be moved to INIT";
    if (conn->passive && (conn->rep.features & PRIVATE_DATA_FEATURE_HANDSHAKE))
        s->connection.handshake = HANDSHAKE_HELLO;
    errno = ENOMEM; /* of what is not the device's */
    if (s->connection.rx.queue->srq && !srq_join(l, s))
        return "too many queue pairs share receives";
    if (!recv_queue_prime(l, s)) {
        landing_missed(l);
        *reason = SLUICE_REASON_NO_MEMORY;
        return "no registered memory for the receive buffers";
    }
    if (!conn->passive)
        return NULL;
    s->connection.recv.heard = true;
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
    if (s->connection.cm.passive && s->connection.cm.accepted)
        s->arg = s->connection.cm.answer_arg;
    s->connection.sq.depth = queue_pair_sends(l->node);
    s->connection.sq.sges = queue_pair_sges(l->node);
    s->connection.sq.mask = s->connection.sq.depth - 1;
    s->connection.sq.limit = s->connection.sq.quick = s->connection.sq.depth - SQ_RESERVE;
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
    s->connection.cm.qp_num = s->connection.qp->qp_num;
    s->connection.cm.srq = s->connection.rx.queue->srq != NULL;
    cm_post(l->node, s, CM_MSG_PREPARED);
}

/* The queue pair of the last try is gone, or no longer this session's. */
void session_renewed(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    s->connection.recv.own = (struct recv_queue){0};
    s->connection.rx.granted = s->connection.credits.granted = 0;
    session_prepare(l, s);
}

void session_apply(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct cm_conn *conn = &s->connection.cm;
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
        s->connection.handshake = HANDSHAKE_HELLO;
    agree(s);
    s->connection.recv.heard = true;
    if (!modify_up(s)) {
        refused(l, s, "the queue pair cannot be moved to RTS");
        return;
    }
    cm_post(l->node, s, CM_MSG_READY);
}

/* Messages may go: UP is the first event, and from now on each side hears of the other. */
void session_begin(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    pthread_mutex_lock(&l->node->lock);
    s->info.transport = fabric_transport(l->node->fabric, s->connection.qp, s->info.transport);
    pthread_mutex_unlock(&l->node->lock);
    s->connection.copies = s->info.transport == SLUICE_TRANSPORT_SHARED_MEMORY;
    s->connection.shares = s->connection.copies && rndv_agreed_copy(s);
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
    if (s->connection.handshake)
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
    if (!s->adopted && s->connection.cm.passive && s->state == SESSION_OPENING &&
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
