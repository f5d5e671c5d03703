/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* topology.c - hwloc's topology of this machine, kept as long as the process. */
#include "base/topology.h"

#include <errno.h>
#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static hwloc_topology_t here;
static const char *missing = "the machine's topology is not known";

static void load(void) {
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return;
    /* Where devices hang is asked of it too. */
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    bool loaded = hwloc_topology_load(topology) == 0;
    if (loaded && hwloc_topology_is_thissystem(topology)) {
        here = topology;
        missing = NULL;
        return;
    }
    if (loaded)
        missing = "hwloc was told of another machine (HWLOC_SYNTHETIC, HWLOC_XMLFILE)";
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
