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

#endif
