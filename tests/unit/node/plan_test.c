/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * plan_test.c - where workers and memory belong, on machines that are not here: hwloc's synthetic
 * topologies with two, four and eight NUMA nodes, and the same as XML with NICs on some of them.
 */
#define _GNU_SOURCE
#include "support/child.h"
#include "support/test.h"
#include "support/wait.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/topology.h"
#include "fabric/fabric.h"
#include "support/machine.h"
#include "support/skip.h"
#include "node/cpu_plan.h"

static const struct cpu_plan_nic nics[] = {
    {"mlx5_0", 0}, {"mlx5_1", 1}, {"mlx5_2", 3}, {"bad_0", 99}};

static struct cpu_plan_input input(hwloc_topology_t topology, const char *device,
                                   uint32_t workers) {
    return (struct cpu_plan_input){.topology = topology,
                                   .device = device,
                                   .nics = nics,
                                   .nic_count = sizeof nics / sizeof nics[0],
                                   .workers = workers};
}

/* Every CPU once, none forgotten. */
static void check_all(const struct cpu_plan *plan, uint32_t cpus) {
    assert_int_equal(plan->cpu_count, cpus);
    for (uint32_t i = 0; i < cpus; i++)
        for (uint32_t j = i + 1; j < cpus; j++)
            assert_int_not_equal(plan->cpus[i], plan->cpus[j]);
}

/* 2 nodes of 4 cores with 2 threads: CPUs 0-7 and 8-15, threads of one core side by side. */
TEST(workers_are_near_the_device_and_on_cores_of_their_own) {
    hwloc_topology_t topology = machine("numa:2 core:4 pu:2");
    struct cpu_plan_input in = input(topology, "mlx5_1", 10);
    struct cpu_plan plan;
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, 1);
    assert_int_equal(plan.arena_numa, 1);
    assert_int_equal(plan.near_count, 8);
    check_all(&plan, 16);
    const int16_t expected[] = {8, 10, 12, 14, 9, 11, 13, 15, 0, 2};
    assert_memory_equal(plan.worker_cpu, expected, sizeof expected);
    for (int i = 0; i < 10; i++)
        assert_int_equal(plan.worker_numa[i], i < 8 ? 1 : 0);
    assert_int_equal(plan.worker_cpu[10], -1);
    assert_false(plan.chosen);
    assert_non_null(strstr(plan.why, "NUMA node 1"));
    hwloc_topology_destroy(topology);
}

TEST(each_device_has_its_node) {
    static const char *const machines[] = {"numa:2 core:2 pu:1", "numa:4 core:2 pu:1",
                                           "package:4 numa:2 core:2 pu:1"};
    static const int nodes[] = {2, 4, 8};
    for (int m = 0; m < 3; m++) {
        hwloc_topology_t topology = machine(machines[m]);
        for (int n = 0; n < 3; n++) {
            struct cpu_plan_input in = input(topology, nics[n].device, 2);
            struct cpu_plan plan;
            assert_int_equal(cpu_plan_make(&plan, &in), 0);
            bool there = nics[n].numa < nodes[m];
            assert_int_equal(plan.device_numa, there ? nics[n].numa : CPU_PLAN_NO_NUMA);
            assert_int_equal(plan.arena_numa, plan.device_numa);
            check_all(&plan, (uint32_t)nodes[m] * 2);
            if (there) {
                assert_int_equal(plan.near_count, 2);
                assert_int_equal(plan.worker_numa[0], nics[n].numa);
                assert_int_equal(plan.worker_numa[1], nics[n].numa);
            }
        }
        hwloc_topology_destroy(topology);
    }
}

