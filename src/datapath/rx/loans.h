/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * loans.h - messages that are lent to the application, until its handler returns or it polls again.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_RX_LOANS_H
#define DATAPATH_RX_LOANS_H

#include "datapath/loop/events.h"
#include "datapath/loop/loop.h"

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

#endif
