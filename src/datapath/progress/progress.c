/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * progress.c - one turn of a loop: messages, completions, events, posts, and now and then the clock.
 *
 * No call in here waits, and every part of a turn is bounded, so a session cannot keep the others
 * from their share for longer than one batch.
 *
 * Owner: the loop's thread.
 */
#include "datapath/loop/events.h"
#include "datapath/loop/loop.h"
#include "datapath/progress/deliver.h"
#include "datapath/progress/messages.h"
#include "datapath/rx/landing.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rpc/client.h"
#include "datapath/rx/acks.h"
#include "datapath/rx/alloc_wait.h"
#include "datapath/rx/credits.h"
#include "datapath/progress/receive.h"
#include "datapath/progress/receive_plain.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/rx/retain.h"
#include "datapath/rx/srq.h"
#include "datapath/session/acknowledged.h"
#include "datapath/session/close.h"
#include "datapath/session/connections.h"
#include "datapath/session/drain.h"
#include "datapath/session/hand_over.h"
#include "datapath/session/reap.h"
#include "datapath/session/keepalive.h"
#include "datapath/tx/post.h"
#include "datapath/tx/send.h"
#include "datapath/session/send_completion.h"
#include "core/context.h"

#define PUBLISH_EVERY 255u /* busy turns between two updates of the statistics page, less one */
#define CLOCK_EVERY 63u    /* busy turns between two looks at the clock, less one */

/* ---- the turn -------------------------------------------------------------------------------- */

#define MIXED 8 /* completions; fewer are soon looked at */

static void poll_completions(struct sluice_loop *l) {
    int n = ibv_poll_cq(l->cq, l->wc_max, l->wc);
    l->mixed = unlikely(n >= MIXED) && l->srq.connections && l->wc[0].qp_num != l->wc[1].qp_num &&
               l->wc[1].qp_num != l->wc[2].qp_num;
    l->wc_next = 0;
    l->wc_count = n > 0 ? (uint32_t)n : 0;
    l->wc_short = n < l->wc_max;
    l->polls++;
    if (likely(n > 0)) {
        l->totals.completions += (uint32_t)n;
        l->totals.polls++;
        l->traffic = true;
    }
    if (unlikely(n < 0))
        for (struct session *s = l->sessions; s; s = s->next)
            if (session_connection(s)->qp)
                session_close(l, s, SLUICE_REASON_DEVICE_ERROR, (uint32_t)-n,
                              "the completion queue cannot be polled");
}

/*
 * For a device that may complete a receive twice (traits.flushes_twice): true if it does not have that receive. The
 * receive completed before, and since then its buffer is free or posted for another session.
 */
static bool is_told_again(const struct sluice_msg *msg, const struct ibv_wc *wc) {
    struct connection *c = msg->owner;
    return !c || c->cm.qp_num != wc->qp_num || !recv_queue_is_out(c, msg);
}

/* The connection of a receive. NULL: the completion needs no more work. */
static inline struct connection *
connection_of_receive(struct sluice_loop *l, struct sluice_msg *msg, const struct ibv_wc *wc) {
    if (unlikely(l->flushes_twice) && is_told_again(msg, wc))
        return NULL;
    if (!msg->owner && unlikely(!(msg->owner = srq_connection(l, wc->qp_num)))) {
        srq_stray(l, msg);
        return NULL;
    }
    return msg->owner;
}

#define AHEAD 3u

/*
 * The lines of a session that receiving a plain message and answering it need. Always inline: gcc takes a function that
 * only prefetches for one without effect, and leaves out its calls.
 */
static inline __attribute__((always_inline)) void fetch_session(const struct sluice_loop *l,
                                                                const struct ibv_wc *wc) {
    const struct qp_entry *entry = wc->wr_id & 1 ? NULL : srq_entry(l, wc->qp_num);
    if (!entry)
        return;
    __builtin_prefetch(&entry->session->loop);
    __builtin_prefetch(&entry->session->ref);
    __builtin_prefetch(&entry->conn->qp);
    __builtin_prefetch(&entry->conn->rx);
}

