/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * close.c - every way a session ends, in step with the CM thread.
 *
 *   DOWN     the CM thread saw the connection fail or end
 *   RELEASE  (to the CM thread) disconnect, or refuse, whatever fits
 *   DRAIN    QP to ERR; every posted receive and one marker behind every send come back -> DRAINED
 *   GONE     the id is destroyed; CLOSED, and the slot is free
 *
 * Draining. Receives are counted. Sends are not all signalled, and one that succeeded silently
 * never completes again; so a signalled marker is posted in ERR, which is flushed after the rest.
 *
 * The first reason wins, with exceptions: a connection that went down before the peer's BYE was
 * looked at is "lost" only until that BYE is found among the frames that had arrived, or until it turns out
 * that the device was lost, or until the device reports that the queue pair broke.
 *
 * What a failed completion says is failure.c's; reap.c frees what has ended.
 *
 * Owner: the loop's thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/uncancelled.h"
#include "core/failure_text.h"
#include "core/resumable.h"
#include "datapath/session/close.h"
#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/tx/post.h"
#include "core/context.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rpc/client.h"
#include "datapath/rpc/server.h"
#include "datapath/session/down.h"
#include "datapath/session/drain.h"
#include "datapath/session/guest.h"
#include "datapath/session/handshake.h"
#include "datapath/session/move.h"
#include "datapath/session/open.h"
#include "datapath/session/queue_pair.h"
#include "datapath/session/redial.h"
#include "datapath/session/send_completion.h"
#include "datapath/tx/unacked.h"

#define DOWN_POLLS 4u      /* empty polls after which nothing that had arrived is left */
#define DOWN_POLLS_MAX 64u /* and with other sessions busy */
#define SILENT_LOOKS 5u    /* at a BYE that the peer does not take */
#define REPEATS 2u         /* that it gets, where it may have been lost */

/* ---- reasons and steps ----------------------------------------------------------------------- */

static void set_deadline(struct sluice_loop *l, struct session *s, uint64_t due_ns) {
    uint64_t cap = atomic_load_explicit(&l->node->close_deadline_ns, memory_order_relaxed);
    s->close.deadline_ns = due_ns < cap ? due_ns : cap;
    if (s->close.deadline_ns == 0)
        s->close.deadline_ns = 1;
    loop_deadline(l, s->close.deadline_ns);
}

static void set_reason(struct session *s, sluice_reason reason, uint32_t vendor, uint16_t code,
                       const char *text) {
    if (s->close.reason != SLUICE_REASON_NONE)
        return; /* the first counts */
    pthread_mutex_lock(&s->node->lock);
    s->close.reason = reason;
    s->close.vendor = vendor;
    s->info.close_code = code;
    snprintf(s->info.close_text, sizeof s->info.close_text, "%s",
             text && *text ? text : sluice_reason_text((int)reason));
    pthread_mutex_unlock(&s->node->lock);
}

void close_note_cause(struct session *s, int32_t cm_event, int32_t cm_status, int32_t wc_status) {
    pthread_mutex_lock(&s->node->lock);
    if (cm_event >= 0 && s->info.cm_event < 0) {
        s->info.cm_event = cm_event;
        s->info.cm_status = cm_status;
    }
    if (wc_status >= 0 && (s->info.wc_status < 0 || s->info.wc_status == IBV_WC_WR_FLUSH_ERR))
        s->info.wc_status = wc_status;
    pthread_mutex_unlock(&s->node->lock);
}

void close_settle(struct session *s, sluice_reason reason, uint32_t vendor, const char *text) {
    pthread_mutex_lock(&s->node->lock);
    s->close.reason = reason;
    s->close.vendor = vendor;
    snprintf(s->info.close_text, sizeof s->info.close_text, "%s",
             text ? text : sluice_reason_text((int)reason));
    pthread_mutex_unlock(&s->node->lock);
    s->close.reason_provisional = false;
}

/* Of this side's application, or of its node. */
static const char *own_end(sluice_reason reason) {
    return reason == SLUICE_REASON_NODE_CLOSED ? "sluice_close() of this side's node"
                                               : "this side's application hung up";
}

