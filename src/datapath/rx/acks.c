/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * acks.c - telling a peer which of its frames arrived, where it keeps them until it knows (session/acknowledged.c).
 *
 * Every header says it, so a side that sends needs nothing else. One that has nothing to send says ALIVE after 32 frames,
 * when the peer asks for it (FRAME_ASKS), and 1 ms after the first frame that it owes, at the latest. The connections that
 * owe something are on a list of the loop, oldest first, so that no other session is looked at for them. One stays there
 * though it told meanwhile, so that messages that are answered at once enter it once a millisecond and not each.
 *
 * Like that of keepalive.c, this ALIVE leaves the last credit alone unless it returns some: then it comes 1 ms later.
 *
 * Owner: the loop's thread.
 */
#include "datapath/rx/acks.h"

#include "core/wire/frame.h"
#include "datapath/loop/upward.h"

#define FRAMES_MOST 32u    /* owed */
#define WAIT_NS 1000000ull /* and for so long */

/* The peer's numbered frames since the last frame that was posted, which told of those before it. */
static uint32_t owed(const struct connection *c) {
    return c->rx.sequence - c->rx.updated;
}

void acks_forget(struct connection *c) {
    if (c->acks.listed)
        cds_list_del(&c->acks.link);
    c->acks.listed = c->acks.asked = false;
}

static void note(struct sluice_loop *l, struct connection *c) {
    if (c->acks.listed)
        return;
    c->acks.listed = true;
    c->acks.due_ns = loop_clock(l) + WAIT_NS;
    if (cds_list_empty(&l->acks))
        l->acks_check_ns = c->acks.due_ns;
    cds_list_add_tail(&c->acks.link, &l->acks);
    loop_deadline(l, c->acks.due_ns);
}

void acks_arrived(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    if (unlikely(!c->acks.listed))
        note(l, c);
    /* It is to be told; or sends that completed may have been acknowledged. */
    if (unlikely(owed(c) >= FRAMES_MOST || c->sq.head != c->unacked.done))
        loop_dirty(l, c->session);
}

static bool says_alive(struct sluice_loop *l, struct connection *c) {
    return (c->tx.credits >= 2 || c->rx.unreported > 0) &&
           send_control_total(l, c->session, FRAME_ALIVE, 0);
}

void acks_flush(struct sluice_loop *l, struct connection *c) {
    const struct session *s = c->session;
    loop_assert_inside(l);
    if (owed(c) == 0) {
        c->acks.asked = false;
        return;
    }
    if (s->state < SESSION_UP || s->state > SESSION_FLUSHING)
        return;
    bool now = c->acks.asked || owed(c) >= FRAMES_MOST;
    if (now && says_alive(l, c))
        c->acks.asked = false;
    else
        note(l, c);
}

void acks_check(struct sluice_loop *l) {
    loop_assert_inside(l);
    l->acks_check_ns = UINT64_MAX;
    while (!cds_list_empty(&l->acks)) {
        struct connection *c = cds_list_first_entry(&l->acks, struct connection, acks.link);
        if (l->now_ns < c->acks.due_ns) {
            l->acks_check_ns = c->acks.due_ns;
            loop_deadline(l, c->acks.due_ns);
            return; /* and the others are later */
        }
        bool asked = c->acks.asked;
        acks_forget(c);
        if (session_connection(c->session) == c && c->unacked.ended != c->sq.tail)
            loop_dirty(l, c->session); /* what came acknowledged sends, whose memory is free */
        if (owed(c) == 0 || c->session->state > SESSION_FLUSHING || says_alive(l, c))
            continue;
        c->acks.asked = asked;
        note(l, c);
    }
}
