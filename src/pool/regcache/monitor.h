/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * monitor.h - the kernel's reports of memory that is unmapped: a userfaultfd and a thread that reads it.
 *
 * An unmapping thread sleeps in the kernel until its event is read, so the thread here never waits for
 * anything that may itself unmap. No page fault is asked for: where the process may have a userfaultfd
 * at all (user faults only), it needs no privilege.
 *
 * Owner: the registration cache. The thread calls on_event; regcache_monitor_read() only from there.
 */
#ifndef POOL_REGCACHE_MONITOR_H
#define POOL_REGCACHE_MONITOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct regcache_monitor {
    int fd, stop_fd, wait_fd;
    pthread_t thread;
    void (*on_event)(void *arg);
    void *arg;
};

/* False: it is not allowed or not there; why says so. */
bool regcache_monitor_open(struct regcache_monitor *watch, void (*on_event)(void *arg), void *arg,
                           char *why, size_t size);
void regcache_monitor_close(struct regcache_monitor *watch);
/* Watches whole pages. 0 or an errno: EOPNOTSUPP memory that cannot be watched (a file's, another userfaultfd's). */
int regcache_monitor_add(struct regcache_monitor *watch, uintptr_t start, uintptr_t end);
/* The next range that went. False: there is none. */
bool regcache_monitor_read(struct regcache_monitor *watch, uintptr_t *start, uintptr_t *end);

#endif
