/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * abstract_socket.c - abstract unix socket names: bind, accept, connect. Control lock.
 */
#define _GNU_SOURCE
#include "soft/ipc/abstract_socket.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "soft/ipc/own_user.h"
#include "soft/ipc/untrusted_fd.h"

#define QUEUE 4096         /* connections not accepted yet; the kernel may allow fewer */
#define BATCH 8            /* accepted in one turn, with the control lock held */
#define RETRY_NS 10000000u /* out of descriptors */

static int address(struct sockaddr_un *sun, const char *text, socklen_t *len) {
    size_t n = strlen(text);
    if (n > sizeof sun->sun_path - 1)
        return -ENAMETOOLONG;
    memset(sun, 0, sizeof *sun);
    sun->sun_family = AF_UNIX;
    memcpy(sun->sun_path + 1, text, n);
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    return 0;
}

static void on_retry(struct soft_timer *timer) {
    struct soft_abstract_socket *name =
        (struct soft_abstract_socket *)((char *)timer -
                                        offsetof(struct soft_abstract_socket, retry));
    soft_watch_modify(&name->watch, EPOLLIN);
}

static void on_name(struct soft_watch *watch, uint32_t events) {
    (void)events;
    struct soft_abstract_socket *name =
        (struct soft_abstract_socket *)((char *)watch -
                                        offsetof(struct soft_abstract_socket, watch));
    for (int i = 0; i < BATCH; i++) {
        int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            name->accepted(fd);
            continue;
        }
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
            return;
        /* No descriptor or no memory is left: what waits stays and would wake us again at once. */
        soft_watch_modify(watch, 0);
        soft_timer_arm(&name->retry, soft_now_ns() + RETRY_NS, on_retry);
        return;
    }
}

int soft_abstract_socket_bind(struct soft_abstract_socket *name, const char *text,
                              void (*accepted)(int fd)) {
    struct sockaddr_un sun;
    socklen_t len;
    *name = (struct soft_abstract_socket){.watch = {.fd = -1}, .accepted = accepted};
    int rc = address(&sun, text, &len);
    if (rc != 0)
        return rc;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    name->watch = (struct soft_watch){.fd = fd, .fn = on_name};
    if (bind(fd, (struct sockaddr *)&sun, len) != 0 || listen(fd, QUEUE) != 0)
        rc = -errno;
    else
        rc = soft_watch_add(&name->watch, EPOLLIN);
    if (rc != 0) {
        close(fd);
        name->watch.fd = -1;
    }
    return rc;
}

void soft_abstract_socket_unbind(struct soft_abstract_socket *name) {
    if (name->watch.fd < 0)
        return;
    soft_timer_cancel(&name->retry);
    soft_watch_remove(&name->watch);
    /* A process that waits to be accepted may have sent something already: see untrusted_fd.h. */
    shutdown(name->watch.fd, SHUT_RD);
    for (int i = 0; i < QUEUE; i++) {
        int fd = accept4(name->watch.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            break;
        soft_untrusted_fd_close_socket(fd);
    }
    close(name->watch.fd);
    name->watch.fd = -1;
}

/* A socket connected to the owner of the name, or -errno: ECONNREFUSED no owner, EAGAIN queue full. */
static int soft_abstract_socket_connect(const char *text) {
    struct sockaddr_un sun;
    socklen_t len;
    int rc = address(&sun, text, &len);
    if (rc != 0)
        return rc;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    /* SO_PEERCRED gives the process that began to listen; SO_PASSCRED the sender of each message. */
    int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        connect(fd, (struct sockaddr *)&sun, len) != 0) {
        rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

int soft_name_reach(const char *text, struct ucred *who) {
    socklen_t len = sizeof *who;
    int fd = soft_abstract_socket_connect(text);
    if (fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &len) != 0) {
        int error = -errno;
        soft_untrusted_fd_close_socket(fd);
        return error;
    }
    return fd;
}

bool soft_name_is_ours(const char *text) {
    struct ucred who;
    int fd = soft_name_reach(text, &who);
    if (fd < 0)
        return false;
    soft_untrusted_fd_close_socket(fd);
    return soft_own_user(who.uid, who.pid);
}

/* ---- names beside shared ones ---------------------------------------------------------------------- */

void soft_name_besides(const char *shared, char text[SOFT_NAME_BYTES]) {
    snprintf(text, SOFT_NAME_BYTES, "%s/%u.", shared, (unsigned)geteuid());
}

int soft_name_bind_besides(struct soft_abstract_socket *name, const char *shared,
                           char text[SOFT_NAME_BYTES], void (*accepted)(int fd)) {
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return -EIO;
    soft_name_besides(shared, text);
    size_t used = strlen(text);
    snprintf(text + used, SOFT_NAME_BYTES - used, "%016llx", (unsigned long long)random);
    return soft_abstract_socket_bind(name, text, accepted);
}
