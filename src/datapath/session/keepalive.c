/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * keepalive.c - an idle session sends keepalive frames, and notices a peer that sends none.
 *
 * A check. Eight times in the shortest interval of its sessions a loop walks its list of sessions and
 * compares counters with those of the check before. Nothing is written for this when a frame comes or
 * goes: frames posted are counted by sq.tail, frames received by rx.sequence and the others by
 * recv.controls. So times are those of checks: a count that moved did so within the last eighth.
 *
 *   nothing posted for 11/16 of the interval     ALIVE: so a frame goes out within 7/8
 *   nothing received for 25/16 of the interval   closed: so within two intervals of the last frame
 *
 * The odd sixteenths keep a check that is a bit early or late from costing another eighth. Only frames
 * count as life. A completed send proves the peer's device, and a stopped process still has one.
 *
 * A peer is not declared lost for delays on this side:
 *   - Frames that have arrived and lie in the CQ. Silence is measured up to caught_ns: the CQ was
 *     found empty then, or as many completions were taken since as it can have held then: the
 *     receives and sends the device had.
 *   - Time in which the loop did not run. A check that comes late by more than half an interval
 *     restarts the clock of a silent peer, which may have been away for the same cause (a suspended
 *     machine); but once only, or a loop that is always late would never notice anything.
 *   - Credits. A peer keeps its last credit for CREDIT, so a peer to which we gave no more may not send.
 *
 * ALIVE leaves the last credit alone unless it returns some, for the reason in the head of post.c.
 *
 * Owner: the loop's thread.
 */
#include <stdio.h>

#include "datapath/session/keepalive.h"
#include "core/wire/frame.h"
#include "datapath/loop/loop.h"
#include "datapath/session/close.h"
#include "datapath/tx/post.h"

#define LOOKS 8u   /* in an interval */
#define QUIET 11u  /* sixteenths of the interval after which ALIVE goes out */
#define SILENT 25u /* after which the peer is dead */
#define AWAY 10u   /* between two looks: the loop was away */

static inline bool is_watched(const struct session *s) {
    return session_connection(s)->keepalive.interval_ns != 0 && s->state <= SESSION_FLUSHING;
}

/* Its wrapping does no harm: only whether it moved counts, and frames have credits. */
static inline uint32_t received(const struct session *s) {
    const struct connection *c = session_connection(s);
    return c->rx.sequence + c->recv.controls;
}

/* The frames that the peer receives: operations on its memory show it nothing. */
static inline uint32_t posted(const struct session *s) {
    const struct connection *c = session_connection(s);
    return c->sq.tail - c->sq.frameless;
}

static inline uint64_t sixteenths(uint64_t interval_ns, unsigned count) {
    return interval_ns / 16 * count;
}

static void set_look(struct sluice_loop *l, uint64_t due_ns, uint64_t step_ns) {
    l->keepalive_check_ns = due_ns;
    l->keepalive_step_ns = step_ns;
    if (due_ns != UINT64_MAX)
        loop_deadline(l, due_ns);
}

/*
 * Everything that had arrived by now will be taken once so many more completions were: of each receive
 * and each send the device has. The CQ has room for far more where receives are shared.
 */
static void set_mark(struct sluice_loop *l, uint64_t now) {
    uint64_t most = l->srq.queue.posted;
    for (const struct session *s = l->sessions; s; s = s->next) {
        const struct connection *c = session_connection(s);
        most += c->recv.own.posted + (c->sq.tail - c->sq.head);
    }
    l->mark_ns = now;
    l->mark = l->totals.completions + most;
}

void keepalive_start(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    struct keepalive *k = &c->keepalive;
    uint64_t interval = c->cm.rep.keepalive * PRIVATE_DATA_KEEPALIVE_NS;
    if (interval == 0)
        return;
    uint64_t now = loop_clock(l), step = interval / LOOKS;
    *k = (struct keepalive){
        .interval_ns = interval,
        .checked_ns = now,
        .rx_ns = now,
        .tx_ns = now,
        .rx_seen = received(s),
        .tx_seen = posted(s),
    };
    if (l->keepalive_check_ns == UINT64_MAX) {
        l->caught_ns = now;
        l->slow_progress = true; /* until 64 turns show otherwise */
        l->stride_ns = now;
        set_mark(l, now);
        set_look(l, now + step, step);
    } else if (step < l->keepalive_step_ns) {
        set_look(l, now + step < l->keepalive_check_ns ? now + step : l->keepalive_check_ns, step);
    }
}

