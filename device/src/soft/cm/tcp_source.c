/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* tcp_source.c - the socket that a dial goes out by, see tcp_source.h. */
#include "soft/cm/tcp_source.h"

#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

#include "soft/cm/addr.h"
#include "soft/cm/port_range.h"

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51 /* Linux 6.3 */
#endif

#define WINDOW 64u /* ports */
#define WINDOWS_TRIED 8u

/* Where TCP looks for a port; both 0: in all that the system leaves to it. False: that cannot be said. */
static bool look_among(int fd, uint16_t first, uint16_t last) {
    uint32_t range = first | (uint32_t)last << 16;
    return setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof range) == 0;
}

/*
 * TCP looks at the ports one by one, at every second one first. When most are taken, as after thousands of connections that have
 * just ended, it looks at ten thousand for each dial. Among few, at a place of our choice, it finds one at once, or none
 * and then elsewhere.
 */
static int bind_to_any(int fd, const struct sockaddr *addr) {
    for (unsigned i = 0; i < WINDOWS_TRIED; i++) {
        uint16_t first = soft_cm_port_random() & ~(WINDOW - 1);
        if (!look_among(fd, first, (uint16_t)(first + WINDOW - 1)))
            break;
        if (bind(fd, addr, soft_cm_addr_bytes(addr)) == 0)
            return 0;
        if (errno != EADDRINUSE)
            return errno;
    }
    (void)look_among(fd, 0, 0);
    if (bind(fd, addr, soft_cm_addr_bytes(addr)) == 0)
        return 0;
    return errno == EADDRINUSE ? EADDRNOTAVAIL : errno;
}

static int bind_to(int fd, const struct sockaddr *addr) {
    int one = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    return bind(fd, addr, soft_cm_addr_bytes(addr)) == 0 ? 0 : errno;
}

int soft_cm_tcp_source(const struct sockaddr_storage *src, int *fd) {
    const struct sockaddr *addr = (const struct sockaddr *)src;
    int made = socket(addr->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0)
        return errno;
    int error = soft_cm_addr_port(addr) != 0 ? bind_to(made, addr) : bind_to_any(made, addr);
    if (error != 0)
        close(made);
    else
        *fd = made;
    return error;
}
