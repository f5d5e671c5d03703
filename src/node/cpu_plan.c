/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* cpu_plan.c - the placement plan. Pure functions, any thread. */
#include "node/cpu_plan.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- NUMA nodes ---------------------------------------------------------------------------------- */

static hwloc_obj_t node_of(hwloc_topology_t topology, int numa) {
    return topology && numa >= 0 ? hwloc_get_numanode_obj_by_os_index(topology, (unsigned)numa)
                                 : NULL;
}

/* The node a CPU belongs to; where several claim it (memory that is a node of its own) the first. */
static int numa_of_cpu(hwloc_topology_t topology, unsigned cpu) {
    int count = topology ? hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) : 0;
    for (int i = 0; i < count; i++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, (unsigned)i);
        if (node && node->cpuset && hwloc_bitmap_isset(node->cpuset, cpu))
            return (int)node->os_index;
    }
    return CPU_PLAN_NO_NUMA;
}

/* Of the nodes whose CPUs touch the set the one with the most of them: a device may lie between two. */
static int numa_of_set(hwloc_topology_t topology, hwloc_const_cpuset_t set) {
    int best = CPU_PLAN_NO_NUMA, most = 0;
    hwloc_bitmap_t both = hwloc_bitmap_alloc();
    int count = both ? hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) : 0;
    bool everywhere = true; /* next to all of them is next to none */
    for (int i = 0; i < count; i++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, (unsigned)i);
        if (!node || !node->cpuset)
            continue;
        hwloc_bitmap_and(both, node->cpuset, set);
        int weight = hwloc_bitmap_weight(both);
        everywhere = everywhere && weight > 0;
        if (weight > most) {
            most = weight;
            best = (int)node->os_index;
        }
    }
    hwloc_bitmap_free(both);
    return everywhere && count > 1 ? CPU_PLAN_NO_NUMA : best;
}

/* An I/O object is where the part of the machine is that it hangs on. */
static int numa_of_io(hwloc_topology_t topology, hwloc_obj_t io) {
    hwloc_obj_t part = io ? hwloc_get_non_io_ancestor_obj(topology, io) : NULL;
    return part && part->cpuset && !hwloc_bitmap_iszero(part->cpuset)
               ? numa_of_set(topology, part->cpuset)
               : CPU_PLAN_NO_NUMA;
}

static hwloc_obj_t os_device(hwloc_topology_t topology, const char *name) {
    for (hwloc_obj_t at = NULL; (at = hwloc_get_next_osdev(topology, at)) != NULL;)
        if (at->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS && at->name &&
            strcmp(at->name, name) == 0)
            return at;
    return NULL;
}

static int find_device(const struct cpu_plan_input *in, const char **source) {
    *source = NULL;
    if (in->anywhere || !in->device || !in->topology)
        return CPU_PLAN_NO_NUMA;
    int numa = in->device_cpus && !hwloc_bitmap_iszero(in->device_cpus)
                   ? numa_of_set(in->topology, in->device_cpus)
                   : CPU_PLAN_NO_NUMA;
    if (numa >= 0) {
        *source = "the CPUs next to it";
        return numa;
    }
    if ((numa = numa_of_io(in->topology, os_device(in->topology, in->device))) >= 0) {
        *source = "hwloc's device of that name";
        return numa;
    }
    if (in->pci &&
        (numa = numa_of_io(in->topology, hwloc_get_pcidev_by_busidstring(in->topology, in->pci))) >=
            0) {
        *source = "hwloc's PCI device";
        return numa;
    }
    for (size_t i = 0; i < in->nic_count; i++)
        if (strcmp(in->nics[i].device, in->device) == 0 &&
            node_of(in->topology, in->nics[i].numa)) {
            *source = "the kernel";
            return in->nics[i].numa;
        }
    return CPU_PLAN_NO_NUMA;
}

