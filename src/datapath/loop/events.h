/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * events.h - events on their way to a handler, or to the array of the thread that polls.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_LOOP_EVENTS_H
#define DATAPATH_LOOP_EVENTS_H

#include <string.h>

#include "datapath/loop/loop.h"

/* An event of a message, where the application finds it: a copy would read what was written a moment ago. */
static inline void event_fill(struct session *s, struct sluice_msg *msg, sluice_event_type type,
                              uint64_t bytes, sluice_event *event) {
    memset(event, 0, sizeof *event);
    event->type = (uint16_t)type;
    event->session.id = atomic_load_explicit(&s->id, memory_order_relaxed);
    event->arg = s->arg;
    event->msg = msg;
    event->bytes = bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

/* Whether events of the session go into the array of the thread that polls, and nothing is in the way. */
static inline bool event_is_polled(const struct sluice_loop *l, const struct session *s) {
    return likely(!s->handler && !loop_is_closing(l));
}

static inline sluice_session event_handle(const struct session *s) {
    return (sluice_session){atomic_load_explicit(&s->id, memory_order_relaxed)};
}

/* event_emit() while the node is being closed: marks each call of the application, so that the closing thread sees it. */
void event_emit_closing(struct sluice_loop *l, struct session *s, const sluice_event *event);

/* To the handler, or into the array. Room was checked. */
static inline void event_emit(struct sluice_loop *l, struct session *s, const sluice_event *event) {
    if (unlikely(loop_is_closing(l))) {
        event_emit_closing(l, s, event);
        return;
    }
    if (s->handler) {
        loop_handled(l);
        s->handler(event, s->handler_arg);
    } else {
        l->out[l->out_count++] = *event;
    }
}

/* An event without a message (NOTIFIED, LARGE). Room was checked. */
void event_plain(struct sluice_loop *l, struct session *s, sluice_event *event);
/* The outcome of a send is known; the SENT event follows when there is room. */
void event_outcome(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   sluice_status status);
/* That the connection was lost, or made again, whichever is the next to be told. Room was checked. */
void event_turn(struct sluice_loop *l, struct session *s);
void event_notice(struct sluice_loop *l, struct session *s, unsigned notices);

#endif
