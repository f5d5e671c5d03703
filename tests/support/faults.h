/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * faults.h - for a forked child that runs on without an exec: a fault ends it by its signal. It has
 * inherited cmocka's handlers, which would go on with the parent's next test, or, in a thread of the
 * library, end it with an exit status that looks like a failed check.
 */
#ifndef TESTS_SUPPORT_FAULTS_H
#define TESTS_SUPPORT_FAULTS_H

#include <signal.h>

static inline void faults_end_this_process(void) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS};
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++)
        signal(faults[i], SIG_DFL);
}

#endif
