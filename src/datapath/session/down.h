/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * down.h - a session whose connection was lost waits for another one.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_SESSION_DOWN_H
#define DATAPATH_SESSION_DOWN_H

#include "datapath/loop/loop.h"

/*
 * Its connection is of no more use, or one that was to be its next is not. True: the session lives, and what there is to do is done. False: it
 * ends.
 */
bool down_begin(struct sluice_loop *l, struct session *s, sluice_reason reason, uint32_t vendor,
                const char *text);
/* The session leaves its connection for another one, which is up (move.c); that is lost, too: it is down then. */
bool down_move(struct sluice_loop *l, struct session *s);
void down_move_failed(struct sluice_loop *l, struct session *s, const char *text);
/* The session's connection is retired, and one that is not used yet stands in its place. False: there is no memory for it. */
bool down_replace(struct sluice_loop *l, struct session *s);
/* Hung up while it is down: it may come up until then. */
void down_hangup(struct sluice_loop *l, struct session *s, uint64_t due_ns);
/* Tells the application that the session is down, or up again, whichever is the next. Room was checked. */
void down_tell(struct sluice_loop *l, struct session *s);
/* The connection is up, and with it the session. */
void down_over(struct sluice_loop *l, struct session *s);
/* A connection that was lost is drained: what arrived over it is known. */
void down_drained(struct sluice_loop *l, struct connection *c);
void down_timer(struct sluice_loop *l, struct session *s);

#endif
