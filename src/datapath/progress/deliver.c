/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * deliver.c - delivering events: to a session's handler, or into the array of the thread that polls.
 *
 * Order within a session: CONNECT, UP, messages, ..., CLOSED. CLOSED waits until every outcome was
 * delivered and every frame that arrived was looked at.
 *
 * Owner: the loop's thread.
 */
#include "datapath/progress/deliver.h"

#include "core/context.h"
#include "datapath/loop/discard.h"
#include "datapath/loop/events.h"
#include "datapath/progress/receive.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rx/coalesced.h"
#include "datapath/rx/landing.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/session/close.h"
#include "datapath/session/connections.h"
#include "datapath/session/down.h"
#include "datapath/session/hand_over.h"
#include "datapath/session/reap.h"

/* ---- outcomes -------------------------------------------------------------------------------- */

static unsigned deliver_outcomes(struct sluice_loop *l) {
    unsigned count = 0;
    struct sluice_msg *msg;
    while ((msg = l->outcomes.head)) {
        struct session *s = session_table_at(msg->outcome.session_id);
        if (!loop_room(l, s))
            break;
        if (unlikely(s->notices & NOTICE_MOVED)) { /* first */
            hand_over_tell(l, s);
            count++;
            continue;
        }
        msg_queue_pop(&l->outcomes);
        sluice_event event = {
            .type = SLUICE_SENT,
            .status = msg->outcome.status,
            .session = event_handle(s),
            .arg = s->arg,
            .tag = msg->outcome.tag,
            .bytes = msg->size > UINT32_MAX ? UINT32_MAX : (uint32_t)msg->size,
        };
        if (msg->kind == MSG_REQUEST) {
            event.type = SLUICE_REPLY; /* without a reply: refused, or it never came */
            event.bytes = 0;
            event.vendor = event.status == SLUICE_EREJECTED ? msg->outcome.id : 0;
        } else if (msg->kind == MSG_ONE_SIDED) {
            event.type = SLUICE_DONE;
            event.value = msg->outcome.value;
        }
        msg_discard(l, msg);
        s->outcomes--;
        event_emit(l, s, &event);
        if (s->outcomes == 0 && s->state == SESSION_GONE)
            event_notice(l, s, NOTICE_CLOSED);
        count++;
    }
    return count;
}

/* ---- a session's own --------------------------------------------------------------------------- */

static void emit_simple(struct sluice_loop *l, struct session *s, sluice_event_type type) {
    sluice_event event = {.type = (uint16_t)type, .session = event_handle(s), .arg = s->arg};
    if (type == SLUICE_CONNECT)
        event.peer = &s->peer;
    event_emit(l, s, &event);
}

static uint32_t slot_of(struct session *s) {
    return session_handle_slot(atomic_load_explicit(&s->id, memory_order_relaxed));
}

static void deliver_up(struct sluice_loop *l, struct session *s) {
    s->announced = true;
    s->known = true;
    landing_meet(l, s);
    l->totals.sessions++;
    l->totals_moved = true;
    stats_session_up(l->node->stats.page, slot_of(s), event_handle(s).id, l->index,
                     s->info.transport, s->peer.address);
    if (s->state == SESSION_OPENING) {
        session_set_state(s, SESSION_UP);
        pthread_mutex_lock(&l->node->lock);
        s->info.up = 1;
        pthread_mutex_unlock(&l->node->lock);
        session_ref_set(&s->ref, SESSION_REF_OPEN);
    }
    if (s->rx.held.head)
        s->notices |= NOTICE_HELD;
    if (connection_keeps(session_connection(s)))
        loop_dirty(l, s); /* what came before is owed an acknowledgement */
    emit_simple(l, s, SLUICE_UP);
}

/* The list's head is s and leaves it. */
static void pop_notice(struct sluice_loop *l, struct session *s) {
    l->notices = s->notice_next;
    if (!l->notices)
        l->notices_tail = &l->notices;
    s->noticed = false;
}

/* "Closed" is no failure, except to an application that dialed and whose session never came up. */
static sluice_status status_of(const struct session *s) {
    sluice_status status = reason_status(s->close.reason);
    bool refused = status == SLUICE_OK && !session_connection(s)->cm.passive && !s->announced &&
                   !s->close.hungup;
    return refused ? SLUICE_EREJECTED : status;
}

/* Frees held frames, the partial message and buffers that wait to be posted. */
static void drop_received(struct sluice_loop *l, struct session *s) {
    struct sluice_msg *msg;
    rndv_drop(l, s);
    while ((msg = msg_queue_pop(&s->rx.held))) {
        if (msg->flags & MSG_OPENED)
            coalesced_release(l, msg); /* messages of it may be lent */
        else
            recv_buffer_put(l, msg);
    }
    if (s->rx.partial) {
        landing_done(l, s, s->rx.partial->size);
        msg_discard(l, s->rx.partial);
    }
    s->rx.partial = NULL;
    if (s->rx.partial_reply)
        recv_buffer_put(l, s->rx.partial_reply);
    s->rx.partial_reply = NULL;
    recv_queue_forget(l, session_connection(s));
}

