/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wait.h - waiting for another thread of the test, with a limit that is far above what a loaded machine needs: a
 * thread that does not come fails the test instead of hanging it.
 */
#ifndef TESTS_SUPPORT_WAIT_H
#define TESTS_SUPPORT_WAIT_H

#include <semaphore.h>
#include <stdbool.h>
#include <sys/types.h>

/* Until the semaphore was posted. */
void wait_semaphore(sem_t *sem);
/* Until the flag is set. */
void wait_flag(const _Atomic bool *flag);
/* Until that child has ended; its exit status, for it ends by itself. What it found wrong in data, this program did. */
int wait_exit(pid_t pid);

#endif
