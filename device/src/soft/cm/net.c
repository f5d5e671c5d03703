/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * net.c - which way: the setting, and the route. Constant once read.
 */
#include "soft/cm/net.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/settings.h"
#include "common/uncancelled.h"
#include "soft/cm/addr.h"
#include "soft/cm/channel.h"
#include "soft/cm/id.h"
#include "soft/ipc/control_lock.h"
#include "soft/object/profile.h"
#include "soft/soft.h"

static enum soft_cm_net net; /* the environment's */
static bool asks_crc;
static pthread_once_t net_once = PTHREAD_ONCE_INIT;

static void net_read(void) {
    static const enum soft_cm_net said[] = {[SETTING_NET_OFF] = SOFT_CM_NET_OFF,
                                            [SETTING_NET_ON] = SOFT_CM_NET_ON,
                                            [SETTING_NET_REQUIRE] = SOFT_CM_NET_REQUIRE};
    net = said[setting_value(SETTING_SOFT_NET, SETTING_NET_ON)];
    asks_crc = setting_value(SETTING_SOFT_CRC, SETTING_ON) == SETTING_ON;
}

/* Never DEFAULT. */
static enum soft_cm_net chosen(unsigned said) {
    pthread_once(&net_once, net_read);
    return said == SOFT_CM_NET_DEFAULT ? net : (enum soft_cm_net)said;
}

bool soft_cm_net_asks_crc(void) {
    pthread_once(&net_once, net_read);
    return asks_crc;
}

const char *soft_cm_net_text(unsigned said) {
    bool by_environment = said == SOFT_CM_NET_DEFAULT;
    if (soft_profile()->iwarp)
        return "not at all: this profile of the software device is within the host";
    switch (chosen(said)) {
    case SOFT_CM_NET_ON:
        return by_environment
                   ? "over TCP; a listener at * has a TCP port (SLUICE_SOFT_NET=off: none)"
                   : "over TCP; a listener at * has a TCP port (soft_net of the node)";
    case SOFT_CM_NET_REQUIRE:
        return by_environment
                   ? "over TCP, and so are processes of this host (SLUICE_SOFT_NET=require)"
                   : "over TCP, and so are processes of this host (soft_net of the node)";
    default:
        return by_environment ? "not at all (SLUICE_SOFT_NET)"
                              : "not at all (soft_net of the node)";
    }
}

int soft_cm_set_net(struct rdma_event_channel *channel, unsigned said) {
    UNCANCELLED;
    struct soft_cm_channel *own = (struct soft_cm_channel *)channel;
    if (!own || said > SOFT_CM_NET_REQUIRE)
        return soft_cm_fail(EINVAL);
    soft_lock();
    own->net = (uint8_t)said;
    soft_unlock();
    return 0;
}

bool soft_cm_net_requires(const struct soft_cm_id *id) {
    return chosen(id->net) == SOFT_CM_NET_REQUIRE;
}

bool soft_cm_net_allows(const struct soft_cm_id *id) {
    return id->id.ps == RDMA_PS_TCP && id->id.qp_type == IBV_QPT_RC && !soft_profile()->iwarp &&
           chosen(id->net) != SOFT_CM_NET_OFF;
}

static bool is_loopback(const struct sockaddr *addr) {
    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *sin = (const struct sockaddr_in *)(const void *)addr;
        return ntohl(sin->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr);
}

bool soft_cm_net_opens_port(const struct soft_cm_id *id, const struct sockaddr *addr) {
    return soft_cm_net_allows(id) && (soft_cm_net_requires(id) || !is_loopback(addr));
}

/* The source that the kernel chooses for a datagram; none is sent. */
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
