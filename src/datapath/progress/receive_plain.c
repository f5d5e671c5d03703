/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * receive_plain.c - a plain message whose session has a handler (receive_plain.h).
 */
#include "datapath/progress/receive_plain.h"

#include "datapath/rx/acks.h"
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

bool receive_plain_acked(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
                         const struct ibv_wc *wc) {
    struct receive_plain sum = {0};
    const struct session *s = c->session;
    loop_assert_inside(l);
    if (unlikely(session_connection(s) != c) || /* of one before it, or that was given up */
        !receive_plain(l, c, msg, wc, SESSION_RX_ACKS, &sum))
        return false;
    receive_plain_count(l, &sum);
    if (likely(session_connection(s) == c &&
               (s->state == SESSION_UP || s->state == SESSION_FLUSHING)))
        acks_arrived(l, c); /* else its handler ended it */
    return true;
}
