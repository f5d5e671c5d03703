/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* skip.h - a test that cannot be done here says so. */
#ifndef TESTS_SUPPORT_SKIP_H
#define TESTS_SUPPORT_SKIP_H

/* Ends the test as skipped, and says why on standard error. */
__attribute__((format(printf, 1, 2))) void skip_with(const char *format, ...);

#endif