/* How far memory of one node is from another; hwloc's matrix if the machine has one, else 10 or 20. */
static uint64_t distance(hwloc_topology_t topology, int from, int to) {
    uint64_t found = from == to ? 10 : 20;
    struct hwloc_distances_s *matrix;
    unsigned count = 1;
    hwloc_obj_t a = node_of(topology, from), b = node_of(topology, to);
    if (!a || !b ||
        hwloc_distances_get_by_type(topology, HWLOC_OBJ_NUMANODE, &count, &matrix,
                                    HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) != 0 ||
        count == 0)
        return found;
    hwloc_uint64_t there, back;
    if (hwloc_distances_obj_pair_values(matrix, a, b, &there, &back) == 0)
        found = there;
    hwloc_distances_release(topology, matrix);
    return found;
}

/* ---- the order of CPUs ------------------------------------------------------------------------------ */

static bool has(const struct cpu_plan *plan, int cpu) {
    for (uint32_t i = 0; i < plan->cpu_count; i++)
        if (plan->cpus[i] == cpu)
            return true;
    return false;
}

static void add(struct cpu_plan *plan, hwloc_const_cpuset_t from, int cpu) {
    if (cpu >= 0 && cpu < CPU_PLAN_CPUS_MAX && plan->cpu_count < CPU_PLAN_CPUS_MAX &&
        hwloc_bitmap_isset(from, (unsigned)cpu) && !has(plan, cpu))
        plan->cpus[plan->cpu_count++] = (int16_t)cpu;
}

static bool is_usable(const struct cpu_plan_input *in, int cpu) {
    return !in->usable || hwloc_bitmap_isset(in->usable, (unsigned)cpu);
}

/*
 * The CPUs from there on are as good as each other. Nodes that do not see each other's claims begin at different ones,
 * among those that may be claimed; the others follow in their order, so that what is next to each other stays so.
 */
static void begin_somewhere(struct cpu_plan *plan, const struct cpu_plan_input *in, uint32_t from) {
    int16_t same[CPU_PLAN_CPUS_MAX];
    uint32_t count = plan->cpu_count - from, usable = 0, first = 0;
    for (uint32_t i = 0; i < count; i++) {
        same[i] = plan->cpus[from + i];
        usable += is_usable(in, same[i]);
    }
    if (usable == 0)
        return;
    uint32_t skip = (uint32_t)(in->begin % usable);
    while (!is_usable(in, same[first]) || skip-- > 0)
        first++;
    for (uint32_t i = 0; i < count; i++)
        plan->cpus[from + i] = same[(first + i) % count];
}

/* All CPUs of a set: the first hardware thread of each core, then the second, and so on. */
static void add_set(struct cpu_plan *plan, const struct cpu_plan_input *in,
                    hwloc_const_cpuset_t set) {
    int cores = hwloc_get_nbobjs_by_type(in->topology, HWLOC_OBJ_CORE);
    bool more = true;
    for (unsigned turn = 0; more; turn++) {
        uint32_t from = plan->cpu_count;
        more = false;
        for (int i = 0; i < cores; i++) {
            hwloc_obj_t core = hwloc_get_obj_by_type(in->topology, HWLOC_OBJ_CORE, (unsigned)i);
            int cpu = -1;
            for (unsigned nth = 0; core && nth <= turn; nth++)
                if ((cpu = hwloc_bitmap_next(core->cpuset, cpu)) < 0)
                    break;
            more |= cpu >= 0;
            add(plan, set, cpu);
        }
        begin_somewhere(plan, in, from);
    }
    uint32_t from = plan->cpu_count;
    /* Where the platform hides its cores. */
    for (int cpu = hwloc_bitmap_first(set); cpu >= 0 && cpu < CPU_PLAN_CPUS_MAX;
         cpu = hwloc_bitmap_next(set, cpu))
        add(plan, set, cpu);
    begin_somewhere(plan, in, from);
}

