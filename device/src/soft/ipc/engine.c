/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * engine.c - the helper thread: epoll, watches, timers, start, stop and fork.
 *
 * Two locks: `life` serialises start and stop (held across thread creation and join, never taken
 * by the engine thread), and the control lock (control_lock.h). After a fork the child's copy is
 * dead: every object remembers the generation it was made in, the child's generation is a new one,
 * and the first use in the child starts a fresh engine.
 */
#define _GNU_SOURCE
#include "soft/ipc/engine.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/deadline.h"
#include "common/thread.h"
#include "common/uncancelled.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/own_user.h"
#include "soft/ipc/untrusted_fd.h"
#include "soft/ipc/upcalls.h"

#define BATCH 16             /* a turn holds the control lock, for which others wait */
#define NAP_NS 20000000ull   /* longest sleep while timers come and go */
#define BUSY_NS 200000000ull /* behind the last one */

static struct {
    pthread_mutex_t life;
    unsigned refs;
    bool running, stopping;
    pthread_t thread;
    int epoll_fd, wake_fd;
    struct cds_list_head timers; /* sorted by due_ns */
    uint64_t asleep_until_ns;    /* when the thread wakes by itself; 0: never */
    uint64_t armed_lately_ns;
    struct epoll_event batch[BATCH];
    int batch_next, batch_count;
    uint32_t removals;                     /* watches removed so far */
    struct soft_watch *watches[65536 / 4]; /* open descriptors, for the forked child to close */
    unsigned watch_count;
} engine = {.life = PTHREAD_MUTEX_INITIALIZER,
            .timers = CDS_LIST_HEAD_INIT(engine.timers),
            .epoll_fd = -1,
            .wake_fd = -1};

uint32_t soft_generation_now = 1;
static _Thread_local bool on_engine;

bool soft_on_engine_thread(void) {
    return on_engine;
}

uint64_t soft_now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void soft_engine_wake(void) {
    uint64_t one = 1;
    if (engine.wake_fd >= 0)
        (void)!uncancelled(write(engine.wake_fd, &one, sizeof one));
}

/* ---- watches -------------------------------------------------------------------------------- */

static int watch_control(int how, struct soft_watch *watch, uint32_t events) {
    struct epoll_event ev = {.events = events, .data.ptr = watch};
    return epoll_ctl(engine.epoll_fd, how, watch->fd, &ev) != 0 ? -errno : 0;
}

int soft_watch_hold(struct soft_watch *watch) {
    if (engine.watch_count == sizeof engine.watches / sizeof engine.watches[0])
        return -EMFILE;
    watch->slot = engine.watch_count;
    engine.watches[engine.watch_count++] = watch;
    return 0;
}

int soft_watch_add(struct soft_watch *watch, uint32_t events) {
    int rc = soft_watch_hold(watch);
    if (rc != 0)
        return rc;
    rc = watch_control(EPOLL_CTL_ADD, watch, events);
    if (rc != 0)
        engine.watch_count--;
    return rc;
}

int soft_watch_modify(struct soft_watch *watch, uint32_t events) {
    int rc = watch_control(EPOLL_CTL_MOD, watch, events);
    return rc == -ENOENT ? watch_control(EPOLL_CTL_ADD, watch, events) : rc; /* held */
}

void soft_watch_rest(struct soft_watch *watch) {
    (void)watch_control(EPOLL_CTL_DEL, watch, 0);
}

