/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * thread.h - how the library starts threads of its own.
 *
 * Signals are for the application's threads: those of the library block them. They do not block signals that a
 * thread raises by what it does itself: a blocked fault would end the process past the application's handler, its
 * crash reporter and any sanitizer. (abort() unblocks its own signal.)
 *
 * None of them is ever cancelled, though a handler that runs there can name it: pthread_cancel(pthread_self()) has no effect.
 *
 * Owner: the thread that starts it, and joins it.
 */
#ifndef COMMON_THREAD_H
#define COMMON_THREAD_H

#include <pthread.h>

/* All return 0 or an errno. name: at most 15 characters, shown by ps -L and debuggers. */
int thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg);
/* It runs on this CPU from its first instruction on. EINVAL: nothing may run there. */
int thread_start_on(pthread_t *thread, int cpu, const char *name, void *(*run)(void *arg),
                    void *arg);
int thread_start_detached(const char *name, void *(*run)(void *arg), void *arg);

#endif
