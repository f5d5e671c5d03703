/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wakeup_test.c - on the software device, which has user events, every thread that sleeps is woken by
 * one, and the statistics page says so thread by thread. In the kernel's guest kernel_wakeup_test asks
 * the same of the kernel.
 */
#include "support/sleepers.h"

TEST(every_wake_is_a_user_event) {
    sleepers_check_every_wake(true);
}

TEST(a_woken_poll_is_woken_by_a_user_event) {
    sleepers_check_public_wake(true);
}

TEST(an_event_that_nobody_rang_is_counted_and_does_nothing) {
    sleepers_check_forged_events();
}

TEST(user_events_are_among_the_cm_events) {
    sleepers_check_cm_events(true);
}
