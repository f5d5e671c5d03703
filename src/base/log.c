/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* log.c - see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include <sluice/sluice.h>

#include "common/uncancelled.h"

void log_write(struct log *log, int level, const char *format, ...) {
    UNCANCELLED;
    char text[256];
    if (!log->sink && level > SLUICE_LOG_WARNING)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    atomic_fetch_add(&log->inside, 1);
    if (!log->sink)
        fprintf(stderr, "sluice: %s: %s\n", log->name, text);
    else if (!atomic_load(&log->quiet))
        log->sink(level, text, log->arg);
    if (atomic_fetch_sub(&log->inside, 1) == 1)
        atomic_fetch_add(&log->rests, 1);
}
