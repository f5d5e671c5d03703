/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * addr.c - socket addresses: comparison, locality, ports, GIDs. No state, any thread.
 */
#include "soft/cm/addr.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct sockaddr_in *v4(const struct sockaddr *addr) {
    return (const struct sockaddr_in *)addr;
}

static const struct sockaddr_in6 *v6(const struct sockaddr *addr) {
    return (const struct sockaddr_in6 *)addr;
}

socklen_t soft_cm_addr_bytes(const struct sockaddr *addr) {
    if (!addr)
        return 0;
    if (addr->sa_family == AF_INET)
        return sizeof(struct sockaddr_in);
    if (addr->sa_family == AF_INET6)
        return sizeof(struct sockaddr_in6);
    return 0;
}

void soft_cm_addr_copy(struct sockaddr_storage *to, const struct sockaddr *from) {
    memset(to, 0, sizeof *to);
    memcpy(to, from, soft_cm_addr_bytes(from));
}

void soft_cm_addr_any(struct sockaddr_storage *addr, int family) {
    memset(addr, 0, sizeof *addr);
    addr->ss_family = (sa_family_t)family;
}

void soft_cm_addr_loopback(struct sockaddr_storage *addr, int family) {
    soft_cm_addr_any(addr, family);
    if (family == AF_INET)
        ((struct sockaddr_in *)addr)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        ((struct sockaddr_in6 *)addr)->sin6_addr = in6addr_loopback;
}

bool soft_cm_addr_is_any(const struct sockaddr *addr) {
    if (addr->sa_family == AF_INET)
        return v4(addr)->sin_addr.s_addr == htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&v6(addr)->sin6_addr);
}

bool soft_cm_addr_equal(const struct sockaddr *a, const struct sockaddr *b) {
    if (a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return v4(a)->sin_addr.s_addr == v4(b)->sin_addr.s_addr;
    return IN6_ARE_ADDR_EQUAL(&v6(a)->sin6_addr, &v6(b)->sin6_addr);
}

bool soft_cm_addr_is_group(const struct sockaddr *addr) {
    if (addr->sa_family == AF_INET)
        return IN_MULTICAST(
            ntohl(((const struct sockaddr_in *)(const void *)addr)->sin_addr.s_addr));
    return addr->sa_family == AF_INET6 &&
           IN6_IS_ADDR_MULTICAST(&((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr);
}

bool soft_cm_addr_is_link_local(const struct sockaddr *addr) {
    return addr->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6(addr)->sin6_addr);
}

/* A link-local address is another one on each interface. */
static bool is_same_zone(const struct sockaddr *a, const struct sockaddr *b) {
    return !soft_cm_addr_is_link_local(a) || v6(a)->sin6_scope_id == v6(b)->sin6_scope_id;
}

/* The whole of 127/8 is this host, though the interface carries one address of it. */
static bool is_loopback_v4(const struct sockaddr *addr) {
    return addr->sa_family == AF_INET && ntohl(v4(addr)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

bool soft_cm_addr_is_loopback(const struct sockaddr *addr) {
    return is_loopback_v4(addr) ||
           (addr->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6(addr)->sin6_addr));
}

bool soft_cm_addr_outside(struct sockaddr_storage *addr, int family) {
    struct ifaddrs *list;
    if (getifaddrs(&list))
        return false;
    const struct ifaddrs *one = list;
    while (one &&
           !(one->ifa_addr && one->ifa_addr->sa_family == family && (one->ifa_flags & IFF_UP) &&
             !(one->ifa_flags & IFF_LOOPBACK) && !soft_cm_addr_is_link_local(one->ifa_addr)))
        one = one->ifa_next;
    bool found = one && soft_cm_addr_bytes(one->ifa_addr) > 0;
    if (found) {
        soft_cm_addr_copy(addr, one->ifa_addr);
        soft_cm_addr_set_port(addr, 0);
    }
    freeifaddrs(list);
    return found;
}

int soft_cm_addr_is_local(const struct sockaddr *addr) {
    if (is_loopback_v4(addr))
        return 1;
    /* ::1 is an address like others: it is gone where IPv6 is switched off. */
    struct ifaddrs *list;
    if (getifaddrs(&list))
        return -errno;
    int found = 0;
    for (struct ifaddrs *one = list; one && !found; one = one->ifa_next)
        found = one->ifa_addr && soft_cm_addr_bytes(one->ifa_addr) &&
                soft_cm_addr_equal(one->ifa_addr, addr) && is_same_zone(one->ifa_addr, addr);
    freeifaddrs(list);
    return found;
}

bool soft_cm_addr_has_family(int family) {
    /* A device that is kept inside the host makes no socket of the internet family, not for this either. */
    return family != AF_INET6 || access("/proc/self/net/if_inet6", F_OK) == 0 ||
           access("/proc/self/net/dev", F_OK) != 0; /* it cannot be known */
}

uint16_t soft_cm_addr_port(const struct sockaddr *addr) {
    if (addr->sa_family == AF_INET)
        return ntohs(v4(addr)->sin_port);
    if (addr->sa_family == AF_INET6)
        return ntohs(v6(addr)->sin6_port);
    return 0;
}

void soft_cm_addr_set_port(struct sockaddr_storage *addr, uint16_t port) {
    if (addr->ss_family == AF_INET)
        ((struct sockaddr_in *)addr)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
}

static unsigned long first_unprivileged_port(void) {
    unsigned long port = IPPORT_RESERVED;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
    if (file) {
        if (fscanf(file, "%lu", &port) != 1)
            port = IPPORT_RESERVED;
        fclose(file);
    }
    return port;
}

static bool may_bind_privileged(void) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};
    if (syscall(SYS_capget, &head, data))
        return geteuid() == 0;
    return data[0].effective & (1u << CAP_NET_BIND_SERVICE);
}

bool soft_cm_addr_port_allowed(uint16_t port) {
    if (port == 0 || port >= IPPORT_RESERVED)
        return true; /* the common cases need no system call */
    return port >= first_unprivileged_port() || may_bind_privileged();
}

void soft_cm_addr_gid(const struct sockaddr *addr, union ibv_gid *gid) {
    memset(gid, 0, sizeof *gid);
    if (addr->sa_family == AF_INET) {
        gid->raw[10] = gid->raw[11] = 0xff;
        memcpy(gid->raw + 12, &v4(addr)->sin_addr, 4);
    } else if (addr->sa_family == AF_INET6) {
        memcpy(gid->raw, &v6(addr)->sin6_addr, 16);
    }
}
