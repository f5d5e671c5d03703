/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * control_lock.h - the control lock, of everything of the control path: peers, cm ids, listeners, links. It is never
 * taken by post_send, post_recv or poll_cq. Lock order: control lock, then qp lock, then cq lock; event channels have
 * leaf locks of their own. A thread that waits for it gets it next.
 */
#ifndef SOFT_IPC_CONTROL_LOCK_H
#define SOFT_IPC_CONTROL_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "common/assert.h"

void soft_lock(void);
void soft_unlock(void);
/* The calling thread has it: checked where assertions are compiled in, nothing elsewhere. */
#if ASSERTIONS
void soft_assert_locked(void);
#else
static inline void soft_assert_locked(void) {
}
#endif
/*
 * For the few calls that block as they do on a device: gives the control lock up until soft_lock_wake()
 * or the deadline, and has it again. False: the deadline. Not on the engine thread. Look again, always.
 */
bool soft_lock_wait(uint64_t deadline_ns);
void soft_lock_wake(void);         /* all that wait; control lock */
extern unsigned soft_lock_waiters; /* how many there are, for tests; control lock */

/* Before the first wait in a process; and in a forked child, by the thread that forked with the lock in hand. */
void soft_lock_start(void);
void soft_lock_forked(void);

#endif
