/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct part {
    unsigned position;
    const struct CMUnitTest *tests;
    size_t n;
} * parts;
static size_t count;

void tests_add(unsigned position, const struct CMUnitTest *tests, size_t n) {
    parts = realloc(parts, (count + 1) * sizeof *parts);
    if (!parts)
        abort();
    parts[count++] = (struct part){position, tests, n};
}

static int by_position(const void *a, const void *b) {
    unsigned x = ((const struct part *)a)->position, y = ((const struct part *)b)->position;
    return (x > y) - (x < y);
}

int tests_run(CMFixtureFunction setup, CMFixtureFunction teardown) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += parts[i].n;
    struct CMUnitTest *all = malloc((n + 1) * sizeof *all);
    if (n == 0 || !all) {
        fprintf(stderr, "there is no test to run\n");
        free(all);
        return 1;
    }
    qsort(parts, count, sizeof *parts, by_position);
    for (size_t i = 0, at = 0; i < count; at += parts[i++].n)
        memcpy(all + at, parts[i].tests, parts[i].n * sizeof *all);
    int failed = _cmocka_run_group_tests("tests", all, n, setup, teardown);
    free(all);
    free(parts);
    parts = NULL;
    count = 0;
    return failed;
}