/* ---- looking --------------------------------------------------------------------------------- */

static void catch_up(struct sluice_loop *l) {
    uint64_t taken = l->totals.completions - (l->wc_count - l->wc_next);
    if (l->wc_count == 0) /* the poll of this very turn found nothing */
        l->caught_ns = l->now_ns;
    else if (taken >= l->mark)
        l->caught_ns = l->mark_ns;
    else
        return;
    set_mark(l, l->now_ns);
}

/* False: nothing came for too long. */
static bool hear(const struct sluice_loop *l, struct session *s, bool away) {
    struct connection *c = session_connection(s);
    struct keepalive *k = &c->keepalive;
    uint32_t rx = received(s);
    if (rx != k->rx_seen || c->rx.granted < 2) {
        k->rx_seen = rx;
        k->rx_ns = l->now_ns;
        k->excused = false;
    } else if (away && !k->excused) {
        k->rx_ns = l->now_ns;
        k->excused = true;
    }
    return l->caught_ns < k->rx_ns || l->caught_ns - k->rx_ns < sixteenths(k->interval_ns, SILENT);
}

static void speak(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    struct keepalive *k = &c->keepalive;
    if (k->tx_seen != posted(s)) {
        k->tx_seen = posted(s);
        k->tx_ns = l->now_ns;
        return;
    }
    if (l->now_ns - k->tx_ns < sixteenths(k->interval_ns, QUIET) ||
        (c->tx.credits < 2 && c->rx.unreported == 0) || !send_control(l, s, FRAME_ALIVE))
        return;
    k->tx_seen = posted(s);
    k->tx_ns = l->now_ns;
}

static void look_at(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    struct keepalive *k = &c->keepalive;
    bool away = l->now_ns - k->checked_ns > sixteenths(k->interval_ns, AWAY);
    k->checked_ns = l->now_ns;
    if (hear(l, s, away)) {
        speak(l, s);
        return;
    }
    /* A BYE among what the application has not looked at yet would say it better. */
    s->close.reason_provisional = s->close.reason == SLUICE_REASON_NONE;
    char text[sizeof s->info.close_text];
    snprintf(text, sizeof text, "nothing was heard of the peer for two intervals of %llu ms",
             (unsigned long long)(c->keepalive.interval_ns / 1000000));
    session_close(l, s, SLUICE_REASON_KEEPALIVE, 0, text);
}

void keepalive_check(struct sluice_loop *l) {
    loop_assert_inside(l);
    if (l->now_ns < l->keepalive_check_ns) {
        if (l->keepalive_check_ns != UINT64_MAX)
            loop_deadline(l, l->keepalive_check_ns);
        return;
    }
    uint64_t shortest = UINT64_MAX;
    l->keepalive_checks++;
    catch_up(l);
    for (struct session *s = l->sessions; s; s = s->next) {
        l->keepalive_visits++;
        if (!is_watched(s))
            continue;
        const struct keepalive *k = &session_connection(s)->keepalive;
        if (k->interval_ns < shortest)
            shortest = k->interval_ns;
        look_at(l, s);
    }
    if (shortest == UINT64_MAX) {
        set_look(l, UINT64_MAX, 0);
        l->slow_progress = false;
        return;
    }
    /* On a grid, so that what a look is late by does not add up. */
    uint64_t step = shortest / LOOKS, due = l->keepalive_check_ns + step;
    set_look(l, due > l->now_ns ? due : l->now_ns + step, step);
}

void keepalive_pace(struct sluice_loop *l) {
    loop_assert_inside(l);
    l->slow_progress =
        l->keepalive_check_ns != UINT64_MAX && l->now_ns - l->stride_ns > l->keepalive_step_ns / 2;
    l->stride_ns = l->now_ns;
}
