/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cpus.h - which CPU a worker gets. Through hwloc, inside the allowed cpuset of the process, and
 * so that two nodes of one host do not land on the same CPU: a CPU is claimed by binding an
 * abstract socket name, which the kernel releases when the process dies, however it dies.
 */
#ifndef BASE_CPUS_H
#define BASE_CPUS_H

#include <stdint.h>

struct cpu_claim {
    int cpu; /* -1: none */
    int fd;  /* the claim, -1: none */
};

/* Beginning of the claims' names, "sluice-cpu-"; a test gives itself another to be alone. */
extern const char *cpu_claim_prefix;
/* A test's number in place of that of cpu_begin.h; NULL: none. */
extern const uint64_t *cpu_claim_begin;

/* Claims the first free allowed CPU; cpu -1 when all are claimed (then do not pin). 0 or -errno. */
int cpu_claim_any(struct cpu_claim *claim);
/* Claims the first free CPU of a list, in its order; the thread's affinity mask counts too unless the list is `fixed`. */
int cpu_claim_of(struct cpu_claim *claim, const int16_t *list, uint32_t count, int fixed);
/* Takes a CPU on the user's word: validated against the allowed set, claimed if it is free. */
int cpu_claim_fixed(struct cpu_claim *claim, int cpu);
/* The NUMA node a CPU belongs to, by the system's number; -1: no such CPU, or not known. */
int cpu_numa_node(int cpu);
void cpu_claim_release(struct cpu_claim *claim);

#endif