/* False: it must wait, and is noticed again by what ends the wait. */
static bool deliver_closed(struct sluice_loop *l, struct session *s) {
    if (s->outcomes > 0 || !connections_are_over(s))
        return false;
    if (s->rx.held.head && s->announced && !s->close.hungup && !s->rx.stopped && !loop_discards(l))
        return false; /* what arrived is delivered before the end; memory is short */
    if (atomic_load_explicit(&s->ref, memory_order_acquire) &
        (SESSION_REF_USERS | SESSION_REF_COUNT)) {
        /* Another thread is about to hand over a message that was accepted: it has an outcome. */
        session_wait_for_pins(l, s);
        return false;
    }
    drop_received(l, s);
    pop_notice(l, s);
    session_table_uncount(l->node->index);
    if (s->announced) {
        l->totals.sessions--;
        l->totals_moved = true;
        stats_session_down(l->node->stats.page, slot_of(s));
    }
    if (s->known) {
        sluice_event event = {
            .type = SLUICE_CLOSED,
            .reason = (uint16_t)s->close.reason,
            .status = status_of(s),
            .session = event_handle(s),
            .arg = s->arg,
            .vendor = s->close.vendor,
        };
        event_emit(l, s, &event);
    }
    session_free(l, s);
    return true;
}

/* Everything the head of the list has to tell; false when there is no room for more. */
static bool deliver_session(struct sluice_loop *l, struct session *s, unsigned *count) {
    loop_uncancelled(l);
    while (s->notices) {
        /* The end of a session the application never heard of is no event and needs no room. */
        if (!loop_room(l, s) && (s->known || s->notices != NOTICE_CLOSED))
            return false;
        ++*count;
        if (s->notices & NOTICE_MOVED) { /* before anything else on this loop */
            hand_over_tell(l, s);
        } else if (s->notices & NOTICE_CONNECT) {
            s->notices &= (uint8_t)~NOTICE_CONNECT;
            if (s->state == SESSION_OPENING) { /* else it ended before the application knew of it */
                s->known = true;
                emit_simple(l, s, SLUICE_CONNECT);
            }
        } else if (s->notices & NOTICE_UP) {
            s->notices &= (uint8_t)~NOTICE_UP;
            deliver_up(l, s);
        } else if (s->notices & (NOTICE_DOWN | NOTICE_RESUMED)) {
            down_tell(l, s);
        } else if (s->notices & NOTICE_HELD) {
            receive_held(l, s);
            if (s->rx.held.head && !s->retry && !s->rx.stopped && !s->rx.held_pending)
                return false;
            s->notices &= (uint8_t)~NOTICE_HELD;
            if (!s->rx.held.head && s->state == SESSION_GONE)
                s->notices |= NOTICE_CLOSED;
        } else if (s->notices & NOTICE_WRITABLE) {
            s->notices &= (uint8_t)~NOTICE_WRITABLE;
            if (session_accepts(s))
                emit_simple(l, s, SLUICE_WRITABLE);
        } else {
            s->notices &= (uint8_t)~NOTICE_CLOSED;
            if (deliver_closed(l, s))
                return true; /* the session is gone, and off the list */
        }
    }
    pop_notice(l, s);
    return true;
}

static unsigned deliver_wake(struct sluice_loop *l) {
    bool nowhere = loop_discards(l) || l->out_max == 0;
    if (l->defer_events || (!nowhere && l->out_count == l->out_max) ||
        !(atomic_fetch_and_explicit(&l->wake, ~LOOP_WAKE_EVENT, memory_order_acquire) &
          LOOP_WAKE_EVENT))
        return 0;
    if (nowhere)
        l->handled++; /* the poll returns all the same */
    else
        l->out[l->out_count++] = (sluice_event){.type = SLUICE_WAKE};
    return 1;
}

unsigned event_deliver(struct sluice_loop *l) {
    loop_assert_inside(l);
    unsigned count = 0;
    if (l->outcomes.head)
        count += deliver_outcomes(l);
    while (l->notices)
        if (!deliver_session(l, l->notices, &count))
            break;
    if (atomic_load_explicit(&l->wake, memory_order_relaxed))
        count += deliver_wake(l);
    return count;
}

unsigned event_listeners(struct sluice_loop *l) {
    loop_assert_inside(l);
    unsigned count = 0;
    struct listener_end end;
    for (;;) {
        bool array =
            loop_discards(l) || (l->out_count < l->out_max && l->loan_count < LOOP_LOANS_MAX);
        enum listener_news news = l->node->upcalls->listener_next_end(
            l->node, l, array, loop_discards(l) || !l->defer_events, &end);
        l->unheard = news != LISTENERS_TOLD;
        if (news != LISTENERS_NEXT)
            return count;
        count++;
        const sluice_event event = {
            .type = SLUICE_CLOSED,
            .reason = SLUICE_REASON_DEVICE_REMOVED,
            .status = reason_status(SLUICE_REASON_DEVICE_REMOVED),
            .session = {end.id},
            .arg = end.arg,
        };
        if (end.handler && loop_call_begin(l, LOOP_NOWHERE)) {
            loop_handled(l);
            end.handler(&event, end.handler_arg);
            loop_call_end(l);
        } else if (!end.handler && !loop_discards(l)) {
            l->out[l->out_count++] = event;
        }
    }
}
