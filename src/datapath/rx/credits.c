/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * credits.c - how many credits a peer has: few while it is idle, more as it uses them.
 *
 * `grant` counts the credits of a session wherever they are: with the peer (rx_granted), about to be
 * returned (rx_owed), in frames that are looked at or whose buffer is on its way back, and withheld
 * for messages that are kept. It is doubled when the peer has used half of it, provided that it did
 * so since the last look: a peer that says a word now and then needs no more. It is doubled as well
 * when all but the two below is withheld, however long that took: else the peer could say nothing
 * more. At a look, once a second while somebody has more than the least, a peer that said nothing since
 * the last one is asked to give back what is above the least (RECALL); what it returns is spare: for
 * another session where receives are shared, else for this one's next growth. Nobody gets more whose
 * frames nobody takes.
 *
 * Credits are returned in every frame, and in one of their own (CREDIT) when half of those that are
 * not withheld are owed. With three left that is too late: two are what the peer keeps back, so one
 * that is owed is told, if a numbered frame brought it: CREDIT for CREDIT would never end. Those two
 * are never withheld, whatever is kept: without them the peer could not return ours.
 *
 * Owner: the loop's thread.
 */
#include "datapath/tx/post.h"
#include "core/context.h"
#include "datapath/loop/loop.h"

#define LOOK_NS 1000000000ull
#define GROW_SIXTEENTHS                                                                            \
    8u /* of the reserve may be receives, as far as they are granted for speed */
#define RESERVE_SIXTEENTHS 12u /* and for replies */
#define RESERVE_STEP 8u

static uint32_t kept(const struct session *s) {
    return (int32_t)s->kept > 0 ? s->kept : 0;
}

/* What is not withheld. One frame can bring many messages: the two a peer keeps back stay its own. */
static uint32_t available(const struct session *s) {
    uint32_t count = kept(s);
    return s->grant > count + CREDIT_RESERVE ? s->grant - count : CREDIT_RESERVE;
}

/* What is kept leaves the peer nothing to use, and there is more to grant. */
static bool starved(const struct session *s) {
    return available(s) <= CREDIT_RESERVE && s->grant < s->credits;
}

bool grant_due(const struct session *s) {
    uint32_t all = available(s);
    if (s->rx_owed == 0)
        return false;
    /* Half of them; or the peer has nearly none, because others wait with the frames they hold. */
    bool half = s->rx_owed * 2 >= all && (all > CREDIT_RESERVE || s->rx_owed >= CREDIT_RESERVE);
    return half || s->tell || (s->rx_granted <= 1 && s->rx_owed >= 2) ||
           (all <= GRANT_MIN - 1 && s->rx_told != s->rx_sequence);
}

/* What depends on `grant` and on what is kept. */
void grant_set(struct session *s) {
    uint32_t all = available(s);
    uint32_t batch = s->grant < 16 ? 2 : s->grant / 8;
    /* What the peer may use without the two it keeps back must come to be half of all, though less
     * than a batch of it waits. */
    bool single = all < 2 * batch + 2 || (s->node->options.without & SLUICE_WITHOUT_BATCH);
    s->repost_batch = single ? 1 : batch;
    s->grant_low = s->grant < s->credits && s->recall == 0 ? s->grant / 2 + 1 : 0;
}

void grant_show(struct session *s) {
    atomic_store_explicit(&s->shown_kept, kept(s), memory_order_relaxed);
    atomic_store_explicit(&s->shown_granted, s->rx_granted, memory_order_relaxed);
}

void grant_start(struct sluice_loop *l, struct session *s) {
    s->grant_ns = loop_clock(l);
    s->grant_seen = s->rx_sequence;
    grant_set(s);
}

/* ---- more ------------------------------------------------------------------------------------ */

static void want_look(struct sluice_loop *l) {
    if (l->grant_look_ns != UINT64_MAX)
        return;
    l->grant_look_ns = l->now_ns + LOOK_NS;
    loop_deadline(l, l->grant_look_ns);
}