static void release(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    struct private_data_rej *rej = &c->cm.release;
    if (session_is_guest(s))
        guest_ended(s);
    else
        move_abandon(l, s);
    if (!s->resume.draining) /* else a device may still read the first of it: drained() */
        send_drop_queue(l, s, SLUICE_ECLOSED);
    if (s->resume.listed)
        resumable_remove(l->node, s);
    session_set_state(s, SESSION_RELEASED);
    s->close.deadline_ns = c->drain.deadline_ns = 0;
    session_ref_set(&s->ref, SESSION_REF_ANSWERED); /* too late to accept or refuse */
    if (c->drain.down_polls > 0) {
        c->drain.down_polls = 0;
        l->downs--;
    }
    /* The refusal for a peer that still waits for an answer. */
    memset(rej, 0, sizeof *rej);
    bool own = s->close.reason == SLUICE_REASON_LOCAL_CLOSE;
    rej->reason = own ? SLUICE_REASON_REFUSED : (uint16_t)s->close.reason;
    snprintf(rej->text, sizeof rej->text, "%.*s", PRIVATE_DATA_REJ_TEXT,
             own ? "the application hung up" : s->info.close_text);
    cm_post(l->node, c, CM_MSG_RELEASE);
}

void session_close(struct sluice_loop *l, struct session *s, sluice_reason reason, uint32_t vendor,
                   const char *text) {
    UNCANCELLED;
    loop_assert_inside(l);
    session_attach(l, s);
    if (s->state >= SESSION_RELEASED || down_begin(l, s, reason, vendor, text) ||
        redial_begin(l, s, reason, vendor, text))
        return;
    session_end(l, s, reason, vendor, text);
}

void session_end(struct sluice_loop *l, struct session *s, sluice_reason reason, uint32_t vendor,
                 const char *text) {
    loop_assert_inside(l);
    set_reason(s, reason, vendor, 0, text);
    session_ref_clear(&s->ref, SESSION_REF_OPEN);
    if (session_connection(s)->qp &&
        (reason == SLUICE_REASON_CREDITS || reason == SLUICE_REASON_PROTOCOL)) {
        /* This peer may send no more frames. */
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        connection_modify(session_connection(s), &attr, IBV_QP_STATE);
        log_write(&l->node->log, SLUICE_LOG_WARNING, "session with %s closed: %s", s->peer.address,
                  s->info.close_text);
    }
    release(l, s);
}

/*
 * How long nothing may move. A device that repeats is silent for the timeout of the queue pair when a packet was lost, and
 * a queue pair that is destroyed repeats nothing.
 */
static uint64_t silence_of(const struct session *s) {
    const struct connection *c = session_connection(s);
    uint64_t silence = SILENT_LOOKS * LINGER_NS;
    struct ibv_qp_attr attr = {0};
    struct ibv_qp_init_attr init;
    if (!s->node->traits.repeats || c->qp == NULL ||
        s->node->fabric->query_qp(c->qp, &attr, IBV_QP_TIMEOUT, &init) != 0 || attr.timeout == 0)
        return silence;
    silence += REPEATS * (UINT64_C(4096) << (attr.timeout & 31));
    return silence < LEAVE_MOST_NS ? silence : LEAVE_MOST_NS;
}

/* The last words are on their way; grace that is left is theirs. */
static void begin_leaving(struct sluice_loop *l, struct session *s) {
    uint64_t now = loop_clock(l), grace_end = s->close.deadline_ns, silence = silence_of(s);
    session_set_state(s, SESSION_LEAVING);
    s->close.leave_end_ns = now + node_leave_ns(s->node);
    s->close.leave_head = unacked_done(session_connection(s));
    s->close.silent_looks = 0;
    s->close.looks_most = (uint32_t)(silence / LINGER_NS);
    set_deadline(l, s, grace_end > now + LINGER_NS ? grace_end : now + LINGER_NS);
}

