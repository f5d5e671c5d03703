/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wakeup_test.c - on the software device, which has user events, every thread that sleeps is woken by
 * one, and the statistics page says so thread by thread. In the kernel's guest kernel_wakeup_test asks
 * the same of the kernel.
 */
#include "support/sleepers.h"

static void every_wake_is_a_user_event(void **state) {
    (void)state;
    sleepers_check_every_wake(true);
}

static void a_woken_poll_is_woken_by_a_user_event(void **state) {
    (void)state;
    sleepers_check_public_wake(true);
}

static void an_event_that_nobody_rang_is_counted_and_does_nothing(void **state) {
    (void)state;
    sleepers_check_forged_events();
}

static void user_events_are_among_the_cm_events(void **state) {
    (void)state;
    sleepers_check_cm_events(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wake_is_a_user_event),
        cmocka_unit_test(a_woken_poll_is_woken_by_a_user_event),
        cmocka_unit_test(an_event_that_nobody_rang_is_counted_and_does_nothing),
        cmocka_unit_test(user_events_are_among_the_cm_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
