/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * messages.c - a loop's mailbox: each message is taken to what it is a part of (core/loop_msg.h).
 *
 * Owner: the loop's thread.
 */
#include "datapath/progress/messages.h"

#include "core/context.h"
#include "datapath/loop/events.h"
#include "datapath/rpc/cancel.h"
#include "datapath/rx/retain.h"
#include "datapath/rx/srq.h"
#include "datapath/session/close.h"
#include "datapath/session/coming.h"
#include "datapath/session/drain.h"
#include "datapath/session/guest.h"
#include "datapath/session/hand_over.h"
#include "datapath/session/handshake.h"
#include "datapath/session/move.h"
#include "datapath/session/open.h"
#include "datapath/tx/send.h"

static struct sluice_msg *message_of_item(struct mpsc_queue_item *item) {
    return (struct sluice_msg *)(void *)((char *)item - offsetof(struct sluice_msg, item));
}

static void on_hangup(struct sluice_loop *l, struct session *s) {
    /* First: a later call posts again or is seen below. */
    session_ref_clear(&s->ref, SESSION_REF_HANGUP | SESSION_REF_OPEN);
    uint64_t grace =
        atomic_exchange_explicit(&s->foreign.hangup_grace, UINT64_MAX, memory_order_acq_rel);
    if (!session_is_guest(s) || !guest_stays(s))
        session_hangup(l, s, grace);
}

static void on_device_lost(struct sluice_loop *l) {
    l->lost = l->unheard = true;
    for (struct session *s = l->sessions; s; s = s->next)
        if (s->state == SESSION_DOWN)
            session_end(l, s, SLUICE_REASON_DEVICE_REMOVED, 0, DEVICE_LOST_TEXT);
    for (struct session *s = l->sessions; s; s = s->next)
        for (struct connection *c = session_connection(s); c; c = c->next)
            if (c->drain.began && !c->drain.renewing && c->qp && c->rx.queue->srq)
                srq_drain(l, c);
}

/* The session sends over another one: how this one ends is no end of the session. */
static void of_former(struct sluice_loop *l, struct connection *c, enum loop_msg verb) {
    switch (verb) {
    case LOOP_MSG_DOWN:
        connection_retire(l, c);
        break;
    case LOOP_MSG_DRAIN:
        connection_drain(l, c);
        break;
    case LOOP_MSG_GONE:
        c->drain.over = true;
        l->retired += c->sq.entries == NULL; /* else when its frames were sent again */
        if (c->session->move.guest)
            loop_dirty(l, c->session); /* which may have waited for that */
        if (c->session->state == SESSION_GONE &&
            !c->session->over) /* CLOSED may have waited for this one */
            event_notice(l, c->session, NOTICE_CLOSED);
        break;
    default: /* it was up before it was a former one */
        break;
    }
}

static void of_connection(struct sluice_loop *l, struct connection *c, enum loop_msg verb) {
    struct session *s = c->session;
    session_assert_mine(s, l);
    if (c->coming) {
        coming_arrived(l, c, verb);
        if (session_connection(s) != c)
            return; /* it is retired, and none other of its messages is on its way */
    }
    if (verb == LOOP_MSG_LAST_WQE) {
        srq_last(l, c);
        return;
    }
    if (session_connection(s) != c) {
        of_former(l, c, verb);
        return;
    }
    switch (verb) {
    case LOOP_MSG_ASK:
        session_ask(l, s);
        break;
    case LOOP_MSG_PREPARE:
        session_prepare(l, s);
        break;
    case LOOP_MSG_APPLY:
        session_apply(l, s);
        break;
    case LOOP_MSG_ADOPT:
        session_adopt(l, s);
        break;
    case LOOP_MSG_HANDSHAKE_ANSWER:
        handshake_answered(l, s);
        break;
    case LOOP_MSG_DOWN:
        session_down(l, s);
        break;
    case LOOP_MSG_DRAIN:
        session_drain(l, s);
        break;
    case LOOP_MSG_GONE:
        session_gone(l, s);
        break;
    default: /* of something else */
        break;
    }
}

static void of_session(struct sluice_loop *l, struct session *s, enum loop_msg verb) {
    switch (verb) {
    case LOOP_MSG_GUEST_READY:
        move_guest_ready(l, s);
        return;
    case LOOP_MSG_GUEST_LOST:
        move_guest_lost(l, s);
        return;
    default:
        break;
    }
    session_assert_mine(s, l);
    switch (verb) {
    case LOOP_MSG_WRITABLE_WAIT:
        session_ref_clear(&s->ref, SESSION_REF_WRITABLE_WAIT);
        send_wait_requested(l, s);
        break;
    case LOOP_MSG_REQUESTS:
        rpc_cancel_take_msg(l, s);
        break;
    case LOOP_MSG_HANGUP:
        on_hangup(l, s);
        break;
    case LOOP_MSG_ASK_MOVE:
        session_ref_clear(&s->ref, SESSION_REF_ASKS_MOVE);
        move_ask(l, s);
        break;
    case LOOP_MSG_MOVE:
        hand_over_arrived(l, s);
        break;
    default: /* of something else */
        break;
    }
}

static void take(struct sluice_loop *l, struct mpsc_queue_item *item) {
    enum loop_msg verb = (enum loop_msg)item->verb;
    if (verb == LOOP_MSG_SEND) {
        send_arrived(l, message_of_item(item));
        return;
    }
    if (verb == LOOP_MSG_FREE) {
        retain_free_arrived(l, message_of_item(item));
        return;
    }
    loop_uncancelled(l);
    if (verb == LOOP_MSG_DEVICE_LOST)
        on_device_lost(l);
    else if (verb == LOOP_MSG_SRQ_LOW)
        srq_low(l);
    else if (verb < LOOP_MSG_SESSION_COUNT)
        of_session(l, session_table_at(session_handle_make(l->node->index, item->slot, 0)), verb);
    else
        of_connection(l, connection_table_at(l->node->connections, item->slot), verb);
}

unsigned loop_take_msgs(struct sluice_loop *l) {
    loop_assert_inside(l);
    unsigned count = 0;
    struct mpsc_queue_item *item;
    /* All of them where one said that a session is here: then it can be this loop's own (hand_over.c). */
    while ((count < LOOP_MSGS_MAX || l->arriving > 0) &&
           (item = mpsc_queue_take(&l->mailbox.queue))) {
        take(l, item);
        count++;
    }
    if (unlikely(l->arriving > 0) && mpsc_queue_empty(&l->mailbox.queue))
        hand_over_own(l);
    return count;
}