/* A peer, or a host, that is slow takes what is ahead of them; one that is gone takes nothing. */
static bool leaving_goes_on(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    bool moved = unacked_done(c) != s->close.leave_head;
    s->close.leave_head = unacked_done(c);
    s->close.silent_looks = moved ? 0 : s->close.silent_looks + 1;
    if (s->close.silent_looks >= s->close.looks_most || l->now_ns >= s->close.leave_end_ns)
        return false;
    set_deadline(l, s, l->now_ns + LINGER_NS);
    return s->close.deadline_ns > l->now_ns;
}

static void leave(struct sluice_loop *l, struct session *s) {
    begin_leaving(l, s);
    s->close.bye_posted = send_control(l, s, FRAME_BYE);
}

/* A listener's connection that is there, with a dialer that waits for WELCOME or REFUSE, or is about to. */
static bool may_refuse(const struct session *s) {
    const struct connection *c = session_connection(s);
    bool early = s->node->traits.dialer_first && c->handshake == HANDSHAKE_HELLO;
    return c->handshake && !early && s->adopted && c->cm.passive && s->state == SESSION_OPENING;
}

void session_hangup(struct sluice_loop *l, struct session *s, uint64_t grace_ns) {
    loop_assert_inside(l);
    session_attach(l, s);
    bool closing = atomic_load_explicit(&l->node->state, memory_order_relaxed) == NODE_CLOSING;
    sluice_reason reason = closing ? SLUICE_REASON_NODE_CLOSED : SLUICE_REASON_LOCAL_CLOSE;
    s->close.hungup = true;
    if (s->state > SESSION_FLUSHING)
        return;
    if (s->state == SESSION_OPENING && may_refuse(s)) {
        struct private_data_rej rej = {.reason = closing ? SLUICE_REASON_NODE_CLOSED
                                                         : SLUICE_REASON_REFUSED};
        snprintf(rej.text, sizeof rej.text, "%s",
                 closing ? own_end(reason) : "the application hung up");
        session_refuse(l, s, reason, &rej);
        return;
    }
    if (s->state == SESSION_OPENING) {
        session_close(l, s, reason, 0, own_end(reason));
        return;
    }
    uint64_t now = loop_clock(l);
    uint64_t due = grace_ns > UINT64_MAX - now ? UINT64_MAX : now + grace_ns;
    if (s->state == SESSION_DOWN) {
        session_ref_clear(&s->ref, SESSION_REF_OPEN);
        set_reason(s, reason, 0, 0, own_end(reason));
        if (s->move.step == MOVE_DRAINS) { /* another connection is there already */
            down_hangup(l, s, due > now + LINGER_NS ? due : now + LINGER_NS);
            return;
        }
        if (closing && !s->link_config.dialing) { /* its dialer is not let in any more */
            session_end(l, s, reason, 0, NULL);
            return;
        }
        down_hangup(l, s, due);
        return;
    }
    if (s->state == SESSION_FLUSHING) { /* again: the shorter grace counts */
        if (due < s->close.deadline_ns && !s->move.lingers)
            set_deadline(l, s, due);
        return;
    }
    session_ref_clear(&s->ref, SESSION_REF_OPEN);
    set_reason(s, reason, 0, 0, own_end(reason));
    rpc_server_hungup(l, s);
    session_flush_until(l, s, due);
}

void session_flush_until(struct sluice_loop *l, struct session *s, uint64_t due_ns) {
    loop_assert_inside(l);
    move_hungup(l, s);
    session_set_state(s, SESSION_FLUSHING);
    set_deadline(l, s, due_ns);
    send_flush(l, s);
    session_progress(l, s);
    session_timer(l, s);
}

void session_refuse(struct sluice_loop *l, struct session *s, sluice_reason reason,
                    const struct private_data_rej *rej) {
    loop_assert_inside(l);
    uint8_t data[PRIVATE_DATA_REJ_BYTES];
    size_t bytes = private_data_rej_encode(rej, data);
    if (s->state != SESSION_OPENING)
        return;
    session_ref_set(&s->ref, SESSION_REF_ANSWERED);
    set_reason(s, reason, 0, 0,
               reason == SLUICE_REASON_LOCAL_CLOSE ? "this side's application refused or hung up"
                                                   : rej->text);
    s->close.deadline_ns = 0;
    begin_leaving(l, s);
    s->close.bye_posted = send_control_with(l, s, FRAME_REFUSE, data, (uint32_t)bytes);
}

