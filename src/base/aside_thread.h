/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * aside_thread.h - a call on a thread of its own, for which its caller waits as long as it likes. A call that takes
 * longer goes on without the caller, and its thread ends by itself.
 *
 * Owner: the thread that starts it; the struct is shared with the other one until both are done with it.
 */
#ifndef BASE_ASIDE_THREAD_H
#define BASE_ASIDE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

struct aside;

/*
 * Starts run(arg) on a thread of this name. When it has returned and its caller does not wait any more, the thread
 * calls left(arg) too. NULL: there is no memory or no thread for it, and nothing was called.
 */
struct aside *aside_start(const char *name, void (*run)(void *arg), void (*left)(void *arg),
                          void *arg);
/* Waits until that time of sluice_now(), UINT64_MAX: for ever. True: it is done, and the struct freed. */
bool aside_wait(struct aside *aside, uint64_t until_ns);
/* Waits no more. True: it is done all the same, and left() is not called. The struct is gone either way. */
bool aside_leave(struct aside *aside);

#endif
