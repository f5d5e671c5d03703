/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * many.h - what lib-many measures, by other libraries: one process has N connections to another, which sends back what
 * comes. DEPTH messages are on their way, each on the next connection in turn; the oldest is waited for.
 *
 *   peer-NAME many CONNECTIONS DEPTH SECONDS CPU_A CPU_B [URL]
 */
#ifndef BENCH_PEER_MANY_H
#define BENCH_PEER_MANY_H

#include "peer.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define MANY_BYTES 64
#define MANY_WARM 5 /* a fifth of the time, before what counts */

struct peer_many {
    const char *name;
    void (*serve)(const char *address);                   /* sends back what comes, for ever */
    void (*connect)(const char *address, unsigned count); /* waits for the server */
    void (*ask)(unsigned i, const void *data, size_t bytes);
    void (*await)(unsigned i, size_t bytes); /* what was asked comes back */
};

static inline void many_allow_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static inline double many_run(const struct peer_many *p, unsigned count, unsigned depth,
                              double seconds) {
    const char data[MANY_BYTES] = "a message of 64 bytes";
    uint64_t asked = 0, back = 0, counted = 0, start = peer_now(), now = start;
    uint64_t warm = start + (uint64_t)(seconds / MANY_WARM * 1e9), end = 0;
    for (; asked < depth; asked++)
        p->ask((unsigned)(asked % count), data, sizeof data);
    while (end == 0 || now < end) {
        p->await((unsigned)(back++ % count), sizeof data);
        p->ask((unsigned)(asked++ % count), data, sizeof data);
        counted++;
        if (back % 16 != 0)
            continue;
        now = peer_now();
        if (end == 0 && now >= warm) {
            start = now;
            counted = 0;
            end = now + (uint64_t)(seconds * 1e9);
        }
    }
    return (double)counted * 1e9 / (double)(now - start);
}

static inline int many_main(const struct peer_many *p, int argc, char **argv) {
    char address[128];
    if (argc < 7 || argc > 8 || atol(argv[2]) < 1 || atol(argv[3]) < 1 || atof(argv[4]) <= 0) {
        fprintf(stderr, "usage: peer-%s many CONNECTIONS DEPTH SECONDS CPU_A CPU_B [URL]\n",
                p->name);
        return 2;
    }
    if (argc == 8)
        snprintf(address, sizeof address, "%s", argv[7]);
    else
        snprintf(address, sizeof address, "ipc:///tmp/peer-%s.%d", p->name, (int)getpid());
    many_allow_files();
    pid_t child = fork(); /* before the library is opened: it has threads */
    if (child < 0)
        peer_die("fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        peer_pin(atoi(argv[5]));
        p->serve(address);
        exit(1);
    }
    peer_pin(atoi(argv[6]));
    unsigned count = (unsigned)atol(argv[2]);
    p->connect(address, count);
    double rate = many_run(p, count, (unsigned)atol(argv[3]), atof(argv[4]));
    printf("{\"peer\":\"%s\",\"sessions\":%u,\"echoes_per_s\":%.0f}\n", p->name, count, rate);
    fflush(stdout);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    if (argc == 7)
        unlink(address + strlen("ipc://"));
    _exit(0); /* the libraries would wait for thousands of connections to end */
}

#endif
