/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hand_over.c - a session of one loop becomes another's, while it is down between two connections (move.c).
 *
 * It has no queue pair then, no receives and nothing in the device's hands; what it has is memory. The loop that has it gives it away
 * when nothing of it is in a list of the loop, lent to the application, or on its way to the loop. The last is what the reference says: no
 * thread is inside, and all that was counted was taken. In one step with finding that, the reference keeps others out (MOVING),
 * for as long as it takes to change whose mailbox gets what is for it. So the other loop's first message of it is MOVE.
 *
 * That loop has it from then on, and owns it a little later: its own thread may have sent something through the mailbox before, which
 * what it sends now must not overtake. So it does when the mailbox is empty. Until then `loop` is NULL, and every thread sends through
 * it. And it goes on over the other connection when MOVED was told, so that this is the first event here.
 *
 * Owner: the loop's thread.
 */
#include "datapath/session/hand_over.h"

#include <pthread.h>

#include "base/stats.h"
#include "core/context.h"
#include "datapath/loop/events.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rx/alloc_wait.h"
#include "datapath/rx/srq.h"
#include "datapath/session/close.h"
#include "datapath/session/move.h"
#include "datapath/session/open.h"

#define LOOKS 100u

/* ---- giving ------------------------------------------------------------------------------------ */

static bool is_lent(const struct sluice_loop *l, const struct session *s) {
    for (uint32_t i = 0; i < l->loan_count; i++)
        if (l->loans[i].conn->session == s)
            return true;
    return false;
}

/* Events are in the application's hands, that it may not have looked at. */
static bool is_told(const struct sluice_loop *l, const struct session *s) {
    uint64_t id = atomic_load_explicit(&s->id, memory_order_relaxed);
    for (uint32_t i = 0; !s->handler && i < l->out_count; i++)
        if (l->out[i].session.id == id)
            return true;
    return false;
}

/* The CM thread and the device know nothing of it any more. */
static bool are_over(const struct session *s) {
    const struct connection *c = session_connection(s);
    if (!c->unused || c->qp)
        return false;
    for (c = c->next; c; c = c->next)
        if (!c->drain.over || atomic_load(&c->last_posted))
            return false;
    return true;
}

static bool may_go(const struct sluice_loop *l, const struct session *s) {
    const struct session_resume *r = &s->resume;
    return s->state == SESSION_DOWN && !s->dirty && s->outcomes == 0 && !s->close.waits_for_pins &&
           !r->draining && !r->fences && r->behind == 0 && !l->defer_events && !is_lent(l, s) &&
           !is_told(l, s) && are_over(s) &&
           atomic_load_explicit(&s->loop, memory_order_relaxed) == l;
}

static void leave_notices(struct sluice_loop *l, struct session *s) {
    struct session **at = &l->notices;
    if (!s->noticed)
        return;
    while (*at != s)
        at = &(*at)->notice_next;
    *at = s->notice_next;
    if (!*at)
        l->notices_tail = at;
    s->noticed = false;
}

/* A frame that is held is a receive of this loop no more. */
static void unshare(struct sluice_loop *l, struct sluice_msg *frame) {
    if (!frame || !(frame->flags & MSG_SHARED))
        return;
    srq_forget(l, frame->rx.srq_slot);
    frame->flags &= (uint16_t)~MSG_SHARED;
}

/* How many connections connections_reap() has to look for here. */
static uint32_t reapable(const struct session *s) {
    uint32_t count = 0;
    for (const struct connection *c = session_connection(s)->next; c; c = c->next)
        count += c->drain.over && !c->sq.entries;
    return count;
}

static void leave_loop(struct sluice_loop *l, struct session *s) {
    for (struct sluice_msg *frame = s->rx.held.head; frame; frame = frame->next)
        unshare(l, frame);
    unshare(l, s->rx.partial_reply);
    if (s->rndv)
        rndv_leave(l, s);
    leave_notices(l, s);
    hand_over_forget(l, s);
    s->waits_memory |= alloc_wait_pending(l);
    l->retries -= s->retry;
    s->retry = false;
    l->retired -= reapable(s);
    l->totals.sessions -= s->announced;
    l->totals.retained -= (uint64_t)(int64_t)(int32_t)session_connection(s)->credits.retained;
    l->totals_moved = true;
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    s->attached = false;
}