void session_refused(struct sluice_loop *l, struct session *s, const struct private_data_rej *rej) {
    loop_assert_inside(l);
    sluice_reason reason = failure_text_reason_of_refusal(rej);
    uint32_t vendor = reason == SLUICE_REASON_REFUSED ? rej->code : 0;
    char text[sizeof s->info.close_text];
    failure_text_of_refusal(text, sizeof text, rej, true); /* only a listener sends one */
    set_reason(s, reason, vendor, rej->code, text);
    session_close(l, s, reason, vendor, text);
}

static const char said_bye[] = "the peer's application hung up, or its node was closed";

void session_peer_bye(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->state < SESSION_RELEASED) {
        session_close(l, s, SLUICE_REASON_PEER_CLOSE, 0, said_bye);
        return;
    }
    if (s->close.reason_provisional) /* it had said good-bye before its connection went down */
        close_settle(s, SLUICE_REASON_PEER_CLOSE, 0, said_bye);
}

/* This side's own decision, with the connection as good as ever: the peer is told. */
static bool told_no(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    sluice_reason reason = c->cm.down.reason;
    struct private_data_rej rej = {.reason = (uint16_t)reason};
    if (!may_refuse(s) || (reason != SLUICE_REASON_TIMEOUT && reason != SLUICE_REASON_NO_LISTENER &&
                           reason != SLUICE_REASON_BUSY))
        return false;
    snprintf(rej.text, sizeof rej.text, "%.*s", PRIVATE_DATA_REJ_TEXT, c->cm.down.text);
    session_refuse(l, s, reason, &rej);
    return true;
}

/* The connection is down; what had arrived is still to be looked at. */
void session_down(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    session_attach(l, s);
    close_note_cause(s, c->cm.down.cm_event, c->cm.down.cm_status, -1);
    /* A flush says that the queue pair broke; the device's event, which comes later, says why. */
    if (s->state >= SESSION_RELEASED && s->close.reason_provisional &&
        s->close.reason == SLUICE_REASON_PEER_LOST &&
        (c->cm.down.reason == SLUICE_REASON_DEVICE_ERROR ||
         c->cm.down.reason == SLUICE_REASON_ACCESS))
        close_settle(s, c->cm.down.reason, c->cm.down.vendor, c->cm.down.text);
    if (s->state >= SESSION_RELEASED || c->drain.down_polls || told_no(l, s))
        return;
    /* Frames that had arrived at a listener's side show that the dialer was up: close_down_now(). */
    if (s->announced || s->adopted || (c->cm.passive && c->recv.heard)) {
        c->drain.down_polls = 1;
        l->downs++;
    } else {
        close_down_now(l, s);
    }
}

void close_adopt_heard(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    if (s->state == SESSION_OPENING && !s->adopted && c->cm.passive && !c->handshake &&
        s->rx.held.head)
        session_adopt(l, s);
}

void close_down_now(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    if (s->state >= SESSION_RELEASED || move_broken(l, s))
        return;
    close_adopt_heard(l, s);
    s->close.reason_provisional =
        c->cm.down.reason == SLUICE_REASON_PEER_LOST && s->close.reason == SLUICE_REASON_NONE;
    set_reason(s, c->cm.down.reason, c->cm.down.vendor, c->cm.down.code, c->cm.down.text);
    session_close(l, s, c->cm.down.reason, c->cm.down.vendor, c->cm.down.text);
}

unsigned session_check_downs(struct sluice_loop *l) {
    loop_assert_inside(l);
    unsigned count = 0;
    for (struct session *s = l->sessions; s && l->downs > 0; s = s->next) {
        struct drain *drain = &session_connection(s)->drain;
        if (drain->down_polls == 0)
            continue;
        /* Polls that brought nothing count much; the others, so that a busy loop ends too. */
        drain->down_polls += l->wc_count == 0 ? DOWN_POLLS_MAX / DOWN_POLLS : 1;
        if (drain->down_polls <= DOWN_POLLS_MAX)
            continue;
        close_down_now(l, s); /* and with it downs is one less */
        count++;
    }
    return count;
}

