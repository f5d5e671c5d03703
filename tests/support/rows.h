/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rows.h - cases that differ in values only: one function, and a row of values for each of them in TEST_CASES (test.h).
 * The row has a name of its own, by which cmocka prints it. The function finds its row in *state.
 */
#ifndef TESTS_SUPPORT_ROWS_H
#define TESTS_SUPPORT_ROWS_H

#define ROW_WITH(setup, teardown, name, fn, type, ...)                                             \
    {                                                                                              \
#name, fn, setup, teardown, &(struct type) {                                               \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define ROW(name, fn, type, ...) ROW_WITH(NULL, NULL, name, fn, type, __VA_ARGS__)

#endif
