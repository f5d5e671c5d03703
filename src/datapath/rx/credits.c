/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * credits.c - how many credits a peer has: few while it is idle, more as it uses them.
 *
 * `credits.granted` counts the credits of a session wherever they are: with the peer (rx.granted), about to be
 * returned (rx.unreported), in frames that are looked at or whose buffer is on its way back, and withheld
 * for messages that are kept. It is doubled when the peer has used half of it, provided that it did
 * so since the last interval check: a peer that sends a message now and then needs no more. It is doubled as well
 * when all but the two below is withheld, however long that took: else the peer could send nothing
 * more. At a check, once a second while some session has more than the least, a peer that sent nothing since
 * the last one is asked to give back what is above the least (RECALL); what it returns is spare: for
 * another session where receives are shared, else for this one's next growth. A session whose frames
 * the application does not take gets no more.
 *
 * Credits are returned in every frame, and in one of their own (CREDIT) when half of those that are
 * not withheld are owed. With three left that is too late: two are what the peer keeps back, so one
 * owed credit is reported at once, if a numbered frame brought it: CREDIT for CREDIT would never end. Those two
 * are never withheld, whatever is kept: without them the peer could not return ours.
 *
 * Owner: the loop's thread.
 */
#include "datapath/rx/credits.h"
#include "core/wire/frame.h"
#include "datapath/loop/upward.h"
#include "core/context.h"
#include "core/techniques.h"
#include "datapath/loop/loop.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/rx/srq.h"

#define LOOK_NS 1000000000ull
#define RESERVE_STEP 8u

static uint32_t kept(const struct connection *c) {
    return (int32_t)c->credits.retained > 0 ? c->credits.retained : 0;
}

/* The credits that are not withheld. One frame can bring many messages: the two a peer keeps back stay its own. */
static uint32_t available(const struct connection *c) {
    uint32_t count = kept(c);
    return c->credits.granted > count + CREDIT_RESERVE ? c->credits.granted - count
                                                       : CREDIT_RESERVE;
}

/* Kept messages leave the peer no credit to use, and there is more to grant. */
static bool starved(const struct connection *c) {
    return available(c) <= CREDIT_RESERVE && c->credits.granted < c->credits.max;
}

/*
 * A numbered frame brought a credit that was not returned. Of frames that are acknowledged apart (acks.c) a frame may have told
 * before their credits were to be had.
 */
static bool is_numbered_owed(const struct connection *c) {
    return (connection_keeps(c) ? c->acks.returned : c->rx.updated) != c->rx.sequence;
}

/* It cannot say that it has what was sent, for want of a credit. */
static bool is_mute(const struct connection *c) {
    return connection_keeps(c) && c->rx.granted <= 1 && c->tx.acked != c->tx.sequence;
}

bool credits_update_due(const struct connection *c) {
    uint32_t all = available(c);
    if (c->rx.unreported == 0)
        return false;
    /* Half of them; or the peer has nearly none, because others wait with the frames they hold. */
    bool half =
        c->rx.unreported * 2 >= all && (all > CREDIT_RESERVE || c->rx.unreported >= CREDIT_RESERVE);
    return half || c->credits.update_due || (c->rx.granted <= 1 && c->rx.unreported >= 2) ||
           (all <= CREDITS_INITIAL - 1 && (is_numbered_owed(c) || is_mute(c)));
}

/* Sets the values that depend on `credits.granted` and on kept messages. */
void credits_changed(struct connection *c) {
    uint32_t all = available(c);
    uint32_t batch = c->credits.granted < 16 ? 2 : c->credits.granted / 8;
    /* The credits that the peer may use, without the two it keeps back, must come to be half of all, though less
     * than a batch of them waits. */
    bool single = all < 2 * batch + 2 || (c->session->node->options.without & WITHOUT_WC_BATCH);
    c->rx.repost_batch = single ? 1 : batch;
    c->credits.low = c->credits.granted < c->credits.max && c->credits.recall == 0
                         ? c->credits.granted / 2 + 1
                         : 0;
}

void credits_publish(struct connection *c) {
    atomic_store_explicit(&c->credits.published_retained, kept(c), memory_order_relaxed);
    atomic_store_explicit(&c->credits.published_granted, c->rx.granted, memory_order_relaxed);
}

void credits_start(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    c->credits.checked_ns = loop_clock(l);
    c->credits.seen = c->rx.sequence;
    credits_changed(c);
}

/* ---- more ------------------------------------------------------------------------------------ */

static void want_look(struct sluice_loop *l) {
    if (l->credits_check_ns != UINT64_MAX)
        return;
    l->credits_check_ns = l->now_ns + LOOK_NS;
    loop_deadline(l, l->credits_check_ns);
}