/* ---- progress -------------------------------------------------------------------------------- */

void session_wait_for_pins(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (!s->close.waits_for_pins) {
        s->close.waits_for_pins = true;
        l->pin_waits++;
    }
}

void session_progress(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    switch ((enum session_state)s->state) {
    case SESSION_FLUSHING:
        if (s->tx.queue.head || s->tx.replies.head || rpc_client_pending(s) || rndv_pending(s) ||
            unacked_some(c) || s->resume.kept || s->move.step >= MOVE_QUIETS)
            break;
        if (session_ref_count(&s->ref) == s->window.foreign_taken)
            leave(l, s);
        else
            session_wait_for_pins(l, s); /* a message was accepted and is not in the mailbox yet */
        break;
    case SESSION_LEAVING:
        if (!s->close.bye_posted)
            s->close.bye_posted = send_control(l, s, FRAME_BYE);
        else if ((int32_t)(unacked_told(c) - s->close.bye_index) > 0)
            release(l, s);
        break;
    case SESSION_DRAINING:
        drain_progress(l, c);
        break;
    case SESSION_OPENING:
    case SESSION_DOWN:
        if (c->drain.renewing)
            drain_progress(l, c);
        break;
    case SESSION_FREE:
    case SESSION_UP:
    case SESSION_RELEASED:
    case SESSION_DRAINED:
    case SESSION_GONE:
        break;
    }
}

void connection_progress(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    if (session_connection(c->session) == c)
        session_progress(l, c->session);
    else if (c->drain.began)
        drain_progress(l, c);
}

void session_timer(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    down_timer(l, s);
    move_timer(l, s);
    if (s->close.deadline_ns == 0)
        return;
    if (l->now_ns < s->close.deadline_ns) {
        loop_deadline(l, s->close.deadline_ns);
        return;
    }
    switch ((enum session_state)s->state) {
    case SESSION_FLUSHING:
        if (s->move.step >= MOVE_SAID && !s->move.lingers) { /* the peer may be on the other one */
            s->move.lingers = true;
            s->close.deadline_ns = l->now_ns + LINGER_NS;
            loop_deadline(l, s->close.deadline_ns);
            break;
        }
        send_drop_queue(l, s, SLUICE_ECLOSED);
        leave(l, s);
        break;
    case SESSION_LEAVING:
        if (!leaving_goes_on(l, s))
            release(l, s);
        break;
    case SESSION_OPENING:
    case SESSION_DOWN:
        handshake_nudge(l, s);
        break;
    case SESSION_FREE:
    case SESSION_UP:
    case SESSION_RELEASED:
    case SESSION_DRAINING: /* drain_timer() */
    case SESSION_DRAINED:
    case SESSION_GONE:
        break;
    }
}

/* Its completions, or calls that failed, were faster than the news that the device is gone. */
static bool device_in_doubt(const struct session *s) {
    return s->close.reason_provisional || s->close.reason == SLUICE_REASON_DEVICE_ERROR ||
           (s->close.reason == SLUICE_REASON_UNREACHABLE && s->info.cm_event < 0);
}

void session_gone(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    /* The device has reported all events of the queue pair: it could not be destroyed before. */
    if (s->close.reason_provisional && s->close.reason == SLUICE_REASON_PEER_LOST &&
        atomic_load(&session_connection(s)->accessed))
        close_settle(s, SLUICE_REASON_ACCESS, IBV_EVENT_QP_ACCESS_ERR,
                     "the peer accessed memory that it may not");
    session_set_state(s, SESSION_GONE);
    if (atomic_load_explicit(&l->node->device_lost, memory_order_relaxed) && device_in_doubt(s))
        close_settle(s, SLUICE_REASON_DEVICE_REMOVED, 0, NULL);
    event_notice(l, s, NOTICE_CLOSED);
}
