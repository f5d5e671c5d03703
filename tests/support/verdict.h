/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * verdict.h - data that is wrong, lost or doubled. Of every other failure tools/run-tests lets a test have a second
 * try, since it may be chance; not of this one. It prints "wrong data: ...", and the program that saw it ends
 * with a status of its own, whatever else it finds. Any thread.
 */
#ifndef TESTS_SUPPORT_VERDICT_H
#define TESTS_SUPPORT_VERDICT_H

#include <stddef.h>
#include <stdint.h>

#include "support/must.h"

enum { VERDICT_WRONG_DATA = 86 };

/* Prints why, and gives this program that exit status. The caller fails its test as usual. */
void verdict_wrong_data(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The status to end with, for a program that is about to _exit() with another one. */
int verdict_status(int otherwise);

/* must() for a condition that says that data is right, complete and there once. */
#define must_data(expr)                                                                            \
    do {                                                                                           \
        if (!(expr)) {                                                                             \
            verdict_wrong_data("%s:%d: %s", __FILE__, __LINE__, #expr);                            \
            must(!#expr);                                                                          \
        }                                                                                          \
    } while (0)

/* must_data() for two numbers that have to be equal, as a count, the number of a message, the tag of an outcome: prints both. */
#define must_data_equal(got, want)                                                                 \
    verdict_equal((uint64_t)(got), (uint64_t)(want), #got, __FILE__, __LINE__)
/* must_data() for bytes that have to be equal: prints which is the first that differs. */
#define must_data_bytes(got, want, bytes)                                                          \
    verdict_bytes((got), (want), (bytes), #got, __FILE__, __LINE__)

void verdict_equal(uint64_t got, uint64_t want, const char *what, const char *file, int line);
void verdict_bytes(const void *got, const void *want, size_t bytes, const char *what,
                   const char *file, int line);

#endif
