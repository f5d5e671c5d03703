/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* squatter.c - see squatter.h. */
#define _GNU_SOURCE
#include "support/squatter.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "soft/ipc/peer_internal.h"
#include "support/child.h"
#include "support/must.h"

#define BLOCKS 16384u
#define FILES 20000u
#define OF_ONE 1900u /* names of one process of a crowd */
#define FIRST 256u   /* number in these: 7f000100 is no address that others need */

void squatter_become(uid_t uid) {
    must(setresgid(uid, uid, uid) == 0);
    must(setresuid(uid, uid, uid) == 0);
    child_ends_too();
}

int squatter_take(const char *text, bool listens) {
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    size_t n = strlen(text);
    must(n < sizeof sun.sun_path);
    memcpy(sun.sun_path + 1, text, n);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    must(sock >= 0);
    must(bind(sock, (struct sockaddr *)&sun,
              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0);
    must(!listens || listen(sock, 8) == 0);
    return sock;
}

static void raise_files(unsigned most) {
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

bool squatter_may_take_blocks(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max >= FILES;
}

void squatter_take_blocks(unsigned step, bool listens) {
    char text[64];
    raise_files(FILES);
    for (unsigned i = 0; i < BLOCKS; i += step) {
        snprintf(text, sizeof text, "sluice-soft.%u/q/%u", SOFT_WIRE_VERSION, i);
        (void)squatter_take(text, listens);
    }
}

static void be_one_of_a_crowd(const char *begin, const char *end, unsigned first, unsigned count,
                              bool listens) {
    char text[100];
    raise_files(OF_ONE + 100);
    for (unsigned i = first; i < first + count; i++) {
        snprintf(text, sizeof text, "%s%06x%s", begin, FIRST + i, end);
        (void)squatter_take(text, listens);
    }
}

void squatter_crowd(const char *begin, const char *end, unsigned count, bool listens) {
    for (unsigned done = 0; done < count; done += OF_ONE) {
        int ready[2];
        char byte;
        must(pipe(ready) == 0);
        pid_t pid = child_fork();
        must(pid >= 0);
        if (pid == 0) {
            must_end_process = true;
            close(ready[0]);
            be_one_of_a_crowd(begin, end, done, count - done < OF_ONE ? count - done : OF_ONE,
                              listens);
            must(write(ready[1], "x", 1) == 1);
            for (;;)
                pause();
        }
        close(ready[1]);
        must(read(ready[0], &byte, 1) == 1);
        close(ready[0]);
    }
}
