/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sync.h - synchronous mode: ids on a private channel whose calls wait for their event.
 */
#ifndef SOFT_CM_SYNC_H
#define SOFT_CM_SYNC_H

struct soft_cm_id;

/*
 * End of a call that was started: asynchronous ids return at once, synchronous ones wait for their
 * next event, whatever it is. 0, or -1 and errno. Control lock not held.
 */
int soft_cm_sync_complete(struct soft_cm_id *id);

#endif
