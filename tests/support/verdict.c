/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * verdict.c - see verdict.h. The status replaces that of main() by a handler of exit(): cmocka's main functions
 * return how many tests failed.
 */
#include "support/verdict.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_bool wrong;

static void end_with_it(void) {
    fflush(NULL);
    _exit(VERDICT_WRONG_DATA);
}

void verdict_wrong_data(const char *format, ...) {
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "wrong data: %s\n", text); /* in one write: peers print beside it */
    if (!atomic_exchange(&wrong, true))
        atexit(end_with_it);
}

int verdict_status(int otherwise) {
    return atomic_load(&wrong) ? VERDICT_WRONG_DATA : otherwise;
}
