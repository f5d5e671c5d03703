/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * raw_tcp.c - plain TCP between two processes with the fewest system calls there can be: the limit of everything that goes
 * over a socket. Both ends spin: a receive that would wait is asked for again.
 *
 * A ping-pong is one send and one receive a message. In a stream small messages go 64 KiB a call, as a library that batches
 * may send them, large ones a call each; the receiver takes what is there into 64 KiB that its caches have.
 *
 *   raw-tcp [--lat | --bw] [BYTES [COUNT]]       both ends, the other one is a process of its own
 *
 * Prints one line: what, BYTES, nanoseconds one way (median), or messages and gigabytes a second.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE 65536u

static size_t bytes = 64;
static unsigned count = 100000;
static uint8_t *buf;

static void must(int ok, const char *what) {
    if (ok)
        return;
    perror(what);
    exit(1);
}

static uint64_t now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* On the first or the last CPU that this process may use. */
static void pin(bool last) {
    cpu_set_t may, one;
    must(sched_getaffinity(0, sizeof may, &may) == 0, "affinity");
    int cpu = -1;
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &may) && (cpu < 0 || last))
            cpu = i;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

static void put(int fd, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t got = send(fd, buf + at, n - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        must(got >= 0 || errno == EAGAIN, "send");
        at += got > 0 ? (size_t)got : 0;
    }
}

static void take(int fd, size_t n) {
    while (n > 0) {
        ssize_t got = recv(fd, buf, n < AT_ONCE ? n : AT_ONCE, MSG_DONTWAIT);
        must(got > 0 || (got < 0 && errno == EAGAIN), "recv");
        n -= got > 0 ? (size_t)got : 0;
    }
}

/* ---- the two ends -------------------------------------------------------------------------------------------- */

static void answer(int fd, bool stream) {
    if (stream) {
        take(fd, bytes * count);
        put(fd, 1);
        return;
    }
    for (unsigned i = 0; i < count; i++) {
        take(fd, bytes);
        put(fd, bytes);
    }
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void ping_pong(int fd) {
    uint64_t *taken = malloc(count * sizeof *taken);
    must(taken != NULL, "malloc");
    for (unsigned i = 0; i < count; i++) {
        uint64_t begun = now();
        put(fd, bytes);
        take(fd, bytes);
        taken[i] = now() - begun;
    }
    qsort(taken, count, sizeof *taken, by_value);
    printf("lat %zu %.1f\n", bytes, (double)taken[count / 2] / 2);
    free(taken);
}

static void stream(int fd) {
    size_t batch = bytes < AT_ONCE ? AT_ONCE / bytes : 1;
    uint64_t begun = now();
    for (unsigned left = count; left > 0;) {
        size_t n = left < batch ? left : batch;
        put(fd, n * bytes);
        left -= (unsigned)n;
    }
    take(fd, 1);
    double seconds = (double)(now() - begun) / 1e9;
    printf("bw %zu %.0f %.3f\n", bytes, count / seconds, (double)bytes * count / seconds / 1e9);
}

static int connected(struct sockaddr_in *addr, bool dials, int listener) {
    int fd = dials ? socket(AF_INET, SOCK_STREAM, 0) : accept(listener, NULL, NULL), one = 1;
    must(fd >= 0, "socket");
    must(!dials || connect(fd, (struct sockaddr *)addr, sizeof *addr) == 0, "connect");
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
    return fd;
}

int main(int argc, char **argv) {
    bool streams = argc > 1 && strcmp(argv[1], "--bw") == 0;
    int at = argc > 1 && argv[1][0] == '-' ? 2 : 1;
    if (argc > at)
        bytes = strtoul(argv[at], NULL, 0);
    if (argc > at + 1)
        count = (unsigned)strtoul(argv[at + 1], NULL, 0);
    if (bytes == 0 || count == 0) {
        fprintf(stderr, "usage: raw-tcp [--lat | --bw] [BYTES [COUNT]]\n");
        return 2;
    }
    size_t room = bytes > AT_ONCE ? bytes : AT_ONCE;
    buf = malloc(room);
    must(buf != NULL, "malloc");
    memset(buf, 1, room); /* else all of it were the one page of zeros */
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof addr;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(listener, (struct sockaddr *)&addr, sizeof addr) == 0 && listen(listener, 1) == 0 &&
             getsockname(listener, (struct sockaddr *)&addr, &length) == 0,
         "listen");
    pid_t child = fork();
    must(child >= 0, "fork");
    pin(child == 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        answer(connected(&addr, false, listener), streams);
        return 0;
    }
    int fd = connected(&addr, true, -1);
    if (streams)
        stream(fd);
    else
        ping_pong(fd);
    waitpid(child, NULL, 0);
    return 0;
}
