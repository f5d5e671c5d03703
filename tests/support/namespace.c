/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* namespace.c - see namespace.h. */
#define _GNU_SOURCE
#include "support/namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return written;
}

bool namespace_as_user(int flags, unsigned uid) {
    char map[64];
    snprintf(map, sizeof map, "%u %u 1", uid, (unsigned)geteuid());
    return syscall(SYS_unshare, CLONE_NEWUSER | flags) == 0 &&
           write_file("/proc/self/uid_map", map) && geteuid() == uid;
}
