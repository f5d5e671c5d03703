/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* network.c - see network.h. */
#define _GNU_SOURCE
#include "support/network.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

bool network_separate(void) {
    return geteuid() == 0 && unshare(CLONE_NEWNET) == 0 && network_up();
}

bool network_up(void) {
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool up = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
    close(fd);
    return up;
}
