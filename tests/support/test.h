/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* test.h - cmocka, behind the headers that it wants to be included before. */
#ifndef TESTS_SUPPORT_TEST_H
#define TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
