/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * name_list_test.c - a kernel that does not list sockets over netlink. The device's calls of socket() come here first.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "support/test.h"

#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "soft/ipc/name_list.h"

static unsigned asked;

int socket(int domain, int type, int protocol) {
    if (domain == AF_NETLINK && protocol == NETLINK_SOCK_DIAG) {
        asked++;
        errno = ENOENT;
        return -1;
    }
    return (int)syscall(SYS_socket, domain, type, protocol);
}

static bool count(const struct soft_listed_name *name, void *arg) {
    (void)name;
    ++*(unsigned *)arg;
    return true;
}

TEST(a_kernel_without_the_list_is_asked_once_and_proc_each_time) {
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path - 1];
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int bytes = snprintf(path, sizeof path, "name_list_test/%d/one", (int)getpid());
    memcpy(name.sun_path + 1, path, (size_t)bytes);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
    assert_int_equal(bind(sock, (struct sockaddr *)&name, length), 0);
    assert_int_equal(listen(sock, 1), 0);
    for (unsigned i = 0; i < 3; i++) {
        unsigned found = 0;
        assert_int_equal(soft_name_scan(path, count, &found), 0);
        assert_int_equal(found, 1);
        assert_int_equal(asked, 1);
    }
    close(sock);
}