/* The CPUs of one node that are allowed. */
static void add_node(struct cpu_plan *plan, const struct cpu_plan_input *in, int numa) {
    hwloc_obj_t node = node_of(in->topology, numa);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (node && node->cpuset && set) {
        hwloc_bitmap_and(set, node->cpuset, hwloc_topology_get_allowed_cpuset(in->topology));
        add_set(plan, in, set);
    }
    hwloc_bitmap_free(set);
}

static void order_cpus(struct cpu_plan *plan, const struct cpu_plan_input *in) {
    hwloc_topology_t topology = in->topology;
    int numa = plan->device_numa;
    add_node(plan, in, numa);
    plan->near_count = plan->cpu_count;
    int count = numa >= 0 ? hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) : 0;
    uint64_t last = 0; /* each distance once, from near to far: there are few nodes */
    for (int turn = 0; turn < count; turn++) {
        uint64_t next = UINT64_MAX;
        for (int i = 0; i < count; i++) {
            hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, (unsigned)i);
            uint64_t far = distance(topology, numa, (int)node->os_index);
            if (far > last && far < next)
                next = far;
        }
        for (int i = 0; i < count && next != UINT64_MAX; i++) {
            hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, (unsigned)i);
            if (distance(topology, numa, (int)node->os_index) == next)
                add_node(plan, in, (int)node->os_index);
        }
        last = next;
    }
    add_set(plan, in, hwloc_topology_get_allowed_cpuset(topology));
    if (numa < 0 || plan->near_count == 0)
        plan->near_count = plan->cpu_count; /* nothing is nearer than anything else */
}

/* ---- the user's word ---------------------------------------------------------------------------------- */

static int bad_cpu(struct cpu_plan *plan, const char *who, long cpu) {
    snprintf(plan->why, sizeof plan->why, "%s names CPU %ld, which is not there or not allowed",
             who, cpu);
    return -EINVAL;
}

static bool allowed(const struct cpu_plan *plan, const struct cpu_plan_input *in, long cpu) {
    return cpu >= 0 && cpu < CPU_PLAN_CPUS_MAX && (!in->topology || has(plan, (int)cpu));
}

/* "0-3,8": the candidates are these and no others. */
static int take_environment(struct cpu_plan *plan, const struct cpu_plan_input *in) {
    struct cpu_plan chosen = {.cpu_count = 0};
    const char *at = in->environment;
    while (*at) {
        char *end;
        long first = isdigit((unsigned char)*at) ? strtol(at, &end, 10) : -1, last = first;
        if (first >= 0 && *end == '-' && isdigit((unsigned char)end[1]))
            last = strtol(end + 1, &end, 10);
        if (first < 0 || last < first || (*end && *end != ',') || (*end == ',' && !end[1])) {
            snprintf(plan->why, sizeof plan->why,
                     "SLUICE_CPUS: '%.40s' is no list of CPUs like 0-3,8", in->environment);
            return -EINVAL;
        }
        for (long cpu = first; cpu <= last; cpu++) {
            if (!allowed(plan, in, cpu))
                return bad_cpu(plan, "SLUICE_CPUS", cpu);
            if (!has(&chosen, (int)cpu))
                chosen.cpus[chosen.cpu_count++] = (int16_t)cpu;
        }
        at = *end ? end + 1 : end;
    }
    memcpy(plan->cpus, chosen.cpus, sizeof plan->cpus);
    plan->cpu_count = plan->near_count = chosen.cpu_count;
    plan->chosen = true;
    return 0;
}

/* Whether memory can be bound there: hwloc gives synthetic nodes some, and a node may have none. */
static bool has_memory(hwloc_topology_t topology, int numa) {
    hwloc_obj_t node = node_of(topology, numa);
    return node && node->attr && node->attr->numanode.local_memory > 0 &&
           hwloc_bitmap_isset(hwloc_topology_get_allowed_nodeset(topology), (unsigned)numa);
}

