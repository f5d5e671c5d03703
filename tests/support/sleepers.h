/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sleepers.h - how the sleeping threads of nodes were woken, from what the nodes publish of it, and traffic
 * in which every message finds its threads asleep.
 *
 * A thread's counters on the page are those of the moment before it slept; so what is compared is
 * compared when it sleeps again, which is waited for.
 */
#ifndef TESTS_SUPPORT_SLEEPERS_H
#define TESTS_SUPPORT_SLEEPERS_H

#include "support/side.h"

#include "base/stats.h"
#include "datapath/loop/loop.h"
#include "core/session_table.h"
#include "fabric/fabric.h"
#include "node/node.h"

#define ROUNDS 100u

extern const sluice_node_options sleepers_options;

/*
 * A message at a time, handed over by this thread to a worker that sleeps. A worker that went to sleep
 * and was woken since by something else is asleep again, or about to look once more: either is a wake
 * or no wake, but never a lost one.
 */
void sleepers_talk(struct couple *c, unsigned rounds);
/* All of a thread's wakes were of the one kind, and nobody rang who was not to. */
void sleepers_expect_wakes(const struct side *side, int loop, bool user_events);
/* Traffic, and all the other reasons to wake a thread: each wake is of the kind that can be had. */
void sleepers_check_every_wake(bool user_events);

/* ---- a loop that a thread of the application sleeps in -------------------------------------------- */

/* sluice_wake() from another thread: each wake is one, of the kind that can be had. */
void sleepers_check_public_wake(bool user_events);

/* ---- events that nobody rang ------------------------------------------------------------------------- */

/* To the worker's own wakeup, as late and as wrong as can be; the session goes on meanwhile. */
void sleepers_check_forged_events(void);
/* The CM thread's events by type have those of its wakeup in them. */
void sleepers_check_cm_events(bool user_events);

#endif