/* Threads that find the window full come and go all the time: there are moments without one. */
static bool keep_out(struct session *s) {
    for (unsigned look = 0; look < LOOKS; look++)
        if (session_ref_begin_move(&s->ref, s->window.foreign_taken))
            return true;
    return false;
}

bool hand_over_try(struct sluice_loop *l, struct session *s, struct sluice_loop *to) {
    loop_assert_inside(l);
    session_assert_mine(s, l);
    if (!may_go(l, s) || !keep_out(s))
        return false;
    leave_loop(l, s);
    for (struct connection *c = session_connection(s); c; c = c->next)
        c->loop = to;
    s->link_config.loop = to;
    atomic_fetch_add_explicit(&to->assigned, 1, memory_order_relaxed);
    atomic_store_explicit(&s->loop, NULL, memory_order_relaxed);
    atomic_store_explicit(&s->mail, to, memory_order_relaxed);
    loop_post(to, s, LOOP_MSG_MOVE);
    session_ref_end_move(&s->ref);
    atomic_fetch_sub_explicit(&l->assigned, 1, memory_order_release);
    return true;
}

/* ---- having ------------------------------------------------------------------------------------ */

void hand_over_tell(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    sluice_event event = {.type = SLUICE_MOVED};
    s->notices &= (uint8_t)~NOTICE_MOVED;
    event_plain(l, s, &event);
    move_handed_over(l, s);
}

void hand_over_arrived(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    session_assert_mine(s, l);
    session_attach(l, s);
    l->retired += reapable(s);
    l->totals.sessions += s->announced;
    l->totals.retained += (uint64_t)(int64_t)(int32_t)session_connection(s)->credits.retained;
    l->totals_moved = true;
    l->arriving++;
    uint64_t id = atomic_load_explicit(&s->id, memory_order_relaxed);
    pthread_mutex_lock(&l->node->lock);
    s->info.moved++;
    pthread_mutex_unlock(&l->node->lock);
    if (s->announced)
        stats_session_up(l->node->stats.page, session_handle_slot(id), id, l->index,
                         s->info.transport, s->peer.address);
    if (s->waits_memory)
        alloc_wait_again(l);
    if (s->rx.held.head)
        s->notices |= NOTICE_HELD;
    event_notice(l, s, NOTICE_MOVED);
    loop_deadline(l, loop_clock(l));
    if (l->lost || atomic_load_explicit(&l->node->device_lost, memory_order_relaxed))
        session_end(l, s, SLUICE_REASON_DEVICE_REMOVED, 0, DEVICE_LOST_TEXT);
    else if (loop_room(l, s))
        hand_over_tell(l, s);
    l->crowded |= s->notices != 0;
}

/* ---- waiting ------------------------------------------------------------------------------------ */

void hand_over_wait(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    l->leaving += !s->move.leaves;
    s->move.leaves = true;
}

void hand_over_forget(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    l->leaving -= s->move.leaves;
    s->move.leaves = false;
}

unsigned hand_over_progress(struct sluice_loop *l) {
    loop_assert_inside(l);
    unsigned count = 0;
    for (struct session *s = l->sessions, *next; s && l->leaving > 0; s = next) {
        next = s->next;
        if (s->move.leaves)
            count += move_hands_over(l, s);
    }
    return count;
}

void hand_over_own(struct sluice_loop *l) {
    loop_assert_inside(l);
    for (struct session *s = l->sessions; s && l->arriving > 0; s = s->next) {
        if (atomic_load_explicit(&s->loop, memory_order_relaxed))
            continue;
        atomic_store_explicit(&s->loop, l, memory_order_relaxed);
        l->arriving--;
    }
}