/* Looks at polled completions until the caller's array is full; the rest waits. */
static inline __attribute__((always_inline)) unsigned process_completions(struct sluice_loop *l,
                                                                          const bool mixed) {
    unsigned count = 0;
    struct receive_plain plain = {0};
    for (unsigned i = 1; mixed && i < AHEAD && l->wc_next + i < l->wc_count; i++)
        fetch_session(l, &l->wc[l->wc_next + i]);
    for (const struct ibv_wc *wc = &l->wc[l->wc_next]; l->wc_next < l->wc_count; count++, wc++) {
        if (mixed && l->wc_next + AHEAD < l->wc_count)
            fetch_session(l, wc + AHEAD);
        struct sluice_msg *msg = (struct sluice_msg *)(uintptr_t)wc->wr_id;
        struct connection *c;
        if (unlikely(wc->wr_id & 1)) {
            l->wc_next++;
            send_completed(l, wc);
            continue;
        }
        /* Without an id: of a receive that was forgotten. */
        if (unlikely(!msg || !(c = connection_of_receive(l, msg, wc)))) {
            l->wc_next++;
            continue;
        }
        if (likely(receive_plain(l, c, msg, wc, SESSION_RX_PLAIN, &plain)))
            continue;
        if (unlikely(c->session->plain_rx == SESSION_RX_ACKS) && receive_plain_acked(l, c, msg, wc))
            continue;
        /* Into an array of no length nothing will ever go: such a poll takes what comes, for
         * the credits, and the session holds the messages. */
        if (!loop_room(l, c->session) && l->out_max > 0 && !l->defer_events)
            break;
        l->wc_next++;
        receive_completed(l, wc);
    }
    if (plain.count > 0)
        receive_plain_count(l, &plain);
    return count;
}

static __attribute__((noinline)) unsigned process_mixed(struct sluice_loop *l) {
    return process_completions(l, true);
}

static void flush_dirty(struct sluice_loop *l) {
    struct session *s;
    while ((s = l->dirty)) {
        l->dirty = s->dirty_next;
        s->dirty = false;
        struct connection *c = session_connection(s);
        if (c->qp && (c->rx.queue->repost || c->recv.missing || c->rx.granted < c->credits.low))
            recv_queue_repost(l, c);
        /* What is queued, or the credits that are owed by now. */
        if (unlikely(connection_keeps(c)))
            acknowledged_flush(l, s);
        else
            send_flush(l, s);
        if (s->state == SESSION_FLUSHING || s->state == SESSION_LEAVING) {
            loop_uncancelled(l);
            session_progress(l, s);
        }
    }
}

/* Tries work again that had to wait for memory. */
static unsigned retry(struct sluice_loop *l) {
    unsigned count = 0;
    for (struct session *s = l->sessions; s && l->retries > 0; s = s->next) {
        if (!s->retry)
            continue;
        s->retry = false;
        l->retries--;
        struct connection *c = session_connection(s);
        uint32_t missing = c->recv.missing;
        if (s->rx.held.head && s->announced) {
            count += receive_held(l, s);
            if (s->rx.held.head && !s->retry && !s->rx.held_pending)
                event_notice(l, s, NOTICE_HELD); /* now it is room that is missing */
        }
        if (c->recv.missing)
            recv_queue_repost(l, c);
        count += missing - c->recv.missing;
        count += rndv_goes_on(s);
        if (s->tx.queue.head || s->tx.replies.head || s->rpc.answers || c->sq.blocked)
            loop_dirty(l, s);
        if (s->state == SESSION_GONE && !s->rx.held.head)
            event_notice(l, s, NOTICE_CLOSED);
    }
    return count;
}

/* Sessions whose end waits for a thread that is inside of a call. */
static unsigned wait_for_pins(struct sluice_loop *l) {
    unsigned count = 0;
    for (struct session *s = l->sessions; s && l->pin_waits > 0; s = s->next) {
        uint64_t inside = atomic_load_explicit(&s->ref, memory_order_acquire);
        if (!s->close.waits_for_pins ||
            (s->state == SESSION_GONE && (inside & (SESSION_REF_USERS | SESSION_REF_COUNT))))
            continue;
        s->close.waits_for_pins = false;
        l->pin_waits--;
        if (s->state == SESSION_GONE)
            event_notice(l, s, NOTICE_CLOSED);
        else
            session_progress(l, s);
        count += !s->close.waits_for_pins;
    }
    return count;
}

static void check_clock(struct sluice_loop *l, uint32_t turn) {
    loop_clock(l);
    loop_span(l);
    if ((turn & CLOCK_EVERY) == 0)
        keepalive_pace(l);
    if (l->now_ns < l->next_deadline_ns)
        return;
    loop_uncancelled(l);
    l->next_deadline_ns = UINT64_MAX;
    for (struct session *s = l->sessions; s; s = s->next) {
        if (s->tx.queue.head)
            send_expire(l, s);
        if (s->rpc.client)
            rpc_client_expire(l, s);
        session_timer(l, s);
        for (struct connection *c = session_connection(s), *next; c; c = next) {
            next = c->next;
            drain_timer(l, c);
        }
        landing_check(l, s);
    }
    acks_check(l);
    keepalive_check(l);
    credits_check(l);
}

/*
 * Whether this turn looks at the clock. A deadline of a message or of an end is looked for on every
 * empty turn; keepalive, which nearly every loop has, only where the clock was read anyway (what
 * spins or sleeps does that), so that an idle loop that spins stays as fast as one without. Every 64th
 * turn looks in any case, for the spans.
 */
