/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * topology.h - the machine as hwloc sees it: read once in a process, constant afterwards.
 *
 * Any thread. hwloc's queries of a loaded topology need no lock.
 */
#ifndef BASE_TOPOLOGY_H
#define BASE_TOPOLOGY_H

#include <hwloc.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * NULL: hwloc cannot read this machine, or was told of another one (HWLOC_SYNTHETIC, HWLOC_XMLFILE): its
 * CPUs and nodes are not ours, and hwloc would say that memory is bound which is not. Reading takes
 * milliseconds: not for a thread in a hurry.
 */
hwloc_topology_t topology_here(void);
/* Reads the machine, with its devices or without; the caller destroys it. NULL: it cannot be read. */
hwloc_topology_t topology_read(bool devices);
/* Why there is none, constant text; NULL: there is one. */
const char *topology_missing(void);

/*
 * Puts memory that was not touched yet on a NUMA node, by the system's number. 0 or -errno: a machine
 * without such a node, or a system that refuses; the memory is as good as before.
 */
int topology_bind(void *addr, size_t bytes, int numa);

#endif
