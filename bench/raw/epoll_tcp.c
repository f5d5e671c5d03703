/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * epoll_tcp.c - what lib-many measures, by a plain server of sockets: many TCP connections of one thread at either end, which
 * epoll tells what can be read. No batches across sockets, no library; as most servers are written.
 *
 * One process forks the other. The asking one connects, then keeps DEPTH messages of 64 bytes on their way to and fro, each on the
 * next connection in turn, or with --each DEPTH on every one.
 *
 *   epoll-tcp [--json] [--sessions N] [--depth N] [--each] [--seconds S] [--mode spin|block]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define SESSIONS_MAX 20000
#define BYTES 64
#define READ_BYTES 65536
#define EVENTS 64

static bool json, each, blocks;
static int sessions = 1000, depth = 128;
static double seconds = 1;

static int ring, all[SESSIONS_MAX], next;
static unsigned part[SESSIONS_MAX]; /* bytes of a message that is not whole */
static uint64_t echoes;

static void die(const char *what) {
    fprintf(stderr, "epoll-tcp: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void allow_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        die("getrlimit");
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        die("setrlimit");
}

static void watch(int fd, int index) {
    int one = 1;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)index};
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0 ||
        epoll_ctl(ring, EPOLL_CTL_ADD, fd, &event) != 0)
        die("a connection cannot be watched");
    all[index] = fd;
}

static void put(int fd, const char *bytes, size_t count) {
    while (count > 0) {
        ssize_t n = send(fd, bytes, count, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            die("send");
        bytes += n > 0 ? n : 0;
        count -= n > 0 ? (size_t)n : 0;
    }
}

/* What there is to read now; 0: the other end has closed, perhaps with something unread. */
static size_t take(int fd, char *bytes) {
    ssize_t n;
    do
        n = recv(fd, bytes, READ_BYTES, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != ECONNRESET)
        die("recv");
    return n < 0 ? 0 : (size_t)n;
}

static int poll_some(struct epoll_event *events) {
    int n = epoll_wait(ring, events, EVENTS, blocks ? 1000 : 0);
    if (n < 0 && errno != EINTR)
        die("epoll_wait");
    return n < 0 ? 0 : n;
}

/* ---- the answering process ------------------------------------------------------------------- */

static void answer(int listener) {
    static char bytes[READ_BYTES];
    struct epoll_event events[EVENTS];
    for (int i = 0; i < sessions; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            die("accept");
        watch(fd, i);
    }
    for (;;) {
        int n = poll_some(events);
        for (int i = 0; i < n; i++) {
            int fd = all[events[i].data.u32];
            size_t count = take(fd, bytes);
            if (count == 0)
                return; /* the other process is done */
            put(fd, bytes, count);
        }
    }
}

/* ---- the asking process ---------------------------------------------------------------------- */

static void send_next(int came) {
    static const char text[BYTES] = "a message of 64 bytes";
    int index = each && came >= 0 ? came : next;
    next = next + 1 == sessions ? 0 : next + 1;
    put(all[index], text, sizeof text);
}

static void until(double end) {
    static char bytes[READ_BYTES];
    struct epoll_event events[EVENTS];
    while (now() < end) {
        int n = poll_some(events);
        for (int i = 0; i < n; i++) {
            int index = (int)events[i].data.u32;
            size_t count = take(all[index], bytes) + part[index];
            if (count == part[index])
                die("the other process has closed a connection");
            part[index] = count % BYTES;
            for (size_t k = 0; k < count / BYTES; k++)
                send_next(index);
            echoes += count / BYTES;
        }
    }
}

static void ask(const struct sockaddr_in *to) {
    for (int i = 0; i < sessions; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof *to) != 0)
            die("connect");
        watch(fd, i);
    }
    for (int i = 0; i < (each ? depth * sessions : depth); i++)
        send_next(-1);
    double start = now();
    until(start + seconds / 5);
    uint64_t before = echoes;
    start = now();
    until(start + seconds);
    double per_s = (double)(echoes - before) / (now() - start);
    if (json)
        printf("{\"sessions\":%d,\"echoes_per_s\":%.0f}\n", sessions, per_s);
    else
        printf("%d connections: %.0f messages to and fro a second\n", sessions, per_s);
}

/* ---- the program ----------------------------------------------------------------------------- */

static bool option(const char *name, const char *value) {
    if (strcmp(name, "--sessions") == 0)
        return (sessions = atoi(value)) >= 1 && sessions <= SESSIONS_MAX;
    if (strcmp(name, "--depth") == 0)
        return (depth = atoi(value)) >= 1 && depth <= 4096;
    if (strcmp(name, "--seconds") == 0)
        return (seconds = atof(value)) > 0 && seconds <= 60;
    blocks = strcmp(value, "block") == 0;
    return strcmp(name, "--mode") == 0 && (blocks || strcmp(value, "spin") == 0);
}

static int listen_somewhere(struct sockaddr_in *at) {
    socklen_t bytes = sizeof *at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (listener < 0 || bind(listener, (struct sockaddr *)at, sizeof *at) != 0 ||
        listen(listener, SOMAXCONN) != 0 ||
        getsockname(listener, (struct sockaddr *)at, &bytes) != 0)
        die("listen");
    return listener;
}

int main(int argc, char **argv) {
    struct sockaddr_in at;
    int status = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--each") == 0) {
            each = true;
        } else if (i + 1 >= argc || !option(argv[i], argv[i + 1])) {
            fprintf(stderr, "usage: epoll-tcp [--json] [--sessions N] [--depth N] [--each]"
                            " [--seconds S] [--mode spin|block]\n");
            return 2;
        } else {
            i++;
        }
    }
    allow_files();
    int listener = listen_somewhere(&at);
    pid_t parent = getpid(), child = fork();
    if (child < 0)
        die("fork");
    ring = epoll_create1(EPOLL_CLOEXEC);
    if (ring < 0)
        die("epoll_create1");
    if (child == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
            return 1;
        answer(listener);
        return 0;
    }
    close(listener);
    ask(&at);
    for (int i = 0; i < sessions; i++)
        close(all[i]);
    waitpid(child, &status, 0);
    return status != 0;
}
