/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * loans.c - lending messages to the application, and taking them back: a receive buffer is posted again, any other goes to its
 * pool, and what the application has kept or sent on counts as that.
 *
 * Owner: the loop's thread.
 */
#include "datapath/rx/loans.h"

#include "datapath/loop/discard.h"
#include "datapath/loop/upward.h"
#include "datapath/rx/coalesced.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/rx/retain.h"
#include "datapath/rx/srq.h"

void event_return(struct sluice_loop *l, struct sluice_msg *msg) {
    loop_assert_inside(l);
    if (likely(msg->flags & MSG_RX)) {
        recv_queue_give_back(l, msg);
    } else if (msg->flags & MSG_VIEW) {
        coalesced_return(l, msg);
    } else {
        if (msg->flags & MSG_ESCORTED)
            recv_queue_give_back(l, msg->next);
        msg->flags = 0;
        msg->owner = NULL;
        msg_discard(l, msg);
    }
}

static void take_back(struct sluice_loop *l, const struct loop_loan *loan) {
    if (likely(loan->what == LOAN_OUT)) {
        event_return(l, loan->msg);
        return;
    }
    if (loan->flags & MSG_VIEW)
        coalesced_release(l, loan->frame);
    else if (loan->flags & MSG_ESCORTED)
        recv_queue_give_back(l, loan->frame);
    if (loan->what == LOAN_RETAINED)
        retain_taken(l, loan);
    if (loan->what != LOAN_REPLACED)
        return;
    if (loan->flags & MSG_SHARED)
        srq_put(l, loan->msg, loan->srq_slot);
    recv_queue_give_back(l, loan->msg);
}

void event_loan_end(struct sluice_loop *l) {
    loop_assert_inside(l);
    l->loan_count--;
    take_back(l, &l->loans[l->loan_count]);
}

/* Enters it among what is loaned; loan_count is counted by the caller. */
static inline struct loop_loan *add_loan(struct sluice_loop *l, struct sluice_msg *msg) {
    struct loop_loan *loan = loop_loan_begin(l, msg);
    l->totals.messages_received++;
    l->totals.bytes_received += msg->size;
    return loan;
}

static inline void describe(struct session *s, struct sluice_msg *msg, sluice_event *event) {
    uint64_t size = msg->size;
    event->session = event_handle(s);
    event->arg = s->arg;
    event->msg = msg;
    event->bytes = size > UINT32_MAX ? UINT32_MAX : (uint32_t)size;
}

void event_message(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    loop_assert_inside(l);
    if (event_is_polled(l, s)) {
        (void)event_lend(l, s, msg, SLUICE_MESSAGE);
    } else {
        sluice_event event = {.type = SLUICE_MESSAGE};
        event_loan(l, s, msg, &event);
    }
}

void event_loan(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                sluice_event *event) {
    loop_assert_inside(l);
    struct loop_loan *loan = add_loan(l, msg);
    if (unlikely(loop_discards(l))) {
        take_back(l, loan);
        return;
    }
    l->loan_count++;
    describe(s, msg, event);
    event_emit(l, s, event);
    if (s->handler)
        event_loan_end(l);
}

void event_take_back(struct sluice_loop *l) {
    loop_assert_inside(l);
    for (uint32_t i = 0; i < l->loan_count; i++) {
        const struct loop_loan *loan = &l->loans[i];
        if (loan->what == LOAN_OUT && (loan->msg->flags & MSG_VIEW))
            i += coalesced_take_back(l, loan, l->loan_count - i) - 1;
        else
            take_back(l, loan);
    }
    l->loan_count = 0;
}
