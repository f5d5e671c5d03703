/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * machine.h - machines that are not here, for tests: hwloc's synthetic topologies, and the same as XML with
 * NICs on some of their NUMA nodes.
 */
#ifndef TESTS_SUPPORT_MACHINE_H
#define TESTS_SUPPORT_MACHINE_H

#include "support/test.h"

#include <hwloc.h>
#include <stdio.h>
#include <string.h>

/* A machine as hwloc's synthetic topologies describe it. */
hwloc_topology_t machine(const char *text);
/* One NIC for each of these nodes: "mlx5_N" on node N, at 000N:3b:00.0 of the PCI bus. Until the next call. */
const char *machine_xml(const char *text, const int *nodes, int count, int *bytes);
/* machine() with these NICs. */
hwloc_topology_t machine_with_nics(const char *text, const int *nodes, int count);

#endif
