/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tool.h - how every tool speaks and ends: one line on standard error for whatever went wrong,
 * results on standard output, exit status 0 done, 1 it failed while running, 2 wrong usage,
 * 130 and 143 stopped by SIGINT and SIGTERM.
 *
 * Owner: the main thread.
 */
#ifndef TOOL_H
#define TOOL_H

#include <signal.h>
#include <stdbool.h>

#include <sluice/sluice.h>

#define TOOL_FAILED 1
#define TOOL_USAGE 2

/* First call of main(): the name for messages, the signals. */
void tool_start(const char *name);
const char *tool_name(void);

/* "NAME: text" and a line end on standard error. */
void tool_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* tool_note() that returns TOOL_FAILED, so that a caller can return it. */
int tool_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* tool_note() with a pointer to --help; returns TOOL_USAGE. */
int tool_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The signal that asked to stop, or 0. Cheap enough for a polling loop. */
extern volatile sig_atomic_t tool_stop_signal;
static inline int tool_stopped(void) {
    return tool_stop_signal;
}
/* The loop a stop signal wakes; NULL before the loop is closed. */
void tool_stop_wakes(sluice_loop *loop);

/* Pushes out standard output. 0, or TOOL_FAILED after saying why the results were not written. */
int tool_flush(void);
/* In words, what a failed write() says: with the limit, where that is what it was. */
const char *tool_write_error(int error);
/* Last call of main(): flushes, and returns the exit status: a stop signal outranks rc. */
int tool_end(int rc);

#endif
