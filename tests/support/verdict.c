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
#include <string.h>
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

void verdict_equal(uint64_t got, uint64_t want, const char *what, const char *file, int line) {
    if (got == want)
        return;
    verdict_wrong_data("%s:%d: %s is %llu, not %llu", file, line, what, (unsigned long long)got,
                       (unsigned long long)want);
    must_fail(file, line, what);
}

void verdict_bytes(const void *got, const void *want, size_t bytes, const char *what,
                   const char *file, int line) {
    const uint8_t *a = got, *b = want;
    size_t at = 0;
    if (memcmp(a, b, bytes) == 0)
        return;
    while (at < bytes - 1 && a[at] == b[at])
        at++;
    verdict_wrong_data("%s:%d: %s: byte %zu of %zu is 0x%02x, not 0x%02x", file, line, what, at,
                       bytes, a[at], b[at]);
    must_fail(file, line, what);
}