/* Eight nodes in a row: the farther, the later. */
TEST(farther_nodes_come_later) {
    hwloc_topology_t topology = machine("numa:8 core:1 pu:1");
    hwloc_obj_t objs[8];
    hwloc_uint64_t values[64];
    for (unsigned i = 0; i < 8; i++) {
        objs[i] = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, i);
        for (unsigned j = 0; j < 8; j++)
            values[i * 8 + j] = 10 + 5 * (i > j ? i - j : j - i);
    }
    hwloc_distances_add_handle_t handle = hwloc_distances_add_create(
        topology, NULL, HWLOC_DISTANCES_KIND_FROM_USER | HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0);
    assert_non_null(handle);
    assert_int_equal(hwloc_distances_add_values(topology, handle, 8, objs, values, 0), 0);
    assert_int_equal(hwloc_distances_add_commit(topology, handle, 0), 0);
    struct cpu_plan_input in = input(topology, "mlx5_2", 8);
    struct cpu_plan plan;
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    const int16_t expected[] = {3, 2, 4, 1, 5, 0, 6, 7};
    assert_memory_equal(plan.cpus, expected, sizeof expected);
    hwloc_topology_destroy(topology);
}

TEST(cpus_the_cgroup_forbids_are_in_no_plan) {
    hwloc_topology_t topology = machine("numa:2 core:4 pu:1");
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    hwloc_bitmap_set_range(set, 2, 4);
    assert_int_equal(hwloc_topology_allow(topology, set, NULL, HWLOC_ALLOW_FLAG_CUSTOM), 0);
    struct cpu_plan_input in = input(topology, "mlx5_0", 8);
    struct cpu_plan plan;
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    const int16_t expected[] = {2, 3, 4};
    check_all(&plan, 3);
    assert_memory_equal(plan.cpus, expected, sizeof expected);
    assert_int_equal(plan.near_count, 2);
    assert_int_equal(plan.worker_cpu[3], -1); /* more workers than CPUs: not pinned */
    /* All of the device's node forbidden: the rest serves, and nothing is nearer. */
    hwloc_bitmap_zero(set);
    hwloc_bitmap_set_range(set, 4, 7);
    assert_int_equal(hwloc_topology_allow(topology, set, NULL, HWLOC_ALLOW_FLAG_CUSTOM), 0);
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    check_all(&plan, 4);
    assert_int_equal(plan.near_count, 4);
    int forbidden = 0;
    in.worker_cpus = &forbidden;
    in.workers = 1;
    assert_int_equal(cpu_plan_make(&plan, &in), -EINVAL);
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
}

TEST(the_users_word_comes_first) {
    hwloc_topology_t topology = machine("numa:2 core:4 pu:1");
    struct cpu_plan_input in = input(topology, "mlx5_0", 3);
    struct cpu_plan plan;
    const int mine[] = {6, -1, 1};
    in.worker_cpus = mine;
    in.environment = "0";
    assert_int_equal(cpu_plan_make(&plan, &in), 0); /* the option wins over the environment */
    assert_true(plan.chosen);
    assert_int_equal(plan.worker_cpu[0], 6);
    assert_int_equal(plan.worker_numa[0], 1);
    assert_int_equal(plan.worker_cpu[1], -1);
    assert_int_equal(plan.worker_cpu[2], 1);
    const int wrong[] = {0, 1, 8};
    in.worker_cpus = wrong;
    assert_int_equal(cpu_plan_make(&plan, &in), -EINVAL);
    assert_non_null(strstr(plan.why, "worker_cpus names CPU 8"));

    in.worker_cpus = NULL;
    in.environment = "7,4-5,5";
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    const int16_t expected[] = {7, 4, 5};
    check_all(&plan, 3);
    assert_memory_equal(plan.worker_cpu, expected, sizeof expected);
    assert_int_equal(plan.device_numa, 0); /* memory stays where the device is */
    static const char *const bad[] = {"x",  "1-", "3-1",      "1,,2", "1,",
                                      "-1", "8",  "0-100000", "1 2",  "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        in.environment = bad[i];
        assert_int_equal(cpu_plan_make(&plan, &in), -EINVAL);
        assert_non_null(strstr(plan.why, "SLUICE_CPUS"));
    }
    in.environment = "";
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_false(plan.chosen);
    hwloc_topology_destroy(topology);
}

