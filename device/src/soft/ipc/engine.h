/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * engine.h - the software device's one helper thread. It shares the control path with callers, by control_lock.h.
 *
 * The engine thread sits in epoll without a timeout (except for timers) and so costs nothing while
 * pollers make the progress themselves. It owns the sockets between processes, the listening
 * sockets, peer-death notification and timers, and progresses queue pairs only when a peer rings.
 *
 * Callbacks run on the engine thread with the control lock held and must not block.
 *
 * The engine lives while there is a reference to it: an open context, an event channel or a cm id.
 */
#ifndef SOFT_IPC_ENGINE_H
#define SOFT_IPC_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

#include "soft/ipc/control_lock.h"

/* 0 or -1 with errno (EMFILE, ENOMEM, EPERM in a forked child). Not with the control lock held. */
int soft_engine_get(void);
void soft_engine_put(void);

/*
 * Changes with every fork. An object stores the value at its creation; if it differs from the
 * present one the object was inherited through fork() and every call on it fails with EPERM.
 */
extern uint32_t soft_generation_now;
#define soft_stale(obj) ((obj)->generation != soft_generation_now)
void soft_engine_wake(void); /* any thread, signal-safe */
bool soft_on_engine_thread(void);

/* A descriptor watched by the engine; embed it. fn runs with the control lock held. */
struct soft_watch {
    int fd;
    unsigned slot; /* engine's */
    void (*fn)(struct soft_watch *watch, uint32_t epoll_events);
};
int soft_watch_add(struct soft_watch *watch, uint32_t epoll_events); /* 0 or -errno */
int soft_watch_modify(struct soft_watch *watch, uint32_t epoll_events);
/* Nothing is reported until soft_watch_modify(), and what comes costs the kernel no look at the engine's set. Any thread. */
void soft_watch_rest(struct soft_watch *watch);
/*
 * Holds a descriptor that is not watched yet: a socket that neither listens nor is connected reports its end all the
 * time. A forked child closes it like those that are watched; soft_watch_modify() begins to watch it. 0 or -errno.
 */
int soft_watch_hold(struct soft_watch *watch);
/*
 * With the control lock held. After it fn is not called again, even if the descriptor was already
 * reported in the batch being handled. Does not close the descriptor.
 */
void soft_watch_remove(struct soft_watch *watch);

/* A timer; embed it, zero it first. Control lock held for all three; fn runs with it held. */
struct soft_timer {
    uint64_t due_ns; /* 0: not armed */
    struct cds_list_head link;
    void (*fn)(struct soft_timer *timer);
};
void soft_timer_arm(struct soft_timer *timer, uint64_t due_ns, void (*fn)(struct soft_timer *));
void soft_timer_cancel(struct soft_timer *timer);
uint64_t soft_now_ns(void); /* CLOCK_MONOTONIC */

#endif
