/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * perf.h - what sluice-lat and sluice-bw share: perftest's command line, the server that does what
 * a client's plan says, the client that walks through the sizes, and the floor of each of them.
 *
 * Owner: the main thread.
 */
#ifndef PERF_H
#define PERF_H

#include <stdbool.h>
#include <stdint.h>

#include "common/endpoint.h"
#include "common/options.h"

#define PERF_PORT 18515
#define PERF_SIZE_MAX (UINT64_C(64) << 20)
#define PERF_ALL_MAX (UINT64_C(8) << 20)
#define PERF_FIRST_NS UINT64_C(30000000000) /* for the first data message after READY */

struct perf_options {
    const char *host, *bind, *device;
    uint64_t port, size, iterations, duration_ns, warmup, cpu, mode;
    bool all, json, keep, both_ways, region, copy, each, in_turn, wait;
    uint64_t sessions; /* 0: one */
    uint64_t list, window, credits, requests;
    uint64_t without;    /* bits of techniques.h */
    uint64_t rendezvous; /* sluice_rendezvous */
    uint64_t rendezvous_above;
    uint64_t resume_ns;
    bool have_port, have_size, have_iterations, have_duration, have_warmup, have_cpu;
};

struct perf;

/* What differs between the two tools. run and serve return 0 or an exit status. */
struct perf_tool {
    enum control_tool id;
    const char *about;
    const char *notes;
    const char *each, *in_turn; /* what these options mean */
    bool in_turn_first;         /* the default */
    uint64_t default_size;
    uint64_t default_bytes; /* iterations where none are given: these bytes over the size, */
    uint64_t iterations_min, iterations_max; /* within these limits */
    uint64_t default_warmup;
    const struct option *extra; /* options of this tool only */
    size_t extra_count;
    void (*heading)(struct perf *p);
    int (*run)(struct perf *p, uint64_t size);
    int (*serve)(struct perf *p, const struct control *plan);
};

struct perf {
    const struct perf_tool *tool;
    struct perf_options o;
    struct endpoint ep;
    char address[ADDRESSES_BYTES];
    struct control peer; /* the server's READY */
    bool have_floor;     /* floor_ns belongs to this run */
    double floor_ns;     /* -1: cannot be measured */
    bool have_heading;
};

/* `o` must be p->o: the extra options point into it. */
int perf_main(struct perf *p, const struct perf_tool *tool, int argc, char **argv);

/* How many, and how many before that do not count, for this size. */
uint64_t perf_iterations(const struct perf *p, uint64_t size);
uint64_t perf_warmup(const struct perf *p, uint64_t size);
/* Server: to wait for the first data message after READY. */
uint64_t perf_first_ns(const struct perf *p);

/* Client: announces a round of data, hears READY, measures the floor if it is new. */
int perf_plan(struct perf *p, uint64_t size, uint64_t count, uint16_t flags);
/* Client: the rows of a table have a heading, once. Nothing with --json. */
void perf_heading(struct perf *p);

#endif
