/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * test.h - cmocka, behind the headers that it wants to be included before; and tests that list themselves. TEST(name) { ... }
 * is a test that its program runs, in the order of the file. A program without a main() gets that of main.c; one with its own
 * ends it with tests_run().
 */
#ifndef TESTS_SUPPORT_TEST_H
#define TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TEST(name) TEST_WITH(NULL, NULL, name)

/* *state is what setup, if there is one, left there. */
#define TEST_WITH(setup, teardown, name) TEST_EACH(name, {#name, name, setup, teardown, NULL})

/* One function that is several tests, each written as cmocka does: name, function, setup, teardown, state. */
#define TEST_EACH(name, ...)                                                                       \
    static void name(void **state);                                                                \
    TESTS_ADD(name, __VA_ARGS__)                                                                   \
    static void name(__attribute__((unused)) void **state)

/* Rows of functions, behind all of them (rows.h). Once in a file. */
#define TEST_CASES(...)                                                                            \
    TESTS_ADD(cases, __VA_ARGS__)                                                                  \
    _Static_assert(1, "") /* takes the semicolon */

/* A compiler may call constructors in another order than it finds them in. */
#define TESTS_ADD(name, ...)                                                                       \
    static const struct CMUnitTest name##_tests[] = {__VA_ARGS__};                                 \
    __attribute__((constructor)) static void name##_tests_add(void) {                              \
        tests_add(__COUNTER__, name##_tests, sizeof name##_tests / sizeof *name##_tests);          \
    }

void tests_add(unsigned position, const struct CMUnitTest *tests, size_t n);

/* What main() returns. setup before the first and teardown after the last, each may be NULL. */
int tests_run(CMFixtureFunction setup, CMFixtureFunction teardown);

#endif
