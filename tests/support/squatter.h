/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * squatter.h - a process that takes abstract names which others need. For forked children (must.h): a name is held until
 * the process ends.
 */
#ifndef TESTS_SUPPORT_SQUATTER_H
#define TESTS_SUPPORT_SQUATTER_H

#include <stdbool.h>
#include <sys/types.h>

/* Root becomes that user. */
void squatter_become(uid_t uid);
/* Takes a name; the socket. Without listening the name is taken too, but no peer can ask who has it. */
int squatter_take(const char *text, bool listens);
/* As many files as it may need for all blocks of queue pair numbers. False: this process may not have so many. */
bool squatter_may_take_blocks(void);
/* The names of the blocks of queue pair numbers, each `step`-th from 0 on. */
void squatter_take_blocks(unsigned step, bool listens);
/*
 * That many names, by processes of their own that end with this one: `begin`, a number of six hexadecimal digits, `end`.
 * Returns when all are there.
 */
void squatter_crowd(const char *begin, const char *end, unsigned count, bool listens);

#endif
