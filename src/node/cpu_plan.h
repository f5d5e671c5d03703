/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cpu_plan.h - where a node's workers and memory belong, from the machine's topology and its device.
 *
 * Pure: it reads its input and changes nothing. The caller that claims CPUs (base/cpus.h) takes them in
 * the plan's order, so that two nodes with one plan still get different ones. Nodes that do not see each other's
 * claims have another `begin`, and with it plans that begin at different CPUs, each as near as the other.
 *
 * CPUs the cgroup forbids are in no plan. The device's NUMA node comes first, one hardware thread of
 * every core before the second of any; the CPUs of other nodes follow, nearest first. A device without
 * a node (the software device, a topology that is not known) gets every CPU there is, and memory that
 * is not bound. Memory is bound to no node that is empty, or that the cgroup forbids.
 *
 * The device's node comes from the first of these sources that names a single node: hwloc's
 * helper for verbs devices (device_cpus), hwloc's objects (the OS device of that name, then the PCI
 * device it is), and the kernel's own number (nics).
 */
#ifndef NODE_CPU_PLAN_H
#define NODE_CPU_PLAN_H

#include <hwloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPU_PLAN_CPUS_MAX 1024
#define CPU_PLAN_WORKERS_MAX 64
#define CPU_PLAN_NO_NUMA (-1)
#define CPU_PLAN_NUMA_UNBOUND UINT32_MAX /* memory_numa: on no node */

struct cpu_plan_nic { /* a device and its node, for machines that hwloc does not see them on */
    const char *device;
    int numa;
};

struct cpu_plan_input {
    hwloc_topology_t topology; /* NULL: not known */
    const char *missing;       /* why it is not; NULL: no reason known */
    const char *device;        /* NULL: on no node */
    bool anywhere;             /* the device is on no node, whatever it is called */
    const struct cpu_plan_nic *nics;
    size_t nic_count;
    /* The CPUs next to the device, as hwloc's verbs helper has them: NULL if not known. */
    hwloc_const_cpuset_t device_cpus;
    const char *pci; /* its address on the PCI bus, "0000:3b:00.0"; NULL: none, or not known */
    uint32_t
        memory_numa; /* the caller's choice of a node, plus one; 0: none; CPU_PLAN_NUMA_UNBOUND */
    const char
        *numa_environment;   /* SLUICE_NUMA: "1" or "none", used where memory_numa is 0; NULL */
    const int *worker_cpus;  /* the caller's choice, one a worker; -1: not pinned; NULL: none */
    const char *environment; /* SLUICE_CPUS: "0-3,8", used where worker_cpus is NULL; or NULL */
    uint32_t workers;
    /* Where claims begin among CPUs as good as each other (base/cpu_begin.h); 0: at the first. */
    uint64_t begin;
    /* The affinity mask, outside of which no claim begins; NULL: all. */
    hwloc_const_cpuset_t usable;
};

struct cpu_plan {
    int device_numa;                 /* CPU_PLAN_NO_NUMA: none */
    int arena_numa;                  /* the same, but for a node without memory; or chosen */
    const char *source;              /* where device_numa comes from, constant text; NULL: none */
    bool chosen;                     /* by worker_cpus or by the environment */
    uint32_t cpu_count, near_count;  /* the first near_count are next to the device */
    int16_t cpus[CPU_PLAN_CPUS_MAX]; /* candidates for workers, best first */
    int16_t
        worker_cpu[CPU_PLAN_WORKERS_MAX]; /* where each would run if no other node were here; -1 */
    int16_t worker_numa[CPU_PLAN_WORKERS_MAX];
    char why[120];
};

/*
 * 0, or -EINVAL: worker_cpus, SLUICE_CPUS, memory_numa or SLUICE_NUMA names something that is not there;
 * why says which.
 */
int cpu_plan_make(struct cpu_plan *plan, const struct cpu_plan_input *input);

#endif
