/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * net.c - which way: the setting, and the route. Constant once read.
 */
#define _GNU_SOURCE /* secure_getenv */
#include "soft/cm/net.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soft/cm/addr.h"
#include "soft/cm/id.h"
#include "soft/soft.h"
#include "soft/verbs/profile.h"

static enum soft_cm_net net;
static pthread_once_t net_once = PTHREAD_ONCE_INIT;

static void net_read(void) {
    const char *text = secure_getenv("SLUICE_SOFT_NET");
    if (!text || !*text || strcmp(text, "on") == 0)
        net = SOFT_CM_NET_ON;
    else if (strcmp(text, "require") == 0)
        net = SOFT_CM_NET_REQUIRE;
    else
        net = SOFT_CM_NET_OFF;
}

enum soft_cm_net soft_cm_net(void) {
    pthread_once(&net_once, net_read);
    return net;
}

const char *soft_cm_net_text(void) {
    if (soft_profile()->iwarp)
        return "not at all: this profile of the software device is within the host";
    switch (soft_cm_net()) {
    case SOFT_CM_NET_OFF:
        return "not at all (SLUICE_SOFT_NET)";
    case SOFT_CM_NET_ON:
        return "over TCP; a listener at * has a TCP port (SLUICE_SOFT_NET=off: none)";
    case SOFT_CM_NET_REQUIRE:
        return "over TCP, and so are processes of this host (SLUICE_SOFT_NET=require)";
    }
    return "";
}

bool soft_cm_net_allows(const struct soft_cm_id *id) {
    return id->id.ps == RDMA_PS_TCP && id->id.qp_type == IBV_QPT_RC && !soft_profile()->iwarp &&
           soft_cm_net() != SOFT_CM_NET_OFF;
}

static bool is_loopback(const struct sockaddr *addr) {
    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *sin = (const struct sockaddr_in *)(const void *)addr;
        return ntohl(sin->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr);
}

bool soft_cm_net_opens_port(const struct soft_cm_id *id, const struct sockaddr *addr) {
    return soft_cm_net_allows(id) && (soft_cm_net() == SOFT_CM_NET_REQUIRE || !is_loopback(addr));
}

/* What the kernel chooses for a datagram; nothing is sent. */
int soft_cm_net_source(const struct sockaddr *dst, struct sockaddr_storage *src) {
    struct sockaddr_storage to;
    socklen_t bytes = sizeof *src;
    soft_cm_addr_copy(&to, dst);
    if (soft_cm_addr_port((struct sockaddr *)&to) == 0)
        soft_cm_addr_set_port(&to, 1);
    int fd = socket(dst->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int error = 0;
    if (connect(fd, (struct sockaddr *)&to, soft_cm_addr_bytes(dst)) != 0 ||
        getsockname(fd, (struct sockaddr *)src, &bytes) != 0)
        error = errno;
    close(fd);
    if (error == 0)
        soft_cm_addr_set_port(src, 0);
    return error;
}
