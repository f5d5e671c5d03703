/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wakeup_test.c - where librdmacm (60) and the kernel (6.18) have rdma_write_cm_event, every wake of a
 * sleeping thread is a user event of the kernel, whatever the headers the library was built with; where
 * one of them has not, every wake is the eventfd's and the node says which it is.
 * links: static (the counters of threads, wakeups that no thread signals)
 *
 * What is to be expected is asked of the system, and not of the wakeup: is there such a function, and
 * which kernel is this?
 */
#include "support/guest.h"
#include "support/sleepers.h"

#include <dlfcn.h>
#include <sys/utsname.h>

static bool in_library, in_kernel;

static int find_out(void **state) {
    struct utsname name;
    unsigned major = 0, minor = 0;
    (void)state;
    must(uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2);
    in_kernel = major > 6 || (major == 6 && minor >= 18);
    in_library = dlsym(RTLD_DEFAULT, "rdma_write_cm_event") != NULL;
    print_message("Linux %s; rdma_write_cm_event: %s in librdmacm, %s in the kernel\n",
                  name.release, in_library ? "is" : "is not", in_kernel ? "is" : "is not");
    return guest_warm_up(state);
}

static bool user_events(void) {
    return in_library && in_kernel;
}

LEVEL_TEST(every_wake_is_of_the_kind_that_can_be_had, "handlers", 1) {
    sleepers_check_every_wake(user_events());
}

LEVEL_TEST(a_woken_poll_is_woken_by_that_kind, "polled", 0) {
    sleepers_check_public_wake(user_events());
}

LEVEL_TEST(the_node_says_which_kind_and_why, "handlers", 1) {
    const char *expected = user_events() ? "rdma_write_cm_event of the system's rdma_cm"
                           : in_library
                               ? "eventfd (the kernel takes no user events: before Linux 6.18)"
                               : "eventfd (librdmacm before 60 has no rdma_write_cm_event)";
    sluice_node_info info = {.size = sizeof info};
    struct side side;
    side_open(&side, true, NULL);
    must(sluice_node_get_info(side.node, &info) == 0);
    if (strncmp(info.wake, expected, strlen(expected)) != 0)
        print_error("it says \"%s\"\n", info.wake);
    assert_int_equal(strncmp(info.wake, expected, strlen(expected)), 0);
    side_close(&side, 0);
}

LEVEL_TEST(an_event_that_nobody_rang_is_counted_and_does_nothing, "handlers", 1) {
    if (!user_events())
        skip(); /* no thread can signal what is not there */
    sleepers_check_forged_events();
}

LEVEL_TEST(user_events_are_among_the_cm_events, "handlers", 1) {
    sleepers_check_cm_events(user_events());
}

/* Removing the device takes no wakeup away: they hang on no device. */
LEVEL_TEST(threads_are_woken_when_the_device_is_gone, "handlers", 1) {
    struct couple c;
    couple_open(&c, true, &sleepers_options);
    couple_connect(&c, NULL);
    sleepers_talk(&c, 3);
    pid_t removal = device_removal(guest_setting("SLUICE_DEVICE"));
    side_expect_closed(&c.a, SLUICE_REASON_DEVICE_REMOVED);
    side_expect_closed(&c.b, SLUICE_REASON_DEVICE_REMOVED);
    must(command_status(removal) == 0);
    for (int loop = -1; loop <= 0; loop++) {
        sleepers_expect_wakes(&c.a, loop, user_events());
        sleepers_expect_wakes(&c.b, loop, user_events());
    }
    couple_close(&c);
    device_add(guest_setting("SLUICE_DEVICE"), guest_setting("KERNEL_NET_A"));
}

int main(void) {
    return tests_run(find_out, NULL);
}
