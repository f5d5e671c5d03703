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

/* Lends the message there, as that event, to which the caller adds the rest. Room was checked. */
static inline sluice_event *event_lend(struct sluice_loop *l, struct session *s,
                                       struct sluice_msg *msg, sluice_event_type type) {
    sluice_event *event = &l->out[l->out_count++];
    loop_loan_begin(l, msg);
    l->loan_count++;
    l->totals.messages_received++;
    l->totals.bytes_received += msg->size;
    event_fill(s, msg, type, msg->size, event);
    return event;
}

void event_message(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* Lends a message by another event (REQUEST, REPLY), which the caller began to fill in. Room was checked. */
void event_loan(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                sluice_event *event);
/* The handler that the last loan was made to has returned. */
void event_loan_end(struct sluice_loop *l);
/* A message that was received and is not lent after all. */
void event_return(struct sluice_loop *l, struct sluice_msg *msg);

/* Before msg is delivered: the frame whose credit msg holds is given back together with msg, not before. */
static inline void event_escort(struct sluice_msg *msg, struct sluice_msg *frame) {
    msg->next = frame;
    msg->flags = MSG_ESCORTED;
}

/* An event without a message (NOTIFIED, LARGE). Room was checked. */
void event_plain(struct sluice_loop *l, struct session *s, sluice_event *event);
/* The outcome of a send is known; the SENT event follows when there is room. */
void event_outcome(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   sluice_status status);
void event_notice(struct sluice_loop *l, struct session *s, unsigned notices);
/* Delivers outcomes, notices and wakes as far as there is room; returns how many. */
unsigned event_deliver(struct sluice_loop *l);
unsigned event_listeners(struct sluice_loop *l); /* those whose device is gone */
/* Takes back the messages that events lent, and frees sessions whose CLOSED was delivered. */
void event_take_back(struct sluice_loop *l);

#endif
