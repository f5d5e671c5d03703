/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * events.h - events on their way to a handler, or to the array of the thread that polls.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_LOOP_EVENTS_H
#define DATAPATH_LOOP_EVENTS_H

#include "datapath/loop/loop.h"

void event_message(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* The same as another event (REQUEST, REPLY), which the caller began to fill in. Room was checked. */
void event_loan(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                sluice_event *event);
/* The handler that the last loan was made to has returned. */
void event_loan_end(struct sluice_loop *l);
/* A message that was received and is not lent after all. */
void event_return(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);

/* Before it is delivered: the frame whose credit it holds is given back when it is, not before. */
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
/* Takes back what was lent, and frees sessions whose CLOSED was delivered. */
void event_take_back(struct sluice_loop *l);

#endif
