/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* reports.c - see reports.h. */
#include "support/reports.h"

#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "pool/internal.h"

char reports[256 * 1024];

static void add(const char *text, void *arg) {
    (void)arg;
    size_t at = strlen(reports);
    int length = snprintf(reports + at, sizeof reports - at, "%s\n", text);
    assert_uint_in_range(length, 0, sizeof reports - at - 1);
}

void reports_of(struct pool *pool) {
    pool->report = add;
}

unsigned reports_count(const char *words) {
    unsigned times = 0;
    for (const char *at = reports; (at = strstr(at, words)) != NULL; at++)
        times++;
    return times;
}
