/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * address_watch.c - a netlink socket that reports removed addresses. Engine thread, control lock.
 *
 * Only removals count: an address is also announced again whenever its lifetime is renewed. Reports that the
 * kernel dropped because too many came at once are not asked for again.
 */
#include "soft/control/address_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/control/device_state.h"
#include "soft/ipc/engine.h"

static struct soft_watch watch = {.fd = -1};

/* The address of a message, in out. */
static bool address_of(const struct nlmsghdr *msg, struct sockaddr_storage *out) {
    const struct ifaddrmsg *body = NLMSG_DATA(msg);
    if (msg->nlmsg_len < NLMSG_LENGTH(sizeof *body))
        return false;
    int left = (int)(msg->nlmsg_len - NLMSG_LENGTH(sizeof *body));
    memset(out, 0, sizeof *out);
    for (const struct rtattr *a = IFA_RTA(body); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        size_t bytes = RTA_PAYLOAD(a);
        /* For IPv4 IFA_ADDRESS is the other end of a point to point link. */
        if (body->ifa_family == AF_INET && a->rta_type == IFA_LOCAL && bytes == 4) {
            out->ss_family = AF_INET;
            memcpy(&((struct sockaddr_in *)out)->sin_addr, RTA_DATA(a), bytes);
            return true;
        }
        if (body->ifa_family == AF_INET6 && a->rta_type == IFA_ADDRESS && bytes == 16) {
            out->ss_family = AF_INET6;
            memcpy(&((struct sockaddr_in6 *)out)->sin6_addr, RTA_DATA(a), bytes);
            return true;
        }
    }
    return false;
}

static void on_news(struct soft_watch *w, uint32_t events) {
    (void)events;
    union {
        struct nlmsghdr align;
        char bytes[8192];
    } buf;
    struct sockaddr_nl from;
    for (int i = 0; i < 16; i++) { /* the rest is reported again */
        socklen_t len = sizeof from;
        ssize_t got = recvfrom(w->fd, buf.bytes, sizeof buf.bytes, MSG_DONTWAIT,
                               (struct sockaddr *)&from, &len);
        if (got <= 0)
            return;
        if (len != sizeof from || from.nl_pid != 0)
            continue; /* not the kernel's */
        size_t left = (size_t)got;
        for (struct nlmsghdr *msg = &buf.align; NLMSG_OK(msg, left); msg = NLMSG_NEXT(msg, left)) {
            struct sockaddr_storage addr;
            if (msg->nlmsg_type == RTM_DELADDR && address_of(msg, &addr))
                soft_device_address_moved((struct sockaddr *)&addr);
        }
    }
}

void soft_address_watch_start(void) {
    struct sockaddr_nl own = {.nl_family = AF_NETLINK,
                              .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return;
    watch = (struct soft_watch){.fd = fd, .fn = on_news};
    if (bind(fd, (struct sockaddr *)&own, sizeof own) != 0 ||
        soft_watch_add(&watch, EPOLLIN) != 0) {
        close(fd);
        watch.fd = -1;
    }
}

void soft_address_watch_stop(void) {
    if (watch.fd < 0)
        return;
    soft_watch_remove(&watch);
    close(watch.fd);
    watch.fd = -1;
}

/* The descriptor is closed with all the others of the engine. */
void soft_address_watch_forked(void) {
    watch.fd = -1;
}
