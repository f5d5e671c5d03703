/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * retain.c - messages that were received and stay: kept, freed later, or sent on.
 *
 * A kept message withholds one credit of the session it came by. A receive buffer does so by not
 * being posted again. Any other message (put together from fragments, as a reply, in a buffer of
 * its own, in a frame with others) withholds the credit of the next buffer that comes back: the
 * session's `withheld_due`. Two credits are never withheld: messages kept beyond that stay due. Freed, from
 * whatever thread, the credit returns: on the loop's own thread at once, from another by message, the
 * sluice_msg being that message; and where the session is gone the message just goes back to the pool.
 *
 * A buffer that is sent on leaves the queue, so another buffer replaces it at that moment; without one, or where
 * its peer holds its share of the reserve (landing.c), the send fails, and nothing has happened.
 *
 * Owner: as said at each function.
 */
#include "datapath/rx/retain.h"
#include "datapath/loop/loop.h"
#include "datapath/rx/landing.h"
#include "datapath/rx/coalesced.h"
#include "datapath/rx/credits.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/rx/srq.h"
#include "datapath/loop/upward.h"

/* ---- keeping: the thread that has the message ------------------------------------------------ */

/* Of a message that is lent. */
static struct session *owner_session(const struct sluice_msg *msg) {
    const struct connection *c = msg->owner;
    return c->session;
}

/* Its loan, which does not simply come back: with what the message says of it now and will not later. */
static struct loop_loan *loan_of(const struct sluice_msg *msg, struct sluice_loop **l) {
    const struct connection *c = msg->owner;
    *l = c->loop;
    struct loop_loan *loan = &(*l)->loans[msg->loan.index];
    loan->frame = msg->flags & (MSG_VIEW | MSG_ESCORTED) ? msg->next : NULL;
    loan->srq_slot = msg->loan.srq_slot;
    loan->flags = msg->flags;
    return loan;
}

void event_retain(struct sluice_msg *msg) {
    const struct session *s = owner_session(msg);
    struct sluice_loop *l;
    struct loop_loan *loan = loan_of(msg, &l);
    if (msg->flags & MSG_VIEW)
        coalesced_retain(msg);
    loan->msg = NULL;
    loan->what = LOAN_RETAINED;
    msg->owner = NULL;
    msg->flags = (uint16_t)((msg->flags & (MSG_RX | MSG_RESERVED)) | MSG_RETAINED);
    msg->retained.session_id = atomic_load_explicit(&s->id, memory_order_relaxed);
    msg->state = MSG_APP;
    pool_belongs(buffer_of(msg), msg->retained.session_id, s->peer.address);
}

/* ---- the loop's thread ----------------------------------------------------------------------- */

static void count_retained(struct sluice_loop *l, struct connection *c, uint32_t more) {
    c->credits.retained += more;
    l->totals.retained += (int32_t)more;
    l->totals_moved = true;
    credits_changed(c);
    credits_publish(c);
}

bool retain_may_withhold(const struct connection *c) {
    int32_t withheld =
        (int32_t)(c->credits.retained - c->credits.withheld_due); /* kept may be one too few */
    return (int32_t)c->credits.granted - withheld > (int32_t)CREDIT_RESERVE;
}

/* Its buffer is a credit: one that took a place which was reserved for a reply never was, nor what lies elsewhere. */
static bool is_credit(unsigned flags) {
    return (flags & (MSG_RX | MSG_RESERVED)) == MSG_RX;
}

void retain_taken(struct sluice_loop *l, const struct loop_loan *loan) {
    loop_assert_inside(l);
    struct session *s = loan->conn->session;
    struct connection *c = session_connection(s); /* whichever it came by */
    if (loan->flags & MSG_SHARED)
        srq_forget(l, loan->srq_slot);
    if (s->state >= SESSION_DRAINED)
        return;
    if (!is_credit(loan->flags) || loan->conn != c) {
        c->credits.withheld_due++;
    } else if (!retain_may_withhold(c)) { /* its credit returns by another buffer */
        c->credits.withheld_due++;
        c->recv.missing++;
    }
    count_retained(l, c, 1);
    if (c->rx.repost_count + c->recv.missing >= c->rx.repost_batch || credits_update_due(c) ||
        c->rx.granted < c->credits.low)
        loop_dirty(l, s);
}

/* A credit that was withheld is to return, by this buffer or without one. */
static void give_credit(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    struct connection *c = session_connection(s);
    bool buffer = is_credit(msg->flags);
    bool none = (int32_t)(c->credits.retained - c->credits.withheld_due) <=
                0; /* withheld: it is freed before it was counted */
    msg->flags &= MSG_RX;
    if ((int32_t)c->credits.withheld_due > 0 || !buffer || s->state >= SESSION_DRAINING ||
        (c->rx.queue->srq && !srq_enter(l, msg))) {
        if ((int32_t)c->credits.withheld_due > 0 || (!buffer && none))
            c->credits.withheld_due--;
        else
            c->recv.missing++;
        recv_buffer_put(l, msg);
        return;
    }
    msg->owner = c;
    recv_queue_give_back(l, msg);
}

static void returned(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    struct connection *c = session_connection(s);
    session_assert_mine(s, l);
    if (s->state >= SESSION_DRAINED) {
        recv_buffer_put(l, msg);
        return;
    }
    give_credit(l, s, msg);
    count_retained(l, c, UINT32_MAX);
    if (c->rx.granted <= CREDIT_RESERVE)
        c->credits.update_due = true; /* it waits for this one */
    loop_dirty(l, s);
}

