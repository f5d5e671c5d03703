/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * device_event_test.c - what the device said of a queue pair is heard before the queue pair is destroyed, which throws away
 * what was not read: also where completions told the loop first that it broke, and the loop is faster than the CM thread.
 */
#include "support/fault.h"
#include "support/memory.h"

static struct pair *hooked;

/* In the middle of the CM thread's turn the other thread runs. */
static void run_loop(void) {
    sluice_event event;
    for (unsigned i = 0; hooked && i < 100; i++)
        assert_int_equal(sluice_poll(hooked->a.loop, &event, 1, 0), 0);
}

TEST(an_access_is_told_though_the_loop_is_faster) {
    struct memory m;
    memory_open(&m, 4096, PAIR_LINK());
    struct pair *p = &m.pair;
    struct session *s = pair_session(&p->a);
    sluice_token old = m.token;
    sluice_event event;
    assert_int_equal(sluice_region_revoke(m.there, NULL), 0);
    fault_plan("qp=* send=1 delay=60s"); /* it is flushed: that says that the queue pair broke */
    assert_int_equal(pair_send(&p->a, 100, 1, NULL), 0);
    pair_turns(p, 10);
    fault_plan(NULL);
    assert_int_equal(sluice_put(p->b.session, m.here, 0, 100, &old, 0, SLUICE_SEND(.tag = 1)), 0);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (s->state < SESSION_RELEASED) {
        assert_true(env_now(&env_default) < limit);
        (void)sluice_poll(p->b.loop, &event, 1, 0);
        assert_int_equal(sluice_poll(p->a.loop, &event, 1, 0), 0);
    }
    hooked = p;
    pair_on_clock = run_loop;
    while (s->state < SESSION_DRAINED) {
        assert_true(env_now(&env_default) < limit);
        cm_progress(p->a.node->cm, 0);
    }
    hooked = NULL;
    pair_on_clock = NULL;
    assert_int_equal(pair_expect(p, &p->a, SLUICE_CLOSED).reason, SLUICE_REASON_ACCESS);
    memory_close(&m);
}
