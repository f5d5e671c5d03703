/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cpu_begin_test.c - nodes and tools whose claims of CPUs do not see each other do not all begin at the same CPU, and each
 * begins at one that is as good for it as the first.
 */
#include "support/side.h"

#include <hwloc.h>
#include <sched.h>

#include "base/cpu_begin.h"
#include "base/topology.h"
#include "node/cpu_plan.h"
#include "node/node.h"
#include "support/machine.h"
#include "support/skip.h"
#include "support/spaces.h"

#include "../tools/src/common/pin.h"
#include "../tools/src/common/tool.h"

int tool_fail(const char *format, ...) {
    (void)format;
    return 1;
}
void tool_note(const char *format, ...) {
    (void)format;
}

#include "../tools/src/common/pin.c"

#define SPACES 20

/* ---- the plan ---------------------------------------------------------------------------------------------- */

static struct cpu_plan plan_of(hwloc_topology_t topology, uint64_t begin,
                               hwloc_const_cpuset_t usable) {
    static const struct cpu_plan_nic nic = {"mlx5_1", 1};
    struct cpu_plan_input in = {.topology = topology,
                                .device = "mlx5_1",
                                .nics = &nic,
                                .nic_count = 1,
                                .workers = 4,
                                .begin = begin,
                                .usable = usable};
    struct cpu_plan plan;
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    return plan;
}

/* 2 nodes of 4 cores with 2 threads: CPUs 0-7 and 8-15, threads of one core side by side; the device is on the second. */
TEST(a_plan_begins_at_any_core_that_is_near_and_leaves_none_out) {
    hwloc_topology_t topology = machine("numa:2 core:4 pu:2");
    for (unsigned begin = 0; begin < 9; begin++) {
        struct cpu_plan plan = plan_of(topology, begin, NULL);
        assert_int_equal(plan.near_count, 8);
        assert_int_equal(plan.cpu_count, 16);
        for (unsigned i = 0; i < 16; i++) {
            unsigned node = i < 8 ? 8 : 0, thread = i / 4 % 2;
            assert_int_equal(plan.cpus[i], node + (begin + i) % 4 * 2 + thread);
        }
        assert_int_equal(plan.worker_cpu[0], plan.cpus[0]);
    }
    hwloc_topology_destroy(topology);
}

TEST(a_plan_begins_where_the_thread_may_run) {
    hwloc_topology_t topology = machine("numa:2 core:4 pu:2");
    hwloc_bitmap_t usable = hwloc_bitmap_alloc();
    hwloc_bitmap_set(usable, 10);
    hwloc_bitmap_set(usable, 12);
    for (unsigned begin = 0; begin < 8; begin++)
        assert_int_equal(plan_of(topology, begin, usable).cpus[0], begin % 2 ? 12 : 10);
    hwloc_bitmap_zero(usable); /* then the list is as it is, and no claim succeeds */
    assert_int_equal(plan_of(topology, 3, usable).cpus[0], 8);
    hwloc_bitmap_free(usable);
    hwloc_topology_destroy(topology);
}

/* A container makes some namespaces at once: the numbers of its network's are so far apart. */
TEST(numbers_that_are_near_begin_everywhere) {
    for (unsigned step = 1; step <= 8; step++)
        for (unsigned cpus = 2; cpus <= 64; cpus *= 2) {
            uint64_t seen = 0;
            for (unsigned i = 0; i < 16 * cpus; i++)
                seen |= 1ull << cpu_begin_of(4026532000u + i * step) % cpus;
            assert_int_equal(seen, cpus == 64 ? UINT64_MAX : (1ull << cpus) - 1);
        }
}

/* ---- namespaces -------------------------------------------------------------------------------------------- */

static int node_begins(void) {
    sluice_node *node;
    sluice_error e;
    if (sluice_open(&node, SLUICE_NODE(.device = "soft", .workers = 1), &e) != 0)
        fprintf(stderr, "%s\n", e.text);
    else
        return node->workers[0]
            .claim.cpu; /* the namespace lives until it is ended: so does the claim */
    must(!"sluice_open");
    return -1;
}

static int tool_begins(void) {
    static struct pin pin;
    must(pin_claim(&pin, -1) == 0);
    return pin.cpu;
}

/* Where there are several of the best kind, that is: one hardware thread of each core. */
static unsigned cores(void) {
    unsigned count = 0;
    for (int cpu = 0; cpu < CPUS_MAX; cpu++)
        count += pin_is_allowed(cpu) && !is_second_thread(cpu);
    return count;
}

static void do_not_all_begin_on_one(int (*begins)(void)) {
    int cpu[SPACES];
    unsigned others = 0;
    unsetenv("SLUICE_CPUS"); /* of a user */
    if (cores() < 2)
        skip_with("THIS PROCESS MAY RUN ON ONE CORE ONLY");
    if (!spaces_ask(SPACES, begins, cpu))
        skip_with("THIS PROCESS MAY NOT HAVE A NETWORK NAMESPACE OF ITS OWN");
    for (unsigned i = 0; i < SPACES; i++) {
        assert_true(pin_is_allowed(cpu[i]));
        others += cpu[i] != cpu[0];
        fprintf(stderr, "%d ", cpu[i]);
    }
    fprintf(stderr, "\n");
    assert_true(others > 0); /* by chance none is: once in half a million, with two CPUs */
}

TEST(nodes_of_several_network_namespaces_do_not_all_begin_on_one_cpu) {
    do_not_all_begin_on_one(node_begins);
}

TEST(tools_of_several_network_namespaces_do_not_all_begin_on_one_cpu) {
    do_not_all_begin_on_one(tool_begins);
}

/* ---- a tool whose peer has the same one ---------------------------------------------------------------------- */

static void move_away(void) {
    struct pin pin, rest[CPUS_MAX];
    int count = 0;
    must(pin_claim(&pin, -1) == 0 && pin.cpu >= 0);
    int before = pin.cpu;
    must(pin_move(&pin) && pin.cpu >= 0 && pin.cpu != before && pin_is_allowed(pin.cpu));
    cpu_set_t mask;
    must(sched_getaffinity(0, sizeof mask, &mask) == 0);
    must(CPU_COUNT(&mask) == 1 && CPU_ISSET(pin.cpu, &mask));
    while (pin_claim(&rest[count], -1) == 0 && rest[count].cpu >= 0)
        must(rest[count].cpu != pin.cpu && count++ < CPUS_MAX - 1);
    must(count == pin.allowed - 1); /* what it had is free */
    before = pin.cpu;
    must(!pin_move(&pin) && pin.cpu == before && pin.claim_fd >= 0);
}

static int moves_away(void) {
    move_away();
    return 0;
}

TEST(a_tool_moves_to_another_cpu_while_one_is_free) {
    int answer;
    if (cores() < 2)
        skip_with("THIS PROCESS MAY RUN ON ONE CORE ONLY");
    if (!spaces_ask(1, moves_away, &answer)) /* where no other program has claims */
        skip_with("THIS PROCESS MAY NOT HAVE A NETWORK NAMESPACE OF ITS OWN");
    assert_int_equal(answer, 0);
}
