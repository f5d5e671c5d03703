/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * peer.h - what the programs that measure other libraries share: two processes on two CPUs, the times of
 * round trips, and the result as one JSON line. bench/compare runs them in turn with Sluice's tools.
 *
 *   peer-NAME lat SIZE COUNT CPU_A CPU_B [URL]      one way: half of each round trip
 *   peer-NAME bw SIZE COUNT CPU_A CPU_B [URL]       messages in one direction, confirmed by the last one
 *
 * URL is as the library has it; without it they meet at a name in /tmp.
 */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct peer {
    const char *name;
    void (*open)(bool server, const char *address); /* exits when it cannot */
    void (*send)(const void *data, size_t bytes);   /* waits */
    size_t (*receive)(void *data, size_t room);     /* waits */
    void (*close)(void);
};

static void peer_die(const char *what) {
    fprintf(stderr, "peer: %s\n", what);
    exit(1);
}

static uint64_t peer_now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void peer_pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        peer_die("that CPU cannot be used");
}

static int peer_by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void peer_latency(const struct peer *p, bool server, size_t size, long count) {
    char *data = calloc(1, size + 1);
    uint64_t *took = calloc((size_t)count, sizeof *took);
    long warm = count / 10;
    if (!data || !took)
        peer_die("no memory");
    for (long i = 0; i < warm + count; i++) {
        uint64_t start = peer_now();
        if (!server)
            p->send(data, size);
        if (p->receive(data, size + 1) != size)
            peer_die("a message of another size came");
        if (server)
            p->send(data, size);
        if (i >= warm)
            took[i - warm] = peer_now() - start;
    }
    qsort(took, (size_t)count, sizeof *took, peer_by_value);
    if (!server)
        printf("{\"peer\":\"%s\",\"size\":%zu,\"p50_ns\":%.1f,\"p99_ns\":%.1f,\"p999_ns\":%.1f}\n",
               p->name, size, (double)took[count / 2] / 2,
               (double)took[count - count / 100 - 1] / 2,
               (double)took[count - count / 1000 - 1] / 2);
    free(took);
    free(data);
}

static void peer_stream(const struct peer *p, bool server, size_t size, long count) {
    char *data = calloc(1, size + 1);
    if (!data)
        peer_die("no memory");
    if (server) /* connecting does not count */
        p->receive(data, size + 1);
    p->send(data, 1);
    if (!server)
        p->receive(data, size + 1);
    uint64_t start = peer_now();
    for (long i = 0; i < count; i++) {
        if (!server)
            p->send(data, size);
        else if (p->receive(data, size + 1) != size)
            peer_die("a message of another size came");
    }
    if (server)
        p->send(data, 1);
    else
        p->receive(data, size + 1);
    double s = (double)(peer_now() - start) / 1e9;
    if (!server)
        printf("{\"peer\":\"%s\",\"size\":%zu,\"messages_per_s\":%.1f,\"bytes_per_s\":%.1f}\n",
               p->name, size, (double)count / s, (double)count * (double)size / s);
    free(data);
}

static inline int peer_main(const struct peer *p, int argc, char **argv) {
    char address[128];
    if (argc < 6 || argc > 7 || (strcmp(argv[1], "lat") != 0 && strcmp(argv[1], "bw") != 0) ||
        atol(argv[2]) < 1 || atol(argv[3]) < 1) {
        fprintf(stderr, "usage: peer-%s lat|bw SIZE COUNT CPU_A CPU_B [URL]\n", p->name);
        return 2;
    }
    if (argc == 7)
        snprintf(address, sizeof address, "%s", argv[6]);
    else
        snprintf(address, sizeof address, "ipc:///tmp/peer-%s.%d", p->name, (int)getpid());
    pid_t child = fork(); /* before the library is opened: it has threads */
    if (child < 0)
        peer_die("fork");
    bool server = child == 0;
    peer_pin(atoi(argv[server ? 4 : 5]));
    p->open(server, address);
    (strcmp(argv[1], "lat") == 0 ? peer_latency : peer_stream)(p, server, (size_t)atol(argv[2]),
                                                               atol(argv[3]));
    int status = 0;
    if (!server)
        waitpid(child, &status, 0);
    p->close();
    if (!server && argc == 6)
        unlink(address + strlen("ipc://"));
    return status != 0;
}

#endif
