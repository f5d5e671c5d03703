/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * inbox.h - the memory that streams are read into: a few inboxes for all connections of the process.
 *
 * An empty inbox may serve any stream. So a connection has an inbox only while it is read, while it is one of a few that
 * every poll reads, or while the inbox holds bytes that are not fed yet, as when a message waits for a receive.
 *
 * Any thread; stock.h.
 */
#ifndef SOFT_IWARP_INBOX_H
#define SOFT_IWARP_INBOX_H

#include <stdbool.h>

#include "soft/iwarp/stream.h"

/* Leaves an inbox that has memory as it is. False: there is no memory. */
bool iwarp_inbox_take(struct iwarp_inbox *inbox);
/* Bytes in it are lost. */
void iwarp_inbox_give(struct iwarp_inbox *inbox);
/* In a child of fork(): the thread that held the lock does not exist here. */
void iwarp_inbox_forked(void);

#endif
