/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* monitor.c - userfaultfd without page faults. Owner: see monitor.h. */
#define _GNU_SOURCE
#include "pool/regcache/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/uncancelled.h"
#include "common/thread.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

/* Not poll(): that fails once RLIMIT_NOFILE is lowered below its descriptor, and no thread would read the events. */
static void *watch_main(void *arg) {
    struct regcache_monitor *watch = arg;
    struct epoll_event ready;
    for (;;) {
        int count = epoll_wait(watch->wait_fd, &ready, 1, -1);
        if (count < 0 && errno != EINTR)
            return NULL;
        if (count > 0 && ready.data.fd == watch->stop_fd)
            return NULL;
        if (count > 0)
            watch->on_event(watch->arg);
    }
}

static bool wait_for(struct regcache_monitor *watch, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(watch->wait_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/*
 * A child of fork() has a copy of the descriptor, and while any process has one the kernel waits for a reader
 * that the parent may have ended: so the child closes its copy first of all. A fork() waits while a
 * descriptor is open and not in the list.
 */
#define WATCHES_MAX 64
static _Atomic int watched_fds[WATCHES_MAX]; /* 0: none; else the descriptor and one */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t fork_lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void) {
    pthread_mutex_lock(&fork_lock);
}

static void in_parent(void) {
    pthread_mutex_unlock(&fork_lock);
}

static void in_child(void) {
    UNCANCELLED;
    for (int i = 0; i < WATCHES_MAX; i++) {
        int fd = atomic_exchange(&watched_fds[i], 0);
        if (fd > 0)
            close(fd - 1);
    }
    pthread_mutex_unlock(&fork_lock);
}

static void watch_fork(void) {
    pthread_atfork(before_fork, in_parent, in_child);
}

/* The lock is held. */
static bool enlist(int fd) {
    for (int i = 0; i < WATCHES_MAX; i++) {
        int none = 0;
        if (atomic_compare_exchange_strong(&watched_fds[i], &none, fd + 1))
            return true;
    }
    return false;
}

static void close_watched(int fd) {
    pthread_mutex_lock(&fork_lock);
    for (int i = 0; i < WATCHES_MAX; i++) {
        int known = fd + 1;
        if (atomic_compare_exchange_strong(&watched_fds[i], &known, 0))
            break;
    }
    close(fd);
    pthread_mutex_unlock(&fork_lock);
}

/* A userfaultfd that no child keeps, or an errno below 0. */
static int open_watched(void) {
    pthread_once(&fork_once, watch_fork);
    pthread_mutex_lock(&fork_lock);
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    int error = fd < 0 ? errno : 0;
    if (fd >= 0 && !enlist(fd)) {
        close(fd);
        error = EUSERS;
    }
    pthread_mutex_unlock(&fork_lock);
    return error ? -error : fd;
}

static void close_all(struct regcache_monitor *watch) {
    if (watch->fd >= 0)
        close_watched(watch->fd);
    if (watch->wait_fd >= 0)
        close(watch->wait_fd);
    if (watch->stop_fd >= 0)
        close(watch->stop_fd);
}

static bool refuse(struct regcache_monitor *watch, char *why, size_t size, const char *what,
                   int error) {
    snprintf(why, size, "off: %s: %s", what, strerror(error));
    close_all(watch);
    return false;
}

bool regcache_monitor_open(struct regcache_monitor *watch, void (*on_event)(void *arg), void *arg,
                           char *why, size_t size) {
    struct uffdio_api api = {.api = UFFD_API,
                             .features = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP |
                                         UFFD_FEATURE_EVENT_REMOVE |
                                         UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    *watch =
        (struct regcache_monitor){.stop_fd = -1, .wait_fd = -1, .on_event = on_event, .arg = arg};
    watch->fd = open_watched();
    if (watch->fd < 0)
        return refuse(watch, why, size,
                      watch->fd == -EUSERS ? "too many of them" : "userfaultfd is not allowed",
                      -watch->fd);
    if (ioctl(watch->fd, UFFDIO_API, &api) != 0)
        return refuse(watch, why, size, "userfaultfd reports no unmapping here", errno);
    watch->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    watch->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    if (watch->stop_fd < 0 || watch->wait_fd < 0 || !wait_for(watch, watch->fd) ||
        !wait_for(watch, watch->stop_fd))
        return refuse(watch, why, size, "no descriptor", errno);
    int error = thread_start(&watch->thread, "sluice-reg", watch_main, watch);
    if (error != 0)
        return refuse(watch, why, size, "no thread", error);
    snprintf(why, size, "the kernel reports unmapped memory (userfaultfd)");
    return true;
}

/* A thread that sleeps in munmap() returns when the descriptor closes. */
void regcache_monitor_close(struct regcache_monitor *watch) {
    uint64_t one = 1;
    while (write(watch->stop_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    pthread_join(watch->thread, NULL);
    close_all(watch);
}

int regcache_monitor_add(struct regcache_monitor *watch, uintptr_t start, uintptr_t end) {
    struct uffdio_register range = {.range = {.start = start, .len = end - start},
                                    .mode = UFFDIO_REGISTER_MODE_WP};
    if (ioctl(watch->fd, UFFDIO_REGISTER, &range) == 0)
        return 0;
    /* EBUSY: a userfaultfd of the application's; EINVAL: not mapped, or a kind that cannot be watched */
    return errno == ENOMEM ? ENOMEM : EOPNOTSUPP;
}

bool regcache_monitor_read(struct regcache_monitor *watch, uintptr_t *start, uintptr_t *end) {
    struct uffd_msg msg;
    while (read(watch->fd, &msg, sizeof msg) == (ssize_t)sizeof msg) {
        switch (msg.event) {
        case UFFD_EVENT_UNMAP:
        case UFFD_EVENT_REMOVE:
            *start = (uintptr_t)msg.arg.remove.start;
            *end = (uintptr_t)msg.arg.remove.end;
            return true;
        case UFFD_EVENT_REMAP:
            /*
             * The watch moved along and stays there: the thread that moved the memory runs on since the event was
             * read, and may have it watched for a registration of its own by now.
             */
            *start = (uintptr_t)msg.arg.remap.from;
            *end = *start + (uintptr_t)msg.arg.remap.len;
            return true;
        default: /* a page fault: nothing was ever protected */
            break;
        }
    }
    return false;
}
