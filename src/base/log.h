/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * log.h - a node's log: the application's callback, or standard error for warnings and errors.
 *
 * Any thread. The callback may be called from every thread of the library, the connection-management thread
 * included, so it must not call back into the library. The first three fields are constant from opening on.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct log {
    const char *name; /* of the node */
    void (*sink)(int level, const char *text, void *arg);
    void *arg;
    _Atomic uint32_t inside; /* threads that are in a call of it */
    _Atomic uint32_t rests;  /* how often the last of them left */
    _Atomic bool quiet;      /* the callback is not called any more: sluice_close() has returned */
};

/* level: SLUICE_LOG_ERROR ... */
void log_write(struct log *log, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
