/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * must.h - a check that works in a forked child, in another thread and in a program that is no test, too: where
 * cmocka must not be called, it prints and ends the process, and whoever waits for it sees the status.
 */
#ifndef TESTS_SUPPORT_MUST_H
#define TESTS_SUPPORT_MUST_H

#include <stdbool.h>

/* Whatever fails from now on ends the process: for forked children, peers, and tests with threads of their own. */
extern bool must_end_process;

/* Fails the test, or ends the process. */
void must_fail(const char *file, int line, const char *what);

#define must(expr)                                                                                 \
    do {                                                                                           \
        if (!(expr))                                                                               \
            must_fail(__FILE__, __LINE__, #expr);                                                  \
    } while (0)

#endif
