/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tool.c - messages, signals and exit status of the tools.
 *
 * The first SIGINT or SIGTERM asks for an orderly end and wakes the loop. The end must come within
 * a second even from inside a call that blocks (opening a device, writing to a full pipe), so an
 * alarm stands behind it, and a second signal does not wait for that. Leaving by _exit() is safe:
 * all a node holds outside its process is released by the kernel when the process ends.
 */
#include "tool.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define STOP_SECONDS 1

static const char *name_of_tool = "sluice";
volatile sig_atomic_t tool_stop_signal;
static _Atomic(sluice_loop *) stop_loop;

static void on_alarm(int signal_number) {
    (void)signal_number;
    _exit(128 + tool_stop_signal);
}

static void on_stop(int signal_number) {
    if (tool_stop_signal != 0)
        _exit(128 + tool_stop_signal);
    int saved_errno = errno;
    tool_stop_signal = signal_number;
    alarm(STOP_SECONDS);
    sluice_loop *loop = atomic_load(&stop_loop);
    if (loop != NULL)
        sluice_wake(loop);
    errno = saved_errno;
}

void tool_start(const char *name) {
    name_of_tool = name;
    /* No SA_RESTART: a read or write that blocks must come back and look at the flag. */
    struct sigaction stop = {.sa_handler = on_stop};
    struct sigaction late = {.sa_handler = on_alarm};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigemptyset(&stop.sa_mask);
    sigemptyset(&late.sa_mask);
    sigemptyset(&ignore.sa_mask);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGALRM, &late, NULL);
    /* A closed pipe and a limit on files (RLIMIT_FSIZE) are write errors like any other. */
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}

const char *tool_name(void) {
    return name_of_tool;
}

static void say(const char *format, va_list args, const char *tail) {
    char text[1024]; /* one write, so that lines of two processes do not mix */
    int at = snprintf(text, sizeof text, "%s: ", name_of_tool);
    vsnprintf(text + at, sizeof text - (size_t)at, format, args);
    fprintf(stderr, "%s%s\n", text, tail);
    fflush(stderr);
}

void tool_note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args, "");
    va_end(args);
}

int tool_fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args, "");
    va_end(args);
    return TOOL_FAILED;
}

int tool_usage(const char *format, ...) {
    char tail[64];
    snprintf(tail, sizeof tail, " (see %s --help)", name_of_tool);
    va_list args;
    va_start(args, format);
    say(format, args, tail);
    va_end(args);
    return TOOL_USAGE;
}

void tool_stop_wakes(sluice_loop *loop) {
    atomic_store(&stop_loop, loop);
    if (loop != NULL && tool_stop_signal != 0)
        sluice_wake(loop); /* it came before there was a loop to wake */
}

int tool_flush(void) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    clearerr(stdout); /* said once */
    return tool_fail("cannot write the results to standard output: %s", tool_write_error(errno));
}

const char *tool_write_error(int error) {
    struct rlimit limit;
    bool limited =
        error == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return limited ? "the limit on the length of files is reached (RLIMIT_FSIZE, `ulimit -f`)"
                   : strerror(error);
}

int tool_end(int rc) {
    int flushed = tool_flush();
    if (tool_stop_signal != 0)
        return 128 + tool_stop_signal;
    return rc != 0 ? rc : flushed;
}