TEST(nothing_known_gives_a_plan_that_works) {
    struct cpu_plan plan;
    struct cpu_plan_input in = input(NULL, "mlx5_0", 4);
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, CPU_PLAN_NO_NUMA);
    assert_int_equal(plan.arena_numa, CPU_PLAN_NO_NUMA);
    assert_int_equal(plan.worker_cpu[0], -1);
    assert_string_equal(plan.why, "the machine's topology is not known");
    in.missing = "it rains";
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_string_equal(plan.why, "it rains");
    hwloc_topology_t topology = machine("numa:2 core:2 pu:1");
    static const char *const devices[] = {"nobody_0", "bad_0", NULL};
    for (int i = 0; i < 3; i++) {
        in = input(topology, devices[i], 2);
        assert_int_equal(cpu_plan_make(&plan, &in), 0);
        assert_int_equal(plan.device_numa, CPU_PLAN_NO_NUMA);
        check_all(&plan, 4);
        assert_int_equal(plan.near_count, 4);
        assert_non_null(strstr(plan.why, i == 1 ? "bad_0 is on NUMA node 99, which is not there for"
                                                : "the NUMA node of the device is not known"));
    }
    in = input(topology, "mlx5_0", 2);
    in.anywhere = true; /* in memory, whatever it is called */
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, CPU_PLAN_NO_NUMA);
    hwloc_topology_destroy(topology);
    /* This machine, whatever it is. */
    in = input(topology_here(), NULL, 1);
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_true(plan.cpu_count > 0);
    assert_int_equal(plan.worker_cpu[0], plan.cpus[0]);
}

TEST(what_the_device_says_of_itself_is_believed_first) {
    hwloc_topology_t topology = machine("numa:4 core:2 pu:1");
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    struct cpu_plan_input in = input(topology, "mlx5_0", 1);
    struct cpu_plan plan;
    in.device_cpus = set;
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, 0); /* it says nothing: the table */
    hwloc_bitmap_set_range(set, 4, 5);
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, 2);
    hwloc_bitmap_set_range(set, 0, 7); /* next to every node: that says nothing either */
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, 0);
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
}

/* ---- devices that hwloc knows -------------------------------------------------------------------- */

TEST(nics_that_hwloc_sees_are_where_it_says) {
    static const struct {
        const char *text;
        int count, nodes[4], per_node;
    } machines[] = {{"numa:2 core:2 pu:2", 2, {0, 1}, 4},
                    {"numa:4 core:2 pu:1", 2, {1, 3}, 2},
                    {"package:4 numa:2 core:2 pu:1", 3, {0, 3, 6}, 2}};
    for (int m = 0; m < 3; m++) {
        hwloc_topology_t topology =
            machine_with_nics(machines[m].text, machines[m].nodes, machines[m].count);
        for (int i = 0; i < machines[m].count; i++) {
            char device[32], pci[32];
            int numa = machines[m].nodes[i];
            struct cpu_plan plan;
            snprintf(device, sizeof device, "mlx5_%d", numa);
            snprintf(pci, sizeof pci, "%04d:3b:00.0", numa);
            struct cpu_plan_input in = input(topology, device, 2);
            in.nic_count = 0; /* only hwloc knows */
            for (int by_pci = 0; by_pci < 2; by_pci++) {
                assert_int_equal(cpu_plan_make(&plan, &in), 0);
                assert_int_equal(plan.device_numa, numa);
                assert_int_equal(plan.arena_numa, numa);
                assert_int_equal(plan.near_count, machines[m].per_node);
                assert_int_equal(plan.worker_cpu[0], numa * machines[m].per_node);
                assert_int_equal(plan.worker_numa[0], numa);
                assert_int_equal(plan.worker_numa[1], numa);
                assert_non_null(strstr(plan.why, by_pci ? "PCI device" : "device of that name"));
                in.device = "renamed_0"; /* under that name it is not found, but on its bus */
                in.pci = pci;
            }
            in.pci = "0009:00:00.0";
            assert_int_equal(cpu_plan_make(&plan, &in), 0);
            assert_int_equal(plan.device_numa, CPU_PLAN_NO_NUMA);
        }
        hwloc_topology_destroy(topology);
    }
}