void soft_watch_remove(struct soft_watch *watch) {
    soft_assert_locked();
    engine.removals++;
    epoll_ctl(engine.epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    if (watch->slot < engine.watch_count && engine.watches[watch->slot] == watch) {
        engine.watches[watch->slot] = engine.watches[--engine.watch_count];
        engine.watches[watch->slot]->slot = watch->slot;
    }
    for (int i = engine.batch_next; i < engine.batch_count; i++)
        if (engine.batch[i].data.ptr == watch)
            engine.batch[i].data.ptr = NULL;
}

/* ---- timers --------------------------------------------------------------------------------- */

/* The one that is due first; NULL: none is armed. */
static struct soft_timer *timer_first(void) {
    if (cds_list_empty(&engine.timers))
        return NULL;
    return cds_list_first_entry(&engine.timers, struct soft_timer, link);
}

void soft_timer_cancel(struct soft_timer *timer) {
    if (timer->due_ns == 0)
        return;
    cds_list_del(&timer->link);
    timer->due_ns = 0;
}

void soft_timer_arm(struct soft_timer *timer, uint64_t due_ns, void (*fn)(struct soft_timer *)) {
    soft_timer_cancel(timer);
    /* From the back: nearly all timers are armed in the order in which they are due. */
    struct soft_timer *before;
    cds_list_for_each_entry_reverse(before, &engine.timers, link) {
        if (before->due_ns <= due_ns)
            break;
    }
    timer->fn = fn;
    timer->due_ns = due_ns ? due_ns : 1;
    cds_list_add(&timer->link, &before->link); /* nothing before it: the list's head */
    if (on_engine)
        return;
    engine.armed_lately_ns = soft_now_ns();
    if (engine.asleep_until_ns == 0 || timer->due_ns < engine.asleep_until_ns)
        soft_engine_wake();
}

static void run_timers(void) {
    uint64_t now = soft_now_ns();
    struct soft_timer *timer;
    while ((timer = timer_first()) && timer->due_ns <= now) {
        soft_timer_cancel(timer);
        timer->fn(timer);
    }
}

/*
 * A thread that arms a timer must wake the engine thread if that sleeps for longer. While timers come and go all the
 * time (connections are set up) it therefore never sleeps for long.
 */
static int next_timeout_ms(void) {
    const struct soft_timer *first = timer_first();
    uint64_t now = soft_now_ns(), due = first ? first->due_ns : 0;
    if (engine.armed_lately_ns && now - engine.armed_lately_ns > BUSY_NS)
        engine.armed_lately_ns = 0;
    if (engine.armed_lately_ns && (due == 0 || due > now + NAP_NS))
        due = now + NAP_NS;
    engine.asleep_until_ns = due;
    return deadline_timeout_ms(due == 0 ? DEADLINE_NEVER : due, now);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void *engine_main(void *unused) {
    (void)unused;
    on_engine = true;
    soft_lock();
    while (!engine.stopping) {
        int timeout = next_timeout_ms();
        uint32_t removals = engine.removals;
        soft_unlock();
        int n = epoll_wait(engine.epoll_fd, engine.batch, BATCH, timeout);
        soft_lock();
        /* A watch removed between the two may be gone with its memory. Events of the others are
         * level-triggered and reported again. */
        engine.batch_count = n > 0 && removals == engine.removals ? n : 0;
        for (engine.batch_next = 0; engine.batch_next < engine.batch_count;) {
            struct epoll_event *ev = &engine.batch[engine.batch_next++];
            struct soft_watch *watch = ev->data.ptr;
            if (watch)
                watch->fn(watch, ev->events);
        }
        engine.batch_count = 0;
        soft_upcalls.turn();
        run_timers();
    }
    soft_unlock();
    return NULL;
}

static void on_wake(struct soft_watch *watch, uint32_t events) {
    (void)events;
    uint64_t n;
    (void)!read(watch->fd, &n, sizeof n);
}

static struct soft_watch wake_watch = {.fd = -1, .fn = on_wake};

/* ---- fork ------------------------------------------------------------------------------------ */

static void fork_prepare(void) {
    soft_upcalls.fork_outside(true);
    pthread_mutex_lock(&engine.life);
    soft_lock();
    soft_untrusted_fd_fork(true);
    soft_upcalls.fork_inside(true);
}

static void fork_parent(void) {
    soft_upcalls.fork_inside(false);
    soft_untrusted_fd_fork(false);
    soft_unlock();
    pthread_mutex_unlock(&engine.life);
    soft_upcalls.fork_outside(false);
}

/*
 * The child keeps the parent's mappings but not its thread. Its copies of the sockets are closed so
 * that they do not keep the parent's connections looking alive; the objects stay as they are and
 * are refused by their generation.
 */
static void fork_child(void) {
    UNCANCELLED;
    if (engine.running) {
        for (unsigned i = 0; i < engine.watch_count; i++)
            if (engine.watches[i]->fd >= 0)
                close(engine.watches[i]->fd);
        close(engine.epoll_fd);
    }
    engine.watch_count = 0;
    CDS_INIT_LIST_HEAD(&engine.timers);
    engine.running = engine.stopping = false;
    engine.refs = 0;
    engine.epoll_fd = engine.wake_fd = -1;
    wake_watch.fd = -1;
    soft_generation_now++;
    soft_upcalls.forked();
    soft_untrusted_fd_forked();
    soft_lock_forked();
    soft_unlock(); /* the forking thread locked them and is the one that lives on */
    pthread_mutex_unlock(&engine.life);
    soft_upcalls.fork_outside(false);
}

/* Once in a process that uses the engine. */
static void prepare(void) {
    soft_lock_start();
    soft_upcalls.once();
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* ---- start and stop -------------------------------------------------------------------------- */

static int engine_start(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, prepare);
    engine.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (engine.epoll_fd < 0)
        return -errno;
    int rc;
    engine.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (engine.wake_fd < 0) {
        rc = -errno;
        goto close_epoll;
    }
    wake_watch.fd = engine.wake_fd;
    rc = soft_watch_add(&wake_watch, EPOLLIN);
    if (rc != 0)
        goto close_wake;
    rc = soft_upcalls.peers_begin();
    if (rc != 0)
        goto remove_wake;
    engine.stopping = false;
    rc = -thread_start(&engine.thread, "sluice-soft", engine_main, NULL);
    if (rc != 0)
        goto stop_peers;
    engine.running = true;
    soft_upcalls.started();
    return 0;
stop_peers:
    soft_upcalls.peers_end();
remove_wake:
    soft_watch_remove(&wake_watch);
close_wake:
    close(engine.wake_fd);
    engine.wake_fd = -1;
close_epoll:
    close(engine.epoll_fd);
    engine.epoll_fd = -1;
    return rc;
}

int soft_engine_get(void) {
    pthread_mutex_lock(&engine.life);
    int rc = 0;
    if (engine.refs == 0) {
        soft_own_user_start();
        soft_upcalls.starts();
        soft_lock();
        rc = engine_start();
        soft_unlock();
    }
    if (rc == 0)
        engine.refs++;
    pthread_mutex_unlock(&engine.life);
    if (rc != 0) {
        errno = -rc;
        return -1;
    }
    return 0;
}

void soft_engine_put(void) {
    pthread_mutex_lock(&engine.life);
    if (engine.refs > 0 && --engine.refs == 0 && engine.running) {
        soft_lock();
        engine.stopping = true;
        soft_unlock();
        soft_engine_wake();
        pthread_join(engine.thread, NULL);
        engine.running = false;
        soft_upcalls.thread_ended();
        soft_lock();
        soft_upcalls.stops();
        soft_upcalls.peers_end();
        soft_upcalls.stopped();
        soft_watch_remove(&wake_watch);
        close(engine.wake_fd);
        close(engine.epoll_fd);
        engine.wake_fd = engine.epoll_fd = -1;
        CDS_INIT_LIST_HEAD(&engine.timers);
        soft_unlock();
    }
    pthread_mutex_unlock(&engine.life);
}
