/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cancel.h - where a thread that waits in sluice_poll() may be cancelled: the rest of the library holds that back
 * (common/uncancelled.h).
 *
 * It leaves the loop as a poll leaves it that found nothing: not polled by any thread, not asleep for the device, with a
 * readable descriptor if the application has it, so that another thread polls on. No event was taken by then. In a thread
 * that had cancellation disabled, and in those of the library, these are no more than what they say.
 *
 * Owner: the loop's thread, after loop_uncancelled().
 */
#ifndef DATAPATH_LOOP_CANCEL_H
#define DATAPATH_LOOP_CANCEL_H

#include <sys/epoll.h>

struct sluice_loop;

/* epoll_wait() on the loop's set. */
int loop_cancel_wait(struct sluice_loop *l, struct epoll_event *events, int max, int timeout_ms);
/* pthread_testcancel(). */
void loop_cancel_test(struct sluice_loop *l);

#endif