void credits_grow(struct sluice_loop *l, struct connection *c) {
    struct session *s = c->session;
    loop_assert_inside(l);
    if (l->now_ns - c->credits.checked_ns >= LOOK_NS && l->credits_check_ns == UINT64_MAX) {
        c->credits.checked_ns = l->now_ns; /* no check for long: a new beginning */
        c->credits.seen = c->rx.sequence;
    }
    bool uses = (c->rx.sequence - c->credits.seen) * 2 >= c->credits.granted || starved(c);
    if (!uses || (s->rx.held.head && !s->rx.held_pending))
        return; /* it does not need them, or the application does not take its frames */
    uint32_t left = c->credits.max - c->credits.granted,
             want = c->credits.granted < left ? c->credits.granted : left;
    uint32_t most = want, places = srq_room(l) + c->rx.queue->spare;
    if (c->rx.queue->srq && places < most)
        most = places;
    uint32_t got = recv_queue_spare(l, c, most, starved(c) ? RECV_NEEDED : RECV_SPEED);
    if (s->state >= SESSION_DRAINING || !c->qp)
        return;
    c->rx.queue->spare -= got;
    c->rx.unreported += got;
    c->credits.granted += got;
    credits_changed(c);
    if (got < want)
        c->credits.low = 0; /* until the next look */
    if (got > 0)
        c->credits.update_due = true;
    want_look(l);
}

/* ---- less ------------------------------------------------------------------------------------ */

static void recall(struct sluice_loop *l, struct connection *c) {
    struct session *s = c->session;
    /* Like ALIVE it leaves the last credit alone, unless it returns some. */
    if (c->tx.credits < 2 && c->rx.unreported == 0)
        return;
    if (!send_control_total(l, s, FRAME_RECALL, CREDITS_INITIAL))
        return;
    c->credits.recall = CREDITS_INITIAL;
    c->credits.low = 0;
}

static void look_at(struct sluice_loop *l, struct connection *c) {
    struct session *s = c->session;
    bool quiet = c->rx.sequence == c->credits.seen;
    c->credits.seen = c->rx.sequence;
    c->credits.checked_ns = l->now_ns;
    if (c->credits.recall == 0)
        credits_changed(c);
    if (quiet && c->credits.recall == 0 && c->rx.granted > CREDITS_INITIAL)
        recall(l, c);
    if (starved(c) && c->rx.granted < c->credits.low)
        loop_dirty(l, s); /* perhaps there is memory now */
    credits_publish(c);
}

void credits_check(struct sluice_loop *l) {
    loop_assert_inside(l);
    if (l->credits_check_ns == UINT64_MAX)
        return;
    if (l->now_ns >= l->credits_check_ns) {
        bool more = false;
        for (struct session *s = l->sessions; s; s = s->next) {
            if (s->state != SESSION_UP)
                continue;
            struct connection *c = session_connection(s);
            look_at(l, c);
            more |= c->credits.granted > CREDITS_INITIAL + kept(c) || starved(c);
        }
        l->credits_check_ns = more ? l->now_ns + LOOK_NS : UINT64_MAX;
    }
    if (l->credits_check_ns != UINT64_MAX)
        loop_deadline(l, l->credits_check_ns);
}

/* The peer wants back what is above `returned`. */
void credits_return(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if (c->tx.credits < 2 && c->rx.unreported == 0)
        return; /* when credits come */
    uint32_t keep = c->credits.returned > c->tx.reserve ? c->credits.returned : c->tx.reserve;
    uint32_t count = c->tx.credits > keep ? c->tx.credits - keep : 0;
    if (!send_control_total(l, s, FRAME_RETURN, count))
        return;
    c->tx.credits -= count;
    s->tokens = 0;
    c->credits.returned = 0;
}

static const char *returned(struct sluice_loop *l, struct connection *c, uint64_t count) {
    if (c->credits.recall == 0)
        return "credits returned that were not asked for";
    /* It has kept what it may, less the one of this frame. */
    if (count > 0 && (count > c->rx.granted || c->rx.granted - count < c->credits.recall - 1))
        return "more credits given back than there were";
    c->rx.granted -= (uint32_t)count;
    c->credits.granted -= (uint32_t)count;
    c->rx.queue->spare += (uint32_t)count;
    c->credits.recall = 0;
    credits_changed(c);
    (void)l;
    return NULL;
}

const char *credits_control(struct sluice_loop *l, struct connection *c, const struct frame *f) {
    struct session *s = c->session;
    loop_assert_inside(l);
    if (f->type == FRAME_RETURN)
        return returned(l, c, f->total);
    if (f->total < CREDITS_INITIAL || f->total > UINT16_MAX)
        return "too many credits wanted back";
    if (c->credits.returned != 0)
        return "credits wanted back twice";
    c->credits.returned = (uint32_t)f->total;
    session_disturb(s);
    loop_dirty(l, s);
    return NULL;
}

/* ---- requests -------------------------------------------------------------------------------- */

bool credits_find_spare(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    uint32_t step = c->recv.reserved + 1 < RESERVE_STEP ? c->recv.reserved + 1 : RESERVE_STEP;
    if (recv_queue_spare(l, c, step, RECV_REPLY) > 0)
        return true;
    recv_queue_retry(l, s);
    return false;
}
