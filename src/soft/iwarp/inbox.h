/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * inbox.h - the memory that streams are read into: a few for all connections of the process.
 *
 * One that is empty may serve any stream. So a connection has one only while it is read, and one that waits for a receive
 * keeps what it has read in it.
 *
 * Any thread; stock.h.
 */
#ifndef SOFT_IWARP_INBOX_H
#define SOFT_IWARP_INBOX_H

#include <stdbool.h>

#include "soft/iwarp/stream.h"

/* Leaves one that has memory as it is. False: there is no memory. */
bool iwarp_inbox_take(struct iwarp_inbox *inbox);
/* What is in it is lost. */
void iwarp_inbox_give(struct iwarp_inbox *inbox);
/* A child of fork(): whoever held the lock is not here. */
void iwarp_inbox_forked(void);

#endif
