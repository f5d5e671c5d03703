/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cable_test.c - two hosts whose cable is out: for three seconds nothing is lost, for thirty both notice within
 * their keepalive, with a true reason and an outcome for every message, and a dial works when it is back.
 */
#include "support/far_flow.h"

#include "support/stall.h"

/* An emulated machine stands still now and then. */
#define KEEPALIVE_NS (4000 * MS)
#define WITHIN_NS (2 * KEEPALIVE_NS + KEEPALIVE_NS / 4)

/* Nothing happens until then. */
static void flow_rest(struct far_flow *f, uint64_t until_ns) {
    struct note note;
    for (uint64_t now; (now = sluice_now()) < until_ns;)
        must(!side_next(&f->side, &note, until_ns - now));
}

/* With keepalive as it is when nobody asks for another. */
LEVEL_BOTH(a_cable_that_is_out_for_three_seconds_loses_nothing) {
    struct far_flow f;
    far_flow_open(&f, handlers_of(state), 0);
    far_flow_messages(&f, 20);
    far_cable(false);
    far_flow_on(&f, UINT64_MAX, sluice_now() + 3000 * MS);
    assert_false(f.seen.closed);
    far_cable(true);
    far_flow_messages(&f, 60);
    far_flow_close(&f);
}

LEVEL_TEST(a_cable_that_is_out_for_thirty_seconds_is_noticed_by_both, "polled", 0) {
    struct far_flow f, patient;
    far_flow_open(&f, handlers_of(state), KEEPALIVE_NS);
    far_flow_open(&patient, handlers_of(state), SLUICE_OFF);
    far_flow_messages(&f, 20);
    far_flow_messages(&patient, 20);
    far_cable(false);
    uint64_t out = sluice_now();
    stall_begin();
    far_flow_on(&f, UINT64_MAX, out + 30000 * MS);
    uint64_t here = sluice_now() - out;
    assert_true(f.seen.closed);
    far_flow_told(&f, "here", out);
    far_expect(&f.peer, "closed ");
    uint64_t there = sluice_now() - out, stalled = stall_end();
    print_message("there: %s after %llu ms; the machine stood still for %llu ms\n", f.peer.line,
                  (unsigned long long)(there / MS), (unsigned long long)(stalled / MS));
    assert_true(far_flow_lost(f.seen.end.event.reason));
    assert_true(far_flow_lost((int)peer_number(&f.peer, "reason")));
    assert_true(here <= WITHIN_NS + stalled);
    assert_true(there <= WITHIN_NS + stalled);
    must_data_equal(f.seen.outcomes, f.seen.accepted); /* each has one */
    /* Nobody is there: that is what a dial says, when its time is over. */
    far_flow_try(&f, 0, 2000 * MS);
    assert_true(f.seen.closed);
    far_flow_told(&f, "dialed meanwhile", out);
    assert_true(f.seen.end.event.reason == SLUICE_REASON_TIMEOUT ||
                f.seen.end.event.reason == SLUICE_REASON_UNREACHABLE);
    /* Without keepalive it is the device that gives up, after all its retries, or it bears it. */
    far_flow_on(&patient, UINT64_MAX, out + 30000 * MS);
    far_flow_told(&patient, patient.seen.closed ? "without keepalive" : "without keepalive: lives",
                  out);
    assert_true(!patient.seen.closed || patient.seen.end.event.reason == SLUICE_REASON_PEER_LOST);
    flow_rest(&f, out + 30000 * MS);
    far_cable(true);
    uint64_t in = sluice_now();
    far_flow_dial(&f, KEEPALIVE_NS);
    print_message("up %llu ms after the cable was back\n",
                  (unsigned long long)((sluice_now() - in) / MS));
    far_flow_messages(&f, 40);
    far_flow_close(&f);
    if (!patient.seen.closed)
        far_flow_messages(&patient, 40);
    far_flow_close(&patient);
}

/*
 * The route goes with the interface, and the kernel gives connections up that had it. What Soft-RoCE's own queue
 * pair for connecting had to send meanwhile may have broken it, so a new device is made; sessions of the
 * other host's device are not needed for that.
 */
LEVEL_TEST(an_interface_that_is_taken_down_ends_its_sessions, "polled", 0) {
    struct far_flow f;
    far_flow_open(&f, handlers_of(state), KEEPALIVE_NS);
    far_flow_messages(&f, 20);
    far_interface(false);
    uint64_t down = sluice_now();
    far_flow_on(&f, UINT64_MAX, down + 3000 * MS);
    far_interface(true);
    far_flow_on(&f, UINT64_MAX, down + FLOW_SILENCE_NS);
    assert_true(f.seen.closed);
    far_flow_told(&f, "here", down);
    far_expect(&f.peer, "closed ");
    print_message("there: %s\n", f.peer.line);
    assert_true(far_flow_lost(f.seen.end.event.reason));
    int reason = (int)peer_number(&f.peer, "reason"); /* its device fails where it finds no route */
    assert_true(far_flow_lost(reason) || reason == SLUICE_REASON_DEVICE_ERROR);
    must_data_equal(f.seen.outcomes, f.seen.accepted);
    assert_int_equal(far_end(&f.peer), 0);
    far_device();
    far_flow_begin(&f, KEEPALIVE_NS);
    far_flow_messages(&f, 40);
    far_flow_close(&f);
}

int main(void) {
    return tests_run(far_warm_up, far_restore);
}