/* The CPUs next to it, then hwloc's objects, then the kernel's number. */
TEST(who_knows_the_device_is_asked_in_order) {
    static const int node = 1;
    hwloc_topology_t topology = machine_with_nics("numa:4 core:2 pu:1", &node, 1);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    static const struct cpu_plan_nic says = {"mlx5_1", 3};
    struct cpu_plan_input in = input(topology, "mlx5_1", 1);
    struct cpu_plan plan;
    in.nics = &says;
    in.nic_count = 1;
    in.device_cpus = set;
    hwloc_bitmap_set_range(set, 4, 5);
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, 2);
    assert_non_null(strstr(plan.why, "the CPUs next to it"));
    /* hwloc's helper says all of them where it does not know. */
    hwloc_bitmap_copy(set, hwloc_topology_get_complete_cpuset(topology));
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, 1);
    hwloc_topology_destroy(topology);
    topology = machine("numa:4 core:2 pu:1");
    in.topology = topology;
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, 3);
    assert_non_null(strstr(plan.why, "the kernel"));
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
}

/* ---- where the memory goes ------------------------------------------------------------------------ */

TEST(memory_goes_where_the_user_says) {
    hwloc_topology_t topology = machine("numa:4 core:2 pu:1");
    struct cpu_plan_input in = input(topology, "mlx5_1", 1);
    struct cpu_plan plan;
    in.numa_environment = "3";
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.arena_numa, 3);
    assert_int_equal(plan.device_numa, 1);
    assert_int_equal(plan.worker_numa[0], 1); /* the workers stay where the device is */
    in.memory_numa = 1 + 2;                   /* the option wins over the environment */
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.arena_numa, 2);
    in.memory_numa = CPU_PLAN_NUMA_UNBOUND;
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.arena_numa, CPU_PLAN_NO_NUMA);
    in.memory_numa = 0;
    in.numa_environment = "none";
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.arena_numa, CPU_PLAN_NO_NUMA);
    in.numa_environment = "";
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.arena_numa, 1);
    static const char *const bad[] = {"4", "-1", "1x", "x", "99999999999999999999", " 1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        in.numa_environment = bad[i];
        assert_int_equal(cpu_plan_make(&plan, &in), -EINVAL);
        assert_non_null(strstr(plan.why, "SLUICE_NUMA"));
    }
    in.memory_numa = 1 + 4;
    assert_int_equal(cpu_plan_make(&plan, &in), -EINVAL);
    assert_non_null(strstr(plan.why, "memory_numa names NUMA node 4, which is not there"));
    in.anywhere = true; /* even a device that is nowhere can have its memory somewhere */
    in.memory_numa = 1 + 3;
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.arena_numa, 3);
    assert_int_equal(plan.device_numa, CPU_PLAN_NO_NUMA);
    hwloc_topology_destroy(topology);
}

TEST(memory_is_bound_to_no_node_the_cgroup_forbids) {
    hwloc_topology_t topology = machine("numa:4 core:2 pu:1");
    hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    struct cpu_plan_input in = input(topology, "mlx5_1", 1);
    struct cpu_plan plan;
    hwloc_bitmap_set(nodes, 0);
    hwloc_bitmap_set(nodes, 3);
    assert_int_equal(hwloc_topology_allow(topology, NULL, nodes, HWLOC_ALLOW_FLAG_CUSTOM), 0);
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, 1);
    assert_int_equal(plan.arena_numa, CPU_PLAN_NO_NUMA);
    in.memory_numa = 1 + 3;
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.arena_numa, 3);
    in.memory_numa = 1 + 2;
    assert_int_equal(cpu_plan_make(&plan, &in), -EINVAL);
    assert_non_null(strstr(plan.why, "not allowed"));
    hwloc_bitmap_free(nodes);
    hwloc_topology_destroy(topology);
}

