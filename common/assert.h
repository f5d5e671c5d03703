/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * assert.h - invariants that debug and sanitizer builds check (the CMake option SLUICE_ASSERTIONS).
 *
 * For rules that this library itself must keep: the calling thread, the state, sums. Never for what a peer, a user or a
 * device sent or did. A failure prints the condition and aborts. In a release build an assertion costs nothing, and its
 * condition is compiled but not evaluated. Any thread.
 */
#ifndef COMMON_ASSERT_H
#define COMMON_ASSERT_H

#include <stdbool.h>

#ifdef SLUICE_ASSERTIONS
#define ASSERTIONS 1
#define ASSERT(condition)                                                                          \
    (__builtin_expect(!!(condition), 1) ? (void)0 : assert_failed(#condition, __func__))
#else
#define ASSERTIONS 0
#define ASSERT(condition) ((void)(0 && (condition)))
#endif

/* Says on standard error what does not hold, and where; does not return. */
_Noreturn void assert_failed(const char *condition, const char *function);

#endif
