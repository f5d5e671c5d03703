/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * retain.h - messages that were received and that the application retains.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RX_RETAIN_H
#define DATAPATH_RX_RETAIN_H

#include "datapath/loop/loop.h"

/* The application is through with an event, and has kept its message. */
void retain_taken(struct sluice_loop *l, const struct loop_loan *loan);
/* Whether one more credit may be withheld: two are left to the peer. */
bool retain_may_withhold(const struct connection *c);
/* A kept message that another thread freed. */
void retain_free_arrived(struct sluice_loop *l, struct sluice_msg *msg);
/* The queue pair is gone: nothing is withheld any more. */
void retain_end(struct sluice_loop *l, struct session *s);
/* The application frees a kept message. Any thread. */
void retain_free(struct sluice_msg *msg);

/* Whether another buffer must take its place when it is sent. */
static inline bool retain_holds(const struct sluice_msg *msg) {
    return msg->state == MSG_LOANED || (msg->flags & MSG_RETAINED);
}

/* Another thread has sent on what it kept of this session: its credit returns, by another buffer. */
void retain_moved(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* The message is sent on. 0, or ENOMEM and nothing has happened. The thread that has the message. */
int retain_pass(struct sluice_msg *msg);
/* The application makes a loaned message its own. Its thread, see sluice_keep(). */
void event_retain(struct sluice_msg *msg);

#endif