TEST(memory_is_bound_to_no_node_without_any) {
    hwloc_topology_t topology = machine("numa:4 core:2 pu:1");
    struct cpu_plan_input in = input(topology, "mlx5_1", 1);
    struct cpu_plan plan;
    hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, 1)->attr->numanode.local_memory = 0;
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, 1);
    assert_int_equal(plan.worker_numa[0], 1); /* its CPUs are as near as ever */
    assert_int_equal(plan.arena_numa, CPU_PLAN_NO_NUMA);
    in.numa_environment = "1";
    assert_int_equal(cpu_plan_make(&plan, &in), -EINVAL);
    assert_non_null(strstr(plan.why, "SLUICE_NUMA names NUMA node 1, which is not there, not "
                                     "allowed, or has no memory"));
    hwloc_topology_destroy(topology);
}

TEST(one_node_is_near_everything) {
    hwloc_topology_t topology = machine("core:4 pu:1");
    hwloc_bitmap_t set = hwloc_bitmap_dup(hwloc_topology_get_complete_cpuset(topology));
    struct cpu_plan_input in = input(topology, "rxe0", 2);
    struct cpu_plan plan;
    in.device_cpus = set;
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, 0);
    assert_int_equal(plan.near_count, 4);
    assert_int_equal(plan.worker_cpu[0], 0);
    assert_int_equal(plan.worker_cpu[1], 1);
    in.anywhere = true;
    assert_int_equal(cpu_plan_make(&plan, &in), 0);
    assert_int_equal(plan.device_numa, CPU_PLAN_NO_NUMA);
    assert_int_equal(plan.arena_numa, CPU_PLAN_NO_NUMA);
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
}

/* ---- hwloc's helper for verbs devices --------------------------------------------------------------- */

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (!file)
        _exit(77);
    fputs(text, file);
    fclose(file);
}

/* A sysfs of our own, which only this process sees, on a machine that pretends to be this one. */
static int ask_the_helper(void) {
    struct ibv_device device = {0};
    struct cpu_plan plan;
    snprintf(device.name, sizeof device.name, "mlx5_9");
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/sys/class", "tmpfs", 0, NULL) != 0)
        return 77;
    mkdir("/sys/class/infiniband", 0777);
    mkdir("/sys/class/infiniband/mlx5_9", 0777);
    mkdir("/sys/class/infiniband/mlx5_9/device", 0777);
    put("/sys/class/infiniband/mlx5_9/device/local_cpus", "000000f0\n");
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0 ||
        hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM |
                                               HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0 ||
        hwloc_topology_set_synthetic(topology, "numa:4 core:4 pu:1") != 0 ||
        hwloc_topology_load(topology) != 0)
        return 1;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (fabric_system.affinity_cpus(topology, &device, set) != 0)
        return 2;
    struct cpu_plan_input in = input(topology, "mlx5_9", 1);
    in.device_cpus = set;
    if (cpu_plan_make(&plan, &in) != 0 || plan.device_numa != 1 || plan.worker_cpu[0] != 4)
        return 3;
    snprintf(device.name, sizeof device.name, "mlx5_8"); /* nobody knows: all of them */
    if (fabric_system.affinity_cpus(topology, &device, set) != 0 || hwloc_bitmap_weight(set) != 16)
        return 4;
    in.device = "mlx5_8";
    if (cpu_plan_make(&plan, &in) != 0 || plan.device_numa != CPU_PLAN_NO_NUMA)
        return 5;
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
    return 0;
}

TEST(hwlocs_verbs_helper_is_asked_of_nics_and_of_nothing_else) {
    assert_int_equal(fabric_soft.affinity_cpus(NULL, NULL, NULL), -1);
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(ask_the_helper());
    int status = wait_exit(child);
    if (status == 77)
        skip_with("THIS PROCESS MAY NOT HAVE A SYSFS OF ITS OWN");
    assert_int_equal(status, 0);
}
