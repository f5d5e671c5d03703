/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* topology.c - hwloc's topology of this machine, kept as long as the process. */
#include "base/topology.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static hwloc_topology_t here;
static const char *missing = "the machine's topology is not known";

/*
 * Parts of hwloc that a program which opens a node must not pay for. "pci" reads the names of all
 * devices there are, 40,000 lines (sysfs tells where a device hangs without it); the others start the
 * drivers of GPUs or ask the X server.
 */
static const char *const unasked[] = {"pci", "opencl", "cuda", "nvml", "rsmi", "levelzero", "gl"};

/*
 * Where devices hang is asked for RDMA devices only. Reading it takes longer than all the rest: each look
 * at a device's registers is slow, above all in a virtual machine.
 */
static bool has_rdma_devices(void) {
    bool found = false;
    DIR *dir = opendir("/sys/class/infiniband");
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));)
        found = entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return found;
}

hwloc_topology_t topology_read(bool devices) {
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return NULL;
    if (devices)
        hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    /* It knows what it lacks and says so; that is no reason to go without the others. */
    for (size_t i = 0; i < sizeof unasked / sizeof unasked[0]; i++)
        hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      unasked[i]);
    if (hwloc_topology_load(topology) == 0)
        return topology;
    hwloc_topology_destroy(topology);
    return NULL;
}

static void load(void) {
    hwloc_topology_t topology = topology_read(has_rdma_devices());
    if (!topology)
        return;
    if (hwloc_topology_is_thissystem(topology)) {
        here = topology;
        missing = NULL;
        return;
    }
    missing = "hwloc describes another machine (HWLOC_SYNTHETIC, HWLOC_XMLFILE)";
    hwloc_topology_destroy(topology);
}

/* Its memory stays reachable and is never freed: threads may use it until the process is gone. */
hwloc_topology_t topology_here(void) {
    pthread_once(&once, load);
    return here;
}

const char *topology_missing(void) {
    pthread_once(&once, load);
    return missing;
}

int topology_bind(void *addr, size_t bytes, int numa) {
    hwloc_topology_t topology = numa >= 0 ? topology_here() : NULL;
    if (!topology)
        return -EINVAL;
    hwloc_obj_t node = hwloc_get_numanode_obj_by_os_index(topology, (unsigned)numa);
    if (!node)
        return -ENODEV;
    if (hwloc_set_area_membind(topology, addr, bytes, node->nodeset, HWLOC_MEMBIND_BIND,
                               HWLOC_MEMBIND_BYNODESET) != 0)
        return errno ? -errno : -ENOSYS;
    return 0;
}
