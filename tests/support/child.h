/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * child.h - child processes that end with the test, however it ends: ctest kills the one that is over its time, and
 * no code of it runs any more.
 */
#ifndef TESTS_SUPPORT_CHILD_H
#define TESTS_SUPPORT_CHILD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* for what is included behind this */
#endif

#include <sys/types.h>

/*
 * fork(), and the child is killed when the thread that called it is no more, also behind an exec. Not for a child that is to
 * outlive its parent.
 */
pid_t child_fork(void);
/* In the child, once more: the kernel forgets it when the child becomes another user. */
void child_ends_too(void);
/* A program as execvp() finds it, with these as its standard input and output, that is killed in the same way. */
pid_t child_spawn(char *const argv[], int in, int out);

#endif
