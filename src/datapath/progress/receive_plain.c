/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * receive_plain.c - a plain message whose session has a handler (receive_plain.h).
 */
#include "datapath/progress/receive_plain.h"

#include "datapath/rx/loans.h"

void receive_plain_handled(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                           uint32_t length) {
    loop_assert_inside(l);
    sluice_event event;
    event_fill(s, msg, SLUICE_MESSAGE, length, &event);
    loop_handled(l);
    s->handler(&event, s->handler_arg);
    event_loan_end(l);
}