void grant_grow(struct sluice_loop *l, struct session *s) {
    if (l->now_ns - s->grant_ns >= LOOK_NS && l->grant_look_ns == UINT64_MAX) {
        s->grant_ns = l->now_ns; /* nobody has looked for long: a new beginning */
        s->grant_seen = s->rx_sequence;
    }
    bool uses = (s->rx_sequence - s->grant_seen) * 2 >= s->grant || starved(s);
    if (!uses || (s->held.head && !s->held_pending))
        return; /* it does not need them, or nobody takes what it says */
    uint32_t left = s->credits - s->grant, want = s->grant < left ? s->grant : left;
    uint32_t got = buffers_spare(l, s, want, GROW_SIXTEENTHS);
    if (s->state >= SESSION_DRAINING || !s->qp)
        return;
    s->rq->spare -= got;
    s->rx_owed += got;
    s->grant += got;
    grant_set(s);
    if (got < want)
        s->grant_low = 0; /* until the next look */
    if (got > 0)
        s->tell = true;
    want_look(l);
}

/* ---- less ------------------------------------------------------------------------------------ */

static void recall(struct sluice_loop *l, struct session *s) {
    /* Like ALIVE it leaves the last credit alone, unless it returns some. */
    if (s->tx_credits < 2 && s->rx_owed == 0)
        return;
    if (!send_control_total(l, s, FRAME_RECALL, GRANT_MIN))
        return;
    s->recall = GRANT_MIN;
    s->grant_low = 0;
}

static void look_at(struct sluice_loop *l, struct session *s) {
    bool quiet = s->rx_sequence == s->grant_seen;
    s->grant_seen = s->rx_sequence;
    s->grant_ns = l->now_ns;
    if (s->recall == 0)
        grant_set(s);
    if (quiet && s->recall == 0 && s->rx_granted > GRANT_MIN)
        recall(l, s);
    if (starved(s) && s->rx_granted < s->grant_low)
        loop_dirty(l, s); /* perhaps there is memory now */
    grant_show(s);
}

void grant_look(struct sluice_loop *l) {
    if (l->grant_look_ns == UINT64_MAX)
        return;
    if (l->now_ns >= l->grant_look_ns) {
        bool more = false;
        for (struct session *s = l->sessions; s; s = s->next) {
            if (s->state != SESSION_UP)
                continue;
            look_at(l, s);
            more |= s->grant > GRANT_MIN + kept(s) || starved(s);
        }
        l->grant_look_ns = more ? l->now_ns + LOOK_NS : UINT64_MAX;
    }
    if (l->grant_look_ns != UINT64_MAX)
        loop_deadline(l, l->grant_look_ns);
}

/* The peer wants back what is above `returned`. */
void grant_answer(struct sluice_loop *l, struct session *s) {
    if (s->tx_credits < 2 && s->rx_owed == 0)
        return; /* when credits come */
    uint32_t count = s->tx_credits > s->returned ? s->tx_credits - s->returned : 0;
    if (!send_control_total(l, s, FRAME_RETURN, count))
        return;
    s->tx_credits -= count;
    s->returned = 0;
}

static const char *returned(struct sluice_loop *l, struct session *s, uint64_t count) {
    if (s->recall == 0)
        return "credits given back that nobody wanted";
    /* It has kept what it may, less the one of this frame. */
    if (count > 0 && (count > s->rx_granted || s->rx_granted - count < s->recall - 1))
        return "more credits given back than there were";
    s->rx_granted -= (uint32_t)count;
    s->grant -= (uint32_t)count;
    s->rq->spare += (uint32_t)count;
    s->recall = 0;
    grant_set(s);
    (void)l;
    return NULL;
}

const char *grant_control(struct sluice_loop *l, struct session *s, const struct frame *f) {
    if (f->type == FRAME_RETURN)
        return returned(l, s, f->total);
    if (f->total < GRANT_MIN || f->total > UINT16_MAX)
        return "too many credits wanted back";
    if (s->returned != 0)
        return "credits wanted back twice";
    s->returned = (uint32_t)f->total;
    loop_dirty(l, s);
    return NULL;
}

/* ---- requests -------------------------------------------------------------------------------- */

bool grant_reserve(struct sluice_loop *l, struct session *s) {
    struct receive_queue *q = s->rq;
    if (unlikely(q->spare == 0)) {
        uint32_t step = s->rx_reserved + 1 < RESERVE_STEP ? s->rx_reserved + 1 : RESERVE_STEP;
        if (buffers_spare(l, s, step, RESERVE_SIXTEENTHS) == 0) {
            want_retry(l, s);
            return false;
        }
    }
    q->spare--;
    s->rx_reserved++;
    return true;
}

void grant_unreserve(struct sluice_loop *l, struct session *s, bool taken) {
    (void)l;
    if (s->rx_reserved == 0)
        return; /* the queue pair is gone */
    s->rx_reserved--;
    s->rq->spare += !taken;
}
