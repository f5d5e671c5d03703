/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * yield_test.c - a loop that spins and has one CPU gives it away when somebody else wants it, and does not ask
 * whether somebody does in every empty turn: each time is a system call that keeps a message waiting.
 *
 * The clock moves only when it is looked at and by what a yield takes, which is the test's to say.
 * links: static (counts the turns of a loop, and its yields)
 */
#define _GNU_SOURCE
#include "support/pair.h"

static unsigned yields;
static uint64_t takes_ns;

int sched_yield(void) {
    yields++;
    pair_clock += takes_ns;
    return 0;
}

/* Bound as whoever opens the loop is: to the first CPU it may use. */
static void bind_to_one(cpu_set_t *before) {
    cpu_set_t one;
    CPU_ZERO(&one);
    assert_int_equal(sched_getaffinity(0, sizeof *before, before), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, before))
        cpu++;
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
}

/* Empty turns of a poll that waits so long. */
static unsigned empty_turns(struct side *side, uint64_t wait_ns, uint64_t ns) {
    sluice_event event;
    uint64_t before = atomic_load(&side->loop->progress_count);
    yields = 0;
    takes_ns = ns;
    assert_int_equal(sluice_poll(side->loop, &event, 1, wait_ns), 0);
    return (unsigned)(atomic_load(&side->loop->progress_count) - before);
}

TEST(who_has_one_cpu_yields_where_that_helps) {
    struct pair p;
    cpu_set_t before;
    bind_to_one(&before);
    pair_open(&p, PAIR_NODE(.idle = SLUICE_IDLE_SPIN), PAIR_LINK());
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    pair_frozen = env_now(&env_default);
    pair_step = 10;
    for (unsigned i = 0; i < 2; i++) {
        /* Nobody: seldom. */
        unsigned turns = empty_turns(&p.a, 100000, 100);
        assert_true(turns > 1000);
        assert_in_range(yields, 1, turns / 32);
        /* Somebody: it was seen when it was asked, and from then on at once. */
        turns = empty_turns(&p.a, 1000000, 5000);
        assert_true(turns > 100);
        assert_in_range(yields, turns - 66, turns);
    }
    pair_frozen = pair_step = takes_ns = 0;
    pair_close(&p);
}

TEST(who_has_more_never_yields) {
    struct pair p;
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    if (CPU_COUNT(&set) == 1)
        skip();
    pair_open(&p, PAIR_NODE(.idle = SLUICE_IDLE_SPIN), PAIR_LINK());
    pair_frozen = env_now(&env_default);
    pair_step = 10;
    assert_true(empty_turns(&p.a, 10000, 100) > 1000);
    assert_int_equal(yields, 0);
    pair_frozen = pair_step = takes_ns = 0;
    pair_close(&p);
}
