/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * monitor.h - the kernel's word on memory that goes away: a userfaultfd and a thread that waits at it.
 *
 * An unmapping thread sleeps in the kernel until its event is read, so the thread here never waits for
 * anything that may itself unmap. No page fault is asked for: where the process may have a userfaultfd
 * at all (user faults only), it needs no privilege.
 *
 * Owner: the registration cache. The thread calls on_event; regwatch_read() only from there.
 */
#ifndef POOL_REGCACHE_MONITOR_H
#define POOL_REGCACHE_MONITOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct regwatch {
    int fd, stop_fd, wait_fd;
    pthread_t thread;
    void (*on_event)(void *arg);
    void *arg;
};

/* False: it is not allowed or not there; why says so. */
bool regwatch_open(struct regwatch *watch, void (*on_event)(void *arg), void *arg, char *why,
                   size_t size);
void regwatch_close(struct regwatch *watch);
/* Watches whole pages. 0 or an errno: EOPNOTSUPP memory that cannot be (a file's, somebody else's). */
int regwatch_add(struct regwatch *watch, uintptr_t start, uintptr_t end);
/* The next range that went. False: there is none. */
bool regwatch_read(struct regwatch *watch, uintptr_t *start, uintptr_t *end);

#endif