static inline bool is_clock_due(const struct sluice_loop *l, unsigned found, uint32_t turn) {
    if ((turn & CLOCK_EVERY) == 0 || l->slow_progress)
        return true;
    return found == 0 && l->next_deadline_ns != UINT64_MAX &&
           ((l->next_deadline_ns < l->keepalive_check_ns &&
             l->next_deadline_ns < l->credits_check_ns && l->next_deadline_ns < l->acks_check_ns) ||
            l->now_ns >= l->next_deadline_ns || l->poll_once);
}

/* Work that most turns do not have. */
static unsigned uncommon(struct sluice_loop *l) {
    unsigned count = 0;
    loop_uncancelled(l);
    if (l->downs > 0)
        count += session_check_downs(l);
    if (l->settling > 0)
        count += srq_settle(l);
    if (l->retries > 0)
        count += retry(l);
    if (l->pin_waits > 0)
        count += wait_for_pins(l);
    if (l->leaving > 0)
        count += hand_over_progress(l);
    if (l->retired > 0)
        connections_reap(l);
    if (l->dying && l->out_count == 0)
        session_reap(l);
    if (l->lost) {
        loop_detach(l);
        if (l->unheard)
            count += event_listeners(l);
    }
    return count;
}

/* Events that are not messages. */
static inline bool has_news(struct sluice_loop *l) {
    return l->notices || l->outcomes.head || atomic_load_explicit(&l->wake, memory_order_relaxed);
}

/* Whether this turn has anything to do besides the completions it took. */
static inline bool has_more_to_do(struct sluice_loop *l) {
    uintptr_t some = (uintptr_t)l->dirty | (uintptr_t)l->dying;
    some |= l->downs | l->retries | l->pin_waits | l->settling | l->retired;
    some |= l->leaving | l->lost | l->slow_progress;
    return some != 0 || has_news(l);
}

/* Behind the completions. first: events came before them this time. */
static __attribute__((noinline)) unsigned progress_on(struct sluice_loop *l, unsigned found,
                                                      bool first) {
    uint32_t turn = atomic_load_explicit(&l->progress_count, memory_order_relaxed);
    if (l->dirty)
        flush_dirty(l);
    if (unlikely(l->downs | l->retries | l->pin_waits | l->settling | l->retired | l->lost) ||
        unlikely(l->leaving > 0) || unlikely(l->dying != NULL))
        found += uncommon(l);
    l->worked |= found > 0;
    if (is_clock_due(l, found, turn)) {
        check_clock(l, turn);
        l->worked = l->out_count > 0; /* from now on the program has these events in its hands */
    }
    if (has_news(l)) {
        if (unlikely(atomic_load_explicit(&l->wake, memory_order_relaxed) & LOOP_WAKE_ALLOC_WAIT))
            found += alloc_wait_progress(l);
        unsigned delivered = event_deliver(l);
        found += delivered;
        l->worked |= delivered > 0;
        /* Messages alone could fill an array for ever: what found no room goes first, next time. */
        l->crowded = !first && has_news(l);
    }
    if (l->dirty)
        flush_dirty(l);
    if (found == 0) {
        l->totals.empty_progress_calls++;
        if (l->totals_moved)
            loop_publish(l);
    } else if (unlikely((turn & PUBLISH_EVERY) == 0)) {
        loop_publish(l);
    }
    if (ASSERTIONS)
        recv_queue_assert_conserved(l);
    return found;
}

unsigned loop_progress(struct sluice_loop *l) {
    loop_assert_inside(l);
    unsigned found = 0;
    uint32_t turn = atomic_load_explicit(&l->progress_count, memory_order_relaxed) + 1;
    atomic_store_explicit(&l->progress_count, turn, memory_order_relaxed);
    l->totals.progress_calls++;
    if (unlikely(l->late != NULL))
        rndv_answer_late(l);
    if (unlikely(!mpsc_queue_empty(&l->mailbox.queue)))
        found += loop_take_msgs(l);
    if (likely(l->wc_next == l->wc_count))
        poll_completions(l);
    bool first = unlikely(l->crowded);
    if (unlikely(first)) {
        l->crowded = false;
        found += event_deliver(l);
    }
    if (l->wc_next < l->wc_count)
        found += unlikely(l->mixed) ? process_mixed(l) : process_completions(l, false);
    /* Nearly every turn that finds something finds messages, and that was all. */
    if (found == 0 || (turn & CLOCK_EVERY) == 0 || unlikely(has_more_to_do(l)))
        return progress_on(l, found, first);
    l->worked = true;
    if (ASSERTIONS)
        recv_queue_assert_conserved(l);
    return found;
}
