/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * timers.c - how long the connection manager waits. Constant once read.
 */
#include "soft/cm/timers.h"

#include <pthread.h>

#include "common/settings.h"
#include "soft/rc/completer.h"

static struct soft_cm_timers times;
static pthread_once_t times_once = PTHREAD_ONCE_INIT;

static void times_read(void) {
    times.answer_ms = setting_value(SETTING_SOFT_CM_TIMEOUT_MS, 4000);
    times.tries = setting_value(SETTING_SOFT_CM_TRIES, 16);
    times.wait_ms = setting_value(SETTING_SOFT_CM_WAIT_MS, 20000);
    times.refuse_ms = setting_value(SETTING_SOFT_CM_REFUSE_MS, soft_dropin ? 250 : 0);
    times.end_ms = setting_value(SETTING_SOFT_CM_END_MS, soft_dropin ? 100 : 0);
    times.mpa_ms = setting_value(SETTING_SOFT_MPA_MS, 10000);
    times.timewait_ms = setting_value(SETTING_SOFT_TIMEWAIT_MS, 500);
}

const struct soft_cm_timers *soft_cm_timers(void) {
    pthread_once(&times_once, times_read);
    return &times;
}
