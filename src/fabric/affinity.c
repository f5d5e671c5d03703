/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * affinity.c - which CPUs are next to a device of the system's stack, by hwloc's own helper for verbs
 * devices. It is here because it needs a symbol of libibverbs. Any thread.
 */
#include <hwloc/openfabrics-verbs.h>

#include "fabric/fabric.h"

int fabric_affinity_cpus(struct hwloc_topology *topology, struct ibv_device *dev,
                         struct hwloc_bitmap_s *set) {
    return hwloc_ibv_get_device_cpuset(topology, dev, set);
}