/* The node the caller or the environment wants the memory on. */
static int take_memory_numa(struct cpu_plan *plan, const struct cpu_plan_input *in) {
    const char *text = in->numa_environment, *who = "memory_numa";
    long numa = CPU_PLAN_NO_NUMA;
    if (in->memory_numa == CPU_PLAN_NUMA_UNBOUND) {
        plan->arena_numa = CPU_PLAN_NO_NUMA;
        return 0;
    }
    if (in->memory_numa > 0) {
        numa = (long)in->memory_numa - 1;
    } else if (text && *text) {
        char *end = NULL;
        who = "SLUICE_NUMA";
        if (strcmp(text, "none") == 0) {
            plan->arena_numa = CPU_PLAN_NO_NUMA;
            return 0;
        }
        numa = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : -1;
        if (numa < 0 || *end) {
            snprintf(plan->why, sizeof plan->why,
                     "SLUICE_NUMA: '%.40s' is no number of a node, nor none", text);
            return -EINVAL;
        }
    } else {
        return 0;
    }
    if (numa > INT16_MAX || !has_memory(in->topology, (int)numa)) {
        snprintf(plan->why, sizeof plan->why,
                 "%s names NUMA node %ld, which is not there, not allowed, or has no memory", who,
                 numa);
        return -EINVAL;
    }
    plan->arena_numa = (int)numa;
    return 0;
}

static int place_workers(struct cpu_plan *plan, const struct cpu_plan_input *in) {
    for (uint32_t i = 0; i < CPU_PLAN_WORKERS_MAX; i++) {
        int cpu = -1;
        if (i < in->workers && in->worker_cpus) {
            cpu = in->worker_cpus[i];
            if (cpu >= 0 && !allowed(plan, in, cpu))
                return bad_cpu(plan, "worker_cpus", cpu);
        } else if (i < in->workers && i < plan->cpu_count) {
            cpu = plan->cpus[i];
        }
        plan->worker_cpu[i] = (int16_t)(cpu < 0 ? -1 : cpu);
        plan->worker_numa[i] =
            (int16_t)(cpu < 0 ? CPU_PLAN_NO_NUMA : numa_of_cpu(in->topology, (unsigned)cpu));
    }
    return 0;
}

/* The kernel's word for a node that hwloc does not show: the cgroup keeps this process from it. */
static int hidden_numa(const struct cpu_plan_input *in) {
    for (size_t i = 0; in->topology && in->device && !in->anywhere && i < in->nic_count; i++)
        if (strcmp(in->nics[i].device, in->device) == 0)
            return in->nics[i].numa;
    return CPU_PLAN_NO_NUMA;
}

static void explain(struct cpu_plan *plan, const struct cpu_plan_input *in) {
    int hidden = plan->device_numa >= 0 ? CPU_PLAN_NO_NUMA : hidden_numa(in);
    if (plan->device_numa >= 0)
        snprintf(plan->why, sizeof plan->why, "%s is on NUMA node %d, says %s", in->device,
                 plan->device_numa, plan->source);
    else if (hidden >= 0)
        snprintf(plan->why, sizeof plan->why,
                 "%s is on NUMA node %d, which is not there for this process", in->device, hidden);
    else
        snprintf(plan->why, sizeof plan->why, "%s",
                 !in->topology  ? in->missing ? in->missing : "the machine's topology is not known"
                 : in->anywhere ? "a software device is as near as the threads that use it"
                                : "the NUMA node of the device is not known");
}

int cpu_plan_make(struct cpu_plan *plan, const struct cpu_plan_input *in) {
    memset(plan, 0, sizeof *plan);
    plan->device_numa = find_device(in, &plan->source);
    plan->arena_numa =
        has_memory(in->topology, plan->device_numa) ? plan->device_numa : CPU_PLAN_NO_NUMA;
    if (in->topology)
        order_cpus(plan, in);
    explain(plan, in);
    if (take_memory_numa(plan, in) != 0)
        return -EINVAL;
    plan->chosen = in->worker_cpus != NULL;
    if (!in->worker_cpus && in->environment && *in->environment) {
        int error = take_environment(plan, in);
        if (error != 0)
            return error;
    }
    return place_workers(plan, in);
}
