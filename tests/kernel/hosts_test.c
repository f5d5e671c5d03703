/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hosts_test.c - two hosts: each has a device, an address and a network stack of its own, and what is between
 * them loses packets, delays them, swaps them and changes its MTU. Latency, bandwidth, requests, files,
 * messages and one-sided operations work all the same: nothing is lost, doubled or changed.
 */
#include "suite.h"

/* An emulated machine stands still now and then: far more than netem makes anything take. */
#define KEEPALIVE_NS (5000 * MS)

/* ---- hosts that have not heard of each other ----------------------------------------------------------- */

LEVEL_TEST(a_first_dial_finds_hosts_that_do_not_know_each_other, "polled", 0) {
    struct far_flow f;
    far_flow_open(&f, handlers_of(state), 0);
    for (unsigned i = 0; i < 2; i++) {
        far_flow_hang_up(&f);
        far_forget();
        uint64_t begun = sluice_now();
        far_flow_try(&f, 0, 0); /* with the time that a dial has if nothing else is said */
        assert_false(f.seen.closed);
        print_message("%llu ms\n", (unsigned long long)((sluice_now() - begun) / MS));
    }
    far_flow_messages(&f, 20);
    far_flow_close(&f);
}

/* ---- a network that is bad ---------------------------------------------------------------------------- */

static const char *const weathers[] = {"loss 2%", "delay 5ms reorder 25% 50%", "delay 20ms"};
#define WEATHERS (sizeof weathers / sizeof *weathers)

/* All of them, or, where another kernel has shown that, the first. */
static size_t weathers_tried(void) {
    return getenv("SLUICE_TEST_SHORT") ? 1 : WEATHERS;
}

LEVEL_TEST(everything_works_in_bad_weather, "polled", 0) {
    for (unsigned i = 0; i < weathers_tried(); i++) {
        struct far_flow f;
        print_message("%s\n", weathers[i]);
        far_weather(weathers[i]);
        latency_is_measured(state);
        bandwidth_is_measured(state);
        requests_are_answered(state);
        send_a_file(300000);
        memory_there(3);
        memory_here(3);
        far_flow_open(&f, false, KEEPALIVE_NS);
        for (unsigned k = 0; k < 3; k++) { /* sessions come and go in it too */
            far_flow_messages(&f, 40);
            far_flow_hang_up(&f);
            far_flow_dial(&f, 0);
        }
        far_flow_close(&f);
        far_weather(NULL);
    }
}

LEVEL_BOTH(weather_that_comes_and_goes_is_borne) {
    struct far_flow f;
    far_flow_open(&f, handlers_of(state), KEEPALIVE_NS);
    for (unsigned i = 0; i < weathers_tried(); i++) {
        far_weather(weathers[i]);
        far_flow_messages(&f, 40);
        far_weather(NULL);
        far_flow_messages(&f, 40);
    }
    far_flow_close(&f);
}

LEVEL_TEST(the_mtu_may_grow_in_traffic, "polled", 0) {
    struct far_flow f;
    far_mtu(1500);
    far_flow_open(&f, handlers_of(state), KEEPALIVE_NS);
    far_flow_messages(&f, 40);
    far_mtu(FAR_MTU);
    far_flow_messages(&f, 40);
    far_flow_hang_up(&f);
    far_flow_dial(&f, 0); /* of the larger packets */
    far_flow_messages(&f, 40);
    far_flow_close(&f);
}

/* A RoCE session keeps the size of packet it began with: larger ones do not get through any more. */
LEVEL_TEST(an_mtu_that_shrinks_ends_what_is_larger, "handlers", 1) {
    struct far_flow f;
    far_flow_open(&f, handlers_of(state), KEEPALIVE_NS);
    far_flow_messages(&f, 40);
    far_mtu(1500);
    uint64_t begun = sluice_now();
    if (!far_iwarp()) {
        far_flow_on(&f, UINT64_MAX, begun + FLOW_SILENCE_NS);
        assert_true(f.seen.closed);
        far_flow_told(&f, "here", begun);
        far_expect(&f.peer, "closed ");
        print_message("there: %s\n", f.peer.line);
        assert_true(far_flow_lost(f.seen.end.event.reason));
        assert_true(far_flow_lost((int)peer_number(&f.peer, "reason")));
        must_data_equal(f.seen.outcomes, f.seen.accepted);
        far_flow_dial(&f, KEEPALIVE_NS); /* of smaller packets */
    }
    far_flow_messages(&f, 40);
    far_flow_hang_up(&f);
    far_mtu(FAR_MTU);
    far_flow_close(&f);
}

int main(void) {
    return tests_run(far_warm_up, far_restore);
}
