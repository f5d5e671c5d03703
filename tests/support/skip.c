/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* skip.c - see skip.h. */
#include "support/skip.h"

#include <stdio.h>

#include "support/test.h"

void skip_with(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs("SKIPPED: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    skip();
}