void retain_moved(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    bool buffer = is_credit(msg->flags);
    if (msg->flags & MSG_RX)
        atomic_fetch_sub_explicit(pool_note(msg->pool), 1, memory_order_relaxed);
    msg->flags = 0;
    if (s->state >= SESSION_DRAINED)
        return;
    if ((int32_t)c->credits.withheld_due > 0 ||
        (!buffer && (int32_t)(c->credits.retained - c->credits.withheld_due) <= 0))
        c->credits.withheld_due--;
    else
        c->recv.missing++;
    count_retained(l, c, UINT32_MAX);
    if (c->rx.granted <= CREDIT_RESERVE)
        c->credits.update_due = true;
    loop_dirty(l, s);
}

void retain_free_arrived(struct sluice_loop *l, struct sluice_msg *msg) {
    loop_assert_inside(l);
    struct session *s = session_table_at(msg->retained.session_id);
    returned(l, s, msg);
    atomic_fetch_sub_explicit(&s->ref, 1, memory_order_release);
}

void retain_end(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    l->totals.retained -= (uint64_t)(int64_t)(int32_t)c->credits.retained;
    c->credits.retained = c->credits.withheld_due = 0;
    credits_publish(c);
}

/* ---- freeing: any thread --------------------------------------------------------------------- */

/* Its session is gone. */
static void put(struct sluice_msg *msg) {
    struct pool *pool = msg->pool;
    if (msg->flags & MSG_RX)
        atomic_fetch_sub_explicit(pool_note(pool), 1, memory_order_relaxed);
    msg->flags = 0;
    msg->state = MSG_FREE;
    pool_put(pool, NULL, buffer_of(msg));
}

void retain_free(struct sluice_msg *msg) {
    uint64_t id = msg->retained.session_id;
    struct session *s = session_table_find(id);
    struct sluice_loop *l = s ? atomic_load_explicit(&s->loop, memory_order_relaxed) : NULL;
    bool nested;
    if (l && loop_enter(l, &nested)) {
        bool lives = atomic_load_explicit(&s->id, memory_order_relaxed) == id;
        if (lives)
            returned(l, s, msg);
        if (lives && !nested && s->state < SESSION_RELEASED) { /* the next poll may be far */
            recv_queue_repost(l, session_connection(s));
            send_flush(l, s);
        }
        loop_leave(l, nested);
        if (!lives)
            put(msg);
        return;
    }
    if (!s || !session_ref_tryget(&s->ref, (uint32_t)id, 0, 1)) {
        put(msg);
        return;
    }
    l = session_mail(s);
    msg->state = MSG_RECEIVE;
    mailbox_post(&l->mailbox, &msg->item, LOOP_MSG_FREE, s->slot, (uint32_t)id);
    session_ref_put(&s->ref);
}

/* ---- sending on: the thread that has the message --------------------------------------------- */

/* Whether this thread owns the loop; then its cache serves. */
static struct sluice_msg *replacement(struct sluice_loop *l, struct pool *pool, uint32_t bytes) {
    bool nested, mine = l && loop_enter(l, &nested);
    struct sluice_msg *msg = recv_buffer_get(pool, mine ? l->rx_cache : NULL, bytes);
    if (mine)
        loop_leave(l, nested);
    return msg;
}

static int pass_borrowed(struct sluice_msg *msg) {
    struct session *s = owner_session(msg);
    struct sluice_loop *l;
    if (!landing_may_pass(s, msg))
        return SLUICE_ENOMEM;
    struct loop_loan *loan = loan_of(msg, &l);
    if (msg->flags & MSG_RX) {
        struct sluice_msg *other =
            replacement(l, l->rx_pool, session_connection_seen(s)->recv.frame_bytes);
        if (!other)
            return SLUICE_ENOMEM;
        other->flags = msg->flags;
        other->owner = msg->owner;
        loan->msg = other;
        loan->what = LOAN_REPLACED;
        atomic_fetch_sub_explicit(pool_note(msg->pool), 1, memory_order_relaxed);
    } else {
        if (msg->flags & MSG_VIEW)
            coalesced_retain(msg);
        loan->msg = NULL;
        loan->what = LOAN_PASSED;
    }
    landing_passed(s, msg);
    return SLUICE_OK;
}

/* Its place takes another, which is freed as this one would have been. */
static int pass_retained(struct sluice_msg *msg) {
    struct session *s = session_table_find(msg->retained.session_id);
    if (s && session_ref_tryget(&s->ref, (uint32_t)msg->retained.session_id, 0, 0)) {
        struct sluice_loop *l = session_mail(s);
        struct sluice_msg *other = NULL;
        if (landing_may_pass(s, msg))
            other = replacement(l, l->rx_pool, session_connection_seen(s)->recv.frame_bytes);
        if (other) {
            landing_passed(s, msg);
            other->flags = (uint16_t)(msg->flags & (MSG_RX | MSG_RESERVED | MSG_RETAINED));
            if (!(msg->flags & MSG_RX)) /* nor did that bring a buffer */
                atomic_fetch_sub_explicit(pool_note(other->pool), 1, memory_order_relaxed);
            other->retained.session_id = msg->retained.session_id;
            retain_free(other);
        }
        session_ref_put(&s->ref);
        if (!other)
            return SLUICE_ENOMEM;
    }
    if (msg->flags & MSG_RX)
        atomic_fetch_sub_explicit(pool_note(msg->pool), 1, memory_order_relaxed);
    return SLUICE_OK;
}

int retain_pass(struct sluice_msg *msg) {
    int status = msg->state == MSG_LOANED ? pass_borrowed(msg) : pass_retained(msg);
    if (status != SLUICE_OK)
        return status;
    msg->owner = NULL;
    msg->flags = 0;
    msg->state = MSG_APP;
    return SLUICE_OK;
}
