/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cpus.c - the order in which CPUs are handed out, their NUMA nodes, and the claims.
 *
 * hwloc is asked once per process: which CPUs the cgroup allows, an order that takes one hardware
 * thread of every core before the second of any, and NUMA nodes. All that is constant afterwards; the
 * affinity mask, which may change, is read at each claim.
 *
 * A claim is the abstract unix socket "\0sluice-cpu-N". Abstract names belong to a network
 * namespace: nodes in different ones do not see each other's claims. So they begin at different CPUs
 * (cpu_begin.h), and share one at worst.
 *
 * Callable from any thread.
 */
#define _GNU_SOURCE
#include "base/cpus.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/topology.h"

const char *cpu_claim_prefix = "sluice-cpu-";
const uint64_t *cpu_claim_begin;

static pthread_once_t order_once = PTHREAD_ONCE_INIT;
static int16_t order[CPU_SETSIZE];
static int order_count;
static int16_t numa_of[CPU_SETSIZE];

static bool order_has(int cpu) {
    for (int i = 0; i < order_count; i++)
        if (order[i] == cpu)
            return true;
    return false;
}

static void order_add(hwloc_const_cpuset_t allowed, int cpu) {
    if (cpu >= 0 && cpu < CPU_SETSIZE && order_count < CPU_SETSIZE &&
        hwloc_bitmap_isset(allowed, (unsigned)cpu) && !order_has(cpu))
        order[order_count++] = (int16_t)cpu;
}

/* A CPU next to several (where some memory is a node of its own) counts with the first. */
static void find_numa_nodes(hwloc_topology_t topology) {
    int nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
    for (int i = 0; i < nodes; i++) {
        hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, (unsigned)i);
        if (!node || !node->cpuset || node->os_index > INT16_MAX)
            continue;
        for (int cpu = hwloc_bitmap_first(node->cpuset); cpu >= 0 && cpu < CPU_SETSIZE;
             cpu = hwloc_bitmap_next(node->cpuset, cpu))
            if (numa_of[cpu] < 0)
                numa_of[cpu] = (int16_t)node->os_index;
    }
}

static bool order_from_hwloc(void) {
    hwloc_topology_t topology = topology_here();
    if (!topology)
        return false;
    find_numa_nodes(topology);
    hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology);
    int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    bool more = true;
    for (unsigned turn = 0; more; turn++) { /* the turn-th hardware thread of each core */
        more = false;
        for (int i = 0; i < cores; i++) {
            hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
            int cpu = -1;
            for (unsigned nth = 0; core && nth <= turn; nth++) {
                cpu = hwloc_bitmap_next(core->cpuset, cpu);
                if (cpu < 0)
                    break; /* this core has fewer threads */
            }
            if (cpu >= 0)
                more = true;
            order_add(allowed, cpu);
        }
    }
    /* CPUs that belong to no core object, where the platform hides its cores. */
    for (int cpu = hwloc_bitmap_first(allowed); cpu >= 0 && cpu < CPU_SETSIZE;
         cpu = hwloc_bitmap_next(allowed, cpu))
        order_add(allowed, cpu);
    return order_count > 0;
}

static void order_init(void) {
    memset(numa_of, -1, sizeof numa_of);
    if (order_from_hwloc())
        return;
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &mask))
            order[order_count++] = (int16_t)cpu;
}

/* Binds the name of a CPU. The descriptor, or -errno (EADDRINUSE: another thread or process has it). */
static int claim_name(int cpu) {
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int length =
        snprintf(addr.sun_path + 1, sizeof addr.sun_path - 1, "%s%d", cpu_claim_prefix, cpu);
    if (length < 0 || (size_t)length >= sizeof addr.sun_path - 1) {
        close(fd);
        return -ENAMETOOLONG;
    }
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (bind(fd, (struct sockaddr *)&addr, bytes) != 0) {
        int error = errno;
        close(fd);
        return -error;
    }
    return fd;
}

int cpu_claim_of(struct cpu_claim *claim, const int16_t *list, uint32_t count, int fixed) {
    *claim = (struct cpu_claim){.cpu = -1, .fd = -1};
    pthread_once(&order_once, order_init);
    cpu_set_t mask;
    /* Fails where there are more CPUs than the mask holds: then the cgroup's word counts alone. */
    bool masked = !fixed && sched_getaffinity(0, sizeof mask, &mask) == 0;
    for (uint32_t i = 0; i < count; i++) {
        if (masked && !CPU_ISSET(list[i], &mask))
            continue;
        int fd = claim_name(list[i]);
        if (fd >= 0) {
            *claim = (struct cpu_claim){.cpu = list[i], .fd = fd};
            return 0;
        }
        if (fd != -EADDRINUSE)
            return fd;
    }
    return 0;
}

int cpu_claim_any(struct cpu_claim *claim) {
    pthread_once(&order_once, order_init);
    return cpu_claim_of(claim, order, (uint32_t)order_count, 0);
}

/*
 * The affinity mask is not asked: unlike the cgroup's set it forbids nothing, and a program that
 * pinned its own thread may well name another CPU for the worker.
 */
int cpu_claim_fixed(struct cpu_claim *claim, int cpu) {
    *claim = (struct cpu_claim){.cpu = -1, .fd = -1};
    pthread_once(&order_once, order_init);
    if (cpu < 0 || !order_has(cpu))
        return -EINVAL;
    int fd = claim_name(cpu);
    if (fd < 0 && fd != -EADDRINUSE)
        return fd;
    *claim = (struct cpu_claim){.cpu = cpu, .fd = fd < 0 ? -1 : fd};
    return 0;
}

int cpu_numa_node(int cpu) {
    pthread_once(&order_once, order_init);
    return cpu < 0 || cpu >= CPU_SETSIZE ? -1 : numa_of[cpu];
}

void cpu_claim_release(struct cpu_claim *claim) {
    if (claim->fd >= 0)
        close(claim->fd);
    *claim = (struct cpu_claim){.cpu = -1, .fd = -1};
}
