/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * events.c - events on their way to the application (progress/deliver.c): a session's outcomes and notices.
 *
 * Events are not copied into a queue. A message event comes straight from its completion; an
 * outcome waits in the control block of its message; an event of the session itself (CONNECT, UP,
 * WRITABLE, CLOSED) waits as a bit in the session, which is on the loop's list of notices. So the
 * memory for events is there already, whatever happens.
 *
 * Owner: the loop's thread.
 */
#include "datapath/loop/events.h"

#include "base/error.h"

void event_emit_closing(struct sluice_loop *l, struct session *s, const sluice_event *event) {
    loop_assert_inside(l);
    if (s->handler && loop_call_begin(l, LOOP_NOWHERE)) {
        loop_handled(l);
        s->handler(event, s->handler_arg);
        loop_call_end(l);
    } else if (!s->handler && !loop_discards(l)) {
        l->out[l->out_count++] = *event;
    }
}

void event_plain(struct sluice_loop *l, struct session *s, sluice_event *event) {
    loop_assert_inside(l);
    event->session = event_handle(s);
    event->arg = s->arg;
    event_emit(l, s, event);
}

void event_outcome(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   sluice_status status) {
    loop_assert_inside(l);
    session_assert_mine(s, l);
    msg->outcome.status = status;
    s->outcomes++;
    msg_queue_push(&l->outcomes, msg);
}

void event_turn(struct sluice_loop *l, struct session *s) {
    const struct session_resume *r = &s->resume;
    loop_assert_inside(l);
    bool down = s->notices & NOTICE_DOWN;
    sluice_event event = {.type = down ? SLUICE_DOWN : SLUICE_UP};
    if (down) {
        event.reason = (uint16_t)r->reason;
        event.status = reason_status(r->reason);
        event.vendor = r->vendor;
    } else {
        event.value = r->up_again_ns;
        event.tag = r->count;
    }
    s->notices &= (uint8_t) ~(down ? NOTICE_DOWN : NOTICE_RESUMED);
    event_plain(l, s, &event);
}

void event_notice(struct sluice_loop *l, struct session *s, unsigned notices) {
    loop_assert_inside(l);
    session_assert_mine(s, l);
    ASSERT(!s->over);
    s->notices |= (uint8_t)notices;
    if (s->noticed)
        return;
    s->noticed = true;
    s->notice_next = NULL;
    *l->notices_tail = s;
    l->notices_tail = &s->notice_next;
}
