/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * timers.c - how long the connection manager waits. Constant once read.
 */
#define _GNU_SOURCE /* secure_getenv */
#include "soft/cm/timers.h"

#include <pthread.h>
#include <stdlib.h>

#include "soft/rc/completer.h"

static struct soft_cm_timers times;
static pthread_once_t times_once = PTHREAD_ONCE_INIT;

static unsigned setting(const char *name, unsigned fallback, unsigned least, unsigned most) {
    const char *text = secure_getenv(name);
    if (!text || !*text)
        return fallback;
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    return *end || value < least || value > most ? fallback : (unsigned)value;
}

static void times_read(void) {
    times.answer_ms = setting("SLUICE_SOFT_CM_TIMEOUT_MS", 4000, 10, 600000);
    times.tries = setting("SLUICE_SOFT_CM_TRIES", 16, 1, 1000);
    times.wait_ms = setting("SLUICE_SOFT_CM_WAIT_MS", 20000, 10, 600000);
    times.refuse_ms = setting("SLUICE_SOFT_CM_REFUSE_MS", soft_dropin ? 250 : 0, 0, 600000);
    times.mpa_ms = setting("SLUICE_SOFT_MPA_MS", 10000, 10, 600000);
    times.timewait_ms = setting("SLUICE_SOFT_TIMEWAIT_MS", 500, 1, 600000);
}

const struct soft_cm_timers *soft_cm_timers(void) {
    pthread_once(&times_once, times_read);
    return &times;
}
