/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* where.c - see where.h. */
#define _GNU_SOURCE
#include "support/where.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <sluice/memory.h>

#include "soft/control/ctl.h"
#include "support/must.h"

const char *it_device(void) {
    const char *device = getenv("SLUICE_DEVICE");
    return device && *device ? device : "soft";
}

bool it_long(void) {
    const char *text = getenv("SLUICE_TEST_LONG");
    return text && *text && strcmp(text, "0") != 0;
}

bool it_soft(void) {
    return strcmp(it_device(), "soft") == 0;
}

bool it_tcp(void) {
    const char *net = getenv("SLUICE_SOFT_NET");
    return it_soft() && net && strcmp(net, "require") == 0;
}

/* The software device, told to be like that one. */
static bool it_like(const char *wanted) {
    const char *profile = getenv("SLUICE_SOFT_PROFILE");
    return it_soft() && profile && strcmp(profile, wanted) == 0;
}

bool it_tells_target(void) {
    return it_soft() && !it_like("rxe") && !it_like("iwarp");
}

bool it_iwarp(void) {
    return strncmp(it_device(), "siw", 3) == 0 || it_like("iwarp");
}

bool it_answers_alone(void) {
    return !it_soft() || it_iwarp();
}

uint32_t it_rights(void) {
    return SLUICE_MAY_READ | SLUICE_MAY_WRITE | (it_iwarp() ? 0 : SLUICE_MAY_ATOMIC);
}

const char *it_host(void) {
    const char *host = getenv("SLUICE_TEST_HOST");
    return host && *host ? host : "127.0.0.1";
}

const char *it_name(void) {
    const char *name = getenv("SLUICE_TEST_NAME");
    return name && *name ? name : "localhost";
}

const char *it_address(int port) {
    static __thread char address[80];
    snprintf(address, sizeof address, "%s:%d", it_host(), port);
    return address;
}

bool it_rnr_provoked;

/* Of this process, whose other end has no exported call (soft/control.h); -1: it has none. */
static int it_control_socket(void) {
    FILE *names = fopen("/proc/self/net/unix", "re");
    char line[256], own[64];
    int found = -1;
    must(names);
    snprintf(own, sizeof own, "@" SOFT_CTL_PREFIX "%d-", (int)getpid());
    while (found < 0 && fgets(line, sizeof line, names)) {
        struct sockaddr_un sun = {.sun_family = AF_UNIX};
        struct ucred who = {0};
        socklen_t size = sizeof who;
        char *name = strstr(line, own);
        if (!name)
            continue;
        size_t length = strcspn(name, "\n");
        memcpy(sun.sun_path + 1, name + 1, length - 1);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        must(fd >= 0);
        if (connect(fd, (struct sockaddr *)&sun,
                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) == 0 &&
            getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.pid == getpid())
            found = fd;
        else
            close(fd);
    }
    fclose(names);
    return found;
}

unsigned long long it_rnr(void) {
    static __thread char answer[SOFT_CTL_PACKET + 1];
    unsigned long long count = 0;
    int fd = it_control_socket();
    if (fd < 0)
        return 0;
    must(send(fd, "status", 6, MSG_NOSIGNAL) == 6);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    must(poll(&ready, 1, 30000) == 1);
    ssize_t got = recv(fd, answer, sizeof answer - 1, 0); /* it is in the first packet */
    answer[got > 0 ? got : 0] = 0;
    const char *at = strstr(answer, "\nrnr ");
    must(at && sscanf(at, "\nrnr %llu\n", &count) == 1);
    close(fd);
    return count;
}
