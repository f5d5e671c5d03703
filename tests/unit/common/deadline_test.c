/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* deadline_test.c - a thread that sleeps until a deadline is never woken before it, nor kept far beyond. */
#include "support/test.h"

#include "common/deadline.h"

TEST(what_is_due_is_not_waited_for) {
    assert_int_equal(deadline_timeout_ms(0, 0), 0);
    assert_int_equal(deadline_timeout_ms(5, 5), 0);
    assert_int_equal(deadline_timeout_ms(5, 6), 0);
    assert_int_equal(deadline_timeout_ms(0, UINT64_MAX), 0);
}

TEST(nothing_is_woken_too_early) {
    assert_int_equal(deadline_timeout_ms(1, 0), 1);
    assert_int_equal(deadline_timeout_ms(1000000, 0), 1);
    assert_int_equal(deadline_timeout_ms(1000001, 0), 2);
    assert_int_equal(deadline_timeout_ms(7000000 + 2000001, 7000000), 3);
}

TEST(never_is_for_ever_and_long_is_an_hour) {
    assert_int_equal(deadline_timeout_ms(DEADLINE_NEVER, 0), -1);
    assert_int_equal(deadline_timeout_ms(DEADLINE_NEVER - 1, 0), DEADLINE_MS_MAX);
    assert_int_equal(deadline_timeout_ms(DEADLINE_NEVER - 1, DEADLINE_NEVER - 2), 1);
    assert_int_equal(deadline_timeout_ms(3600000ull * 1000000, 0), DEADLINE_MS_MAX);
    assert_int_equal(deadline_timeout_ms(3600000ull * 1000000 + 1, 0), DEADLINE_MS_MAX);
}
