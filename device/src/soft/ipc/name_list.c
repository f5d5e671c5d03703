/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* name_list.c - see name_list.h. What is read here was chosen by any user: lengths are checked. */
#define _GNU_SOURCE
#include "soft/ipc/name_list.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define LISTENING 10    /* the state's number, in sock_diag(7) as of TCP */
#define SHOW_UID 0x40   /* UDIAG_SHOW_UID and UNIX_DIAG_UID: Linux 5.3, later than some headers */
#define ATTRIBUTE_UID 7 /* an older kernel does not send it */
#define ACCEPTS 0x10000u
#define BUFFER 32768 /* the most that the kernel puts into one answer */

struct scan {
    const char *begin;
    size_t begin_bytes;
    bool (*see)(const struct soft_listed_name *name, void *arg);
    void *arg;
    bool over; /* it has seen enough, or all */
};

static struct scan scan_of(const char *begin,
                           bool (*see)(const struct soft_listed_name *name, void *arg), void *arg) {
    return (struct scan){.begin = begin, .begin_bytes = strlen(begin), .see = see, .arg = arg};
}

/* ---- netlink ---------------------------------------------------------------------------------------- */

static int ask(int sock) {
    struct {
        struct nlmsghdr head;
        struct unix_diag_req body;
    } request = {.head = {.nlmsg_len = sizeof request,
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
                 .body = {.sdiag_family = AF_UNIX,
                          .udiag_states = 1u << LISTENING,
                          .udiag_show = UDIAG_SHOW_NAME | SHOW_UID}};
    struct timeval patience = {.tv_sec = 1}; /* the kernel answers within the call */
    if (setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
        send(sock, &request, sizeof request, 0) != sizeof request)
        return -errno;
    return 0;
}

/* An abstract name: a zero byte, and then for those that we make no other one. */
static bool is_text(const char *name, size_t bytes) {
    return bytes > 1 && bytes <= sizeof((struct sockaddr_un *)NULL)->sun_path && name[0] == 0 &&
           !memchr(name + 1, 0, bytes - 1);
}

static void on_socket(struct scan *scan, const struct nlmsghdr *message) {
    char text[sizeof((struct sockaddr_un *)NULL)->sun_path + 1] = "";
    struct soft_listed_name name = {.text = text};
    size_t at = NLMSG_LENGTH(sizeof(struct unix_diag_msg)), end = message->nlmsg_len;
    const char *bytes = (const char *)message;
    struct nlattr attribute;
    for (; at + sizeof attribute <= end; at += NLA_ALIGN(attribute.nla_len)) {
        memcpy(&attribute, bytes + at, sizeof attribute);
        if (attribute.nla_len < sizeof attribute || attribute.nla_len > end - at)
            return;
        const char *value = bytes + at + NLA_HDRLEN;
        size_t length = attribute.nla_len - NLA_HDRLEN;
        if (attribute.nla_type == UNIX_DIAG_NAME && is_text(value, length)) {
            memcpy(text, value + 1, length - 1);
            text[length - 1] = 0;
        } else if (attribute.nla_type == ATTRIBUTE_UID && length == sizeof(uint32_t)) {
            uint32_t uid;
            memcpy(&uid, value, sizeof uid);
            name.uid = uid;
            name.has_uid = true;
        }
    }
    if (text[0] && strncmp(text, scan->begin, scan->begin_bytes) == 0)
        scan->over = !scan->see(&name, scan->arg);
}

static int on_answer(struct scan *scan, const char *buffer, size_t got) {
    struct nlmsghdr head;
    for (size_t at = 0; at + sizeof head <= got && !scan->over; at += NLMSG_ALIGN(head.nlmsg_len)) {
        memcpy(&head, buffer + at, sizeof head);
        if (head.nlmsg_len < sizeof head || head.nlmsg_len > got - at)
            return -EPROTO;
        if (head.nlmsg_type == NLMSG_DONE) {
            scan->over = true;
        } else if (head.nlmsg_type == NLMSG_ERROR) {
            int error = -EPROTO;
            if (head.nlmsg_len >= NLMSG_LENGTH(sizeof error))
                memcpy(&error, buffer + at + NLMSG_HDRLEN, sizeof error);
            return error < 0 ? error : -EPROTO;
        } else if (head.nlmsg_type == SOCK_DIAG_BY_FAMILY &&
                   head.nlmsg_len >= NLMSG_LENGTH(sizeof(struct unix_diag_msg))) {
            on_socket(scan, (const struct nlmsghdr *)(buffer + at));
        }
    }
    return 0;
}

int soft_name_scan_netlink(const char *begin,
                           bool (*see)(const struct soft_listed_name *name, void *arg), void *arg) {
    struct scan scan = scan_of(begin, see, arg);
    char *buffer = malloc(BUFFER);
    if (!buffer)
        return -ENOMEM;
    int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    int rc = sock < 0 ? -errno : ask(sock);
    while (rc == 0 && !scan.over) {
        struct sockaddr_nl from = {0};
        socklen_t bytes = sizeof from;
        ssize_t got = recvfrom(sock, buffer, BUFFER, 0, (struct sockaddr *)&from, &bytes);
        if (got < 0 && errno != EINTR)
            rc = -errno;
        else if (got > 0 && from.nl_pid == 0) /* the kernel's */
            rc = on_answer(&scan, buffer, (size_t)got);
    }
    if (sock >= 0)
        close(sock);
    free(buffer);
    return rc;
}

/* ---- /proc ------------------------------------------------------------------------------------------ */

int soft_name_scan_proc(const char *begin,
                        bool (*see)(const struct soft_listed_name *name, void *arg), void *arg) {
    struct scan scan = scan_of(begin, see, arg);
    FILE *file = fopen("/proc/self/net/unix", "re");
    if (!file)
        return -errno;
    char *line = NULL;
    size_t size = 0;
    for (ssize_t len; !scan.over && (len = getline(&line, &size, file)) > 0;) {
        if (line[len - 1] == '\n')
            line[len - 1] = 0;
        /* "Num RefCount Protocol Flags Type St Inode @name"; an abstract name starts with @. */
        unsigned flags;
        char *text = strchr(line, '@');
        if (!text || strncmp(text + 1, begin, scan.begin_bytes) != 0 ||
            sscanf(line, "%*s %*s %*s %x", &flags) != 1)
            continue;
        /* Accepted connections carry the listener's name but do not hold it. */
        const struct soft_listed_name name = {.text = text + 1};
        scan.over = (flags & ACCEPTS) && !see(&name, arg);
    }
    free(line);
    fclose(file);
    return 0;
}

/*
 * A kernel that does not have the module which lists sockets (unix_diag) starts a program that looks for it, each time it is
 * asked, and the caller waits for that: so it is asked once.
 */
static _Atomic bool is_not_listed;

int soft_name_scan(const char *begin, bool (*see)(const struct soft_listed_name *name, void *arg),
                   void *arg) {
    if (!atomic_load(&is_not_listed)) {
        int rc = soft_name_scan_netlink(begin, see, arg);
        if (rc == 0)
            return 0;
        if (rc == -ENOENT || rc == -EPROTONOSUPPORT) /* no such module, no such socket */
            atomic_store(&is_not_listed, true);
    }
    return soft_name_scan_proc(begin, see, arg);
}
