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
#include "core/resumable.h"
#include "datapath/session/close.h"
#include "datapath/session/coming.h"
#include "datapath/session/down.h"
#include "datapath/session/connections.h"
#include "datapath/session/queue_pair.h"
#include "core/connection_table.h"
#include "core/context.h"
#include "core/techniques.h"
#include "datapath/loop/loop.h"
#include "datapath/rx/landing.h"
#include "datapath/rma/one_sided.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rx/credits.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/rx/srq.h"
#include "datapath/session/drain.h"
#include "datapath/session/guest.h"
#include "datapath/session/handshake.h"
#include "datapath/session/keepalive.h"
#include "datapath/tx/coalesce.h"
#include "datapath/tx/framed.h"
#include "datapath/tx/confirm.h"
#include "fabric/fast.h"

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
    if (s->state ==
        SESSION_DOWN) { /* the rest is as it was, and other threads read it: coming_agree() */
        connection_agree(c);
        s->framed_end = framed_end(s);
        return;
    }
    s->tx.frame_payload = (1u << rep->eager_log2) - FRAME_BYTES;
    s->rx.message_max = agreed;
    s->tx.message_max = agreed < options->message_bytes_max ? agreed : options->message_bytes_max;
    connection_agree(c);
    coalesce_begin(s);
    s->framed_end = framed_end(s);
    pthread_mutex_lock(&s->node->lock);
    s->info.message_bytes_max = s->tx.message_max;
    s->info.eager_bytes = s->tx.frame_payload;
    s->info.credits = c->tx.credits_max;
    s->info.keepalive_ns = rep->keepalive * PRIVATE_DATA_KEEPALIVE_NS;
    s->info.close_text[0] = 0; /* of tries that failed */
    pthread_mutex_unlock(&s->node->lock);
}

/* A listener's queue pair: up before the dialer hears of it. */
static const char *answer(struct connection *c, sluice_reason *reason) {
    *reason = SLUICE_REASON_DEVICE_ERROR;
    if (c->cm.rep.features & PRIVATE_DATA_FEATURE_HANDSHAKE)
        c->handshake = HANDSHAKE_HELLO;
    else if (c->cm.resume.on)
        c->handshake = HANDSHAKE_RESUME;
    c->recv.heard = true;
    agree(c->session);
    return connection_up(c) ? NULL : "the queue pair cannot be moved to RTS";
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
    if (!session_opens(s))
        return;
    if (connection_has_qp(c)) { /* the next try; session_renewed() */
        drain_begin(l, s);
        return;
    }
    if (s->resume.draining)
        return; /* down_drained() */
    const char *other = c->cm.resume.on && c->cm.passive ? coming_agree(l, s) : NULL;
    if (other) {
        session_close(l, s, SLUICE_REASON_PROTOCOL, 0, other);
        return;
    }
    c->cm.rep.last_sequence = c->rx.sequence;
    sluice_reason reason = handshake_prove(s);
    if (reason != SLUICE_REASON_NONE) {
        session_close(l, s, reason, 0, NULL);
        return;
    }
    if (c->cm.passive && c->cm.accepted && !c->cm.resume.on)
        s->arg = c->cm.answer_arg;
    const char *wrong = connection_build(l, c, &reason);
    if (session_connection(s) != c)
        return; /* the device refused its receives, and it was given up for that */
    if (!wrong && c->cm.passive)
        wrong = answer(c, &reason);
    if (wrong) {
        if (reason == SLUICE_REASON_DEVICE_ERROR)
            refused(l, s, wrong);
        else
            session_close(l, s, reason, 0, wrong);
        return;
    }
    c->cm.qp_num = c->qp->qp_num;
    c->cm.srq = c->rx.queue->srq != NULL;
    cm_post(l->node, c, CM_MSG_PREPARED);
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
    if (!session_opens(s))
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
    else if (conn->resume.on)
        c->handshake = HANDSHAKE_RESUME;
    const char *other = conn->resume.on ? coming_agree(l, s) : NULL;
    if (other) {
        session_close(l, s, SLUICE_REASON_PROTOCOL, 0, other);
        return;
    }
    agree(s);
    c->recv.heard = true;
    if (!connection_up(c)) {
        refused(l, s, "the queue pair cannot be moved to RTS");
        return;
    }
    cm_post(l->node, c, CM_MSG_READY);
}

/* By which its listener knows it; guests_dial() reads it. */
static void note_id(struct session *s) {
    pthread_mutex_lock(&s->node->lock);
    memcpy(s->resume.id, session_connection(s)->cm.req.session_id, sizeof s->resume.id);
    pthread_mutex_unlock(&s->node->lock);
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
    one_sided_agreed(c);
    if (session_is_guest(s)) { /* which says nothing more */
        guest_ready(l, s);
        return;
    }
    keepalive_start(l, s);
    credits_start(l, c);
    c->served = true;
    if (s->state == SESSION_DOWN) {
        down_over(l, s);
        return;
    }
    if (connection_keeps(c) && c->cm.passive)
        resumable_add(l->node, s, c->cm.rep.session_id);
    else if (connection_keeps(c))
        note_id(s);
    event_notice(l, s, NOTICE_UP);
}

void session_adopt(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (!session_opens(s))
        return;
    if (s->adopted)
        return; /* the first frame was faster */
    s->adopted = true;
    if (session_connection(s)->handshake == HANDSHAKE_RESUME)
        session_connection(s)->handshake = HANDSHAKE_NONE;
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
    if (!s->adopted && session_connection(s)->cm.passive && session_opens(s) &&
        l->node->traits.rtu_stays_lost)
        cm_post(l->node, session_connection(s), CM_MSG_ARRIVED);
}

void session_ask(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    session_attach(l, s);
    if (s->state != SESSION_OPENING)
        return;
    session_ref_set(&s->ref, SESSION_REF_ASKED);
    event_notice(l, s, NOTICE_CONNECT);
}
