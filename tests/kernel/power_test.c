/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * power_test.c - two guests: all that two hosts do with each other; and one of them dies in the middle of it.
 * The other one notices within its keepalive, each message has an outcome, and when the first is back they
 * work together as before, without anything having been opened again over here.
 */
#include "suite.h"

#include "support/stall.h"

/* An emulated machine stands still now and then. */
#define KEEPALIVE_NS (4000 * MS)
#define WITHIN_NS (2 * KEEPALIVE_NS + KEEPALIVE_NS / 4)

LEVEL_TEST(a_host_that_dies_is_noticed_and_works_again_when_it_is_back, "polled", 0) {
    struct far_flow f;
    far_flow_open(&f, handlers_of(state), KEEPALIVE_NS);
    far_flow_messages(&f, 40);
    far_power(false);
    uint64_t off = sluice_now();
    stall_begin();
    far_flow_on(&f, UINT64_MAX, off + FLOW_SILENCE_NS);
    uint64_t took = sluice_now() - off, stalled = stall_end();
    assert_true(f.seen.closed);
    far_flow_told(&f, "its power was cut", off);
    assert_true(far_flow_lost(f.seen.end.event.reason));
    assert_true(took <= WITHIN_NS + stalled);
    assert_true(f.seen.received < f.seen.accepted); /* it was in the middle of it */
    must_data_equal(f.seen.outcomes, f.seen.accepted);
    assert_int_equal(far_end(&f.peer), 255); /* it had no end */
    far_flow_try(&f, 0, 1000 * MS);
    assert_true(f.seen.closed);
    far_flow_told(&f, "dialed meanwhile", off);
    far_boot();
    far_flow_begin(&f, KEEPALIVE_NS);
    print_message("back after %llu ms\n", (unsigned long long)((sluice_now() - off) / MS));
    far_flow_messages(&f, 40);
    far_flow_close(&f);
    memory_is_reached_from_either_side(state);
}

int main(void) {
    return tests_run(far_warm_up, NULL);
}
