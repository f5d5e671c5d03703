/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * credits.h - how many credits the peer has.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RX_CREDITS_H
#define DATAPATH_RX_CREDITS_H

#include "datapath/loop/loop.h"

struct frame;

/* RECALL or RETURN: NULL, or what is wrong. */
const char *credits_control(struct sluice_loop *l, struct connection *c, const struct frame *f);
/* Gives back what the peer has recalled. */
void credits_return(struct sluice_loop *l, struct session *s);
/* Whether credits are owed that must be told now. */
bool credits_update_due(const struct connection *c);
/* The session is up. */
void credits_start(struct sluice_loop *l, struct connection *c);

/*
 * So much has come lately that receives should be posted again in larger batches, even if the peer
 * never has many frames on their way.
 */
static inline bool credits_are_used(const struct connection *c) {
    return c->rx.sequence - c->credits.seen >= 256;
}

/* The peer has used much of what it had: more, if it may have more. */
void credits_grow(struct sluice_loop *l, struct connection *c);
/* `granted` or `retained` has changed; figures for other threads. */
void credits_changed(struct connection *c);
void credits_publish(struct connection *c);
/* Looks at the sessions if it is time to; l->now_ns was just read. */
void credits_check(struct sluice_loop *l);

/* Sees to it that one is spare; false: it cannot be had now. */
bool credits_find_spare(struct sluice_loop *l, struct session *s);
/*
 * A receive for the reply of a request: false, none can be had now; what ends the wait makes the
 * session dirty. Its reply came: taken, in that receive (FRAME_RESERVED); else in another frame.
 */
static inline bool credits_reserve(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    if (unlikely(c->rx.queue->spare == 0) && !credits_find_spare(l, s))
        return false;
    c->rx.queue->spare--;
    c->recv.reserved++;
    return true;
}

static inline void credits_unreserve(struct session *s, bool taken) {
    struct connection *c = session_connection(s);
    if (unlikely(c->recv.reserved == 0))
        return; /* the queue pair is gone */
    c->recv.reserved--;
    c->rx.queue->spare += !taken;
}

#endif
