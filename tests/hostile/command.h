/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * command.h - a hostile process and the test that tells it what to do: lines, each answered by "done" unless it says
 * otherwise. As which user it runs is its own doing, at its start.
 */
#ifndef HOSTILE_COMMAND_H
#define HOSTILE_COMMAND_H

#include <stdbool.h>

#include "support/side.h"
#include "support/peer.h"

#define COMMAND_OTHER_UID 65534u

/* Returns the port at which it can be dialed. */
unsigned command_start(struct peer *peer, unsigned uid);
/* It has nothing to do any more, and ends. */
void command_end(struct peer *peer);
/* The user of turn 0, 1 ... False: that was all. */
bool command_user(unsigned turn, unsigned *uid);
/* Whether a process of that user is a stranger to this one. */
bool command_is_stranger(unsigned uid);
/*
 * With HOSTILE_STRANGERS in the environment: from now on in a user namespace, and a network namespace, in which every other
 * process is a stranger, as the user of none of them is known. So strangers attack where the tests are not root, too.
 * Before there are threads. False: not here.
 */
bool command_separate(void);

#endif
