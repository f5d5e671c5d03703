/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hand_over.h - a session of one loop becomes another's, while it is down between two connections (move.c).
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_SESSION_HAND_OVER_H
#define DATAPATH_SESSION_HAND_OVER_H

#include "datapath/loop/loop.h"

/* It waits until it can be handed over: hand_over_progress() asks move_hands_over() of each that does. */
void hand_over_wait(struct sluice_loop *l, struct session *s);
/* It waits no more. */
void hand_over_forget(struct sluice_loop *l, struct session *s);
/* True: it is the other loop's now, and nothing of it may be touched. False: not yet. */
bool hand_over_try(struct sluice_loop *l, struct session *s, struct sluice_loop *to);
/* The message of the loop that had it. */
void hand_over_arrived(struct sluice_loop *l, struct session *s);
/* MOVED, which is due; and the session goes on. */
void hand_over_tell(struct sluice_loop *l, struct session *s);
/* Those that wait. How many moved on. */
unsigned hand_over_progress(struct sluice_loop *l);
/* The mailbox is empty: those that this loop has, and does not own yet, are its own from now on. */
void hand_over_own(struct sluice_loop *l);

#endif
