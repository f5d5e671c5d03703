/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_set.c - see cq_set.h.
 *
 * A queue pair leaves the set before it leaves the list of the QPs that the CQ polls, and leaving the list takes the
 * poll_lock: so a queue pair that a poller finds in the set lives while the poller holds that lock. It takes the control
 * lock, too, which the engine has.
 *
 * A socket that cannot be read yet, for want of a receive, would be reported again and again: until it is read its set
 * tells of its end alone. Where the engine finds in a set nothing that it can read, it pauses until the next tick.
 */
#include "soft/iwarp/cq_set.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/uncancelled.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/attention.h"
#include "soft/object/cq.h"
#include "soft/object/cq_pollset.h"
#include "soft/object/qp.h"
#include "soft/object/upcalls.h"

#define TICK_NS 10000000u
#define COUNTED_AGAIN 65536u /* a CQ's count of polls starts again at each look at its set */
#define READABLE (EPOLLIN | EPOLLRDHUP)

struct soft_tcp_set {
    struct soft_watch watch; /* the engine's, of the set */
    struct soft_cq *cq;
    struct cds_list_head link;  /* control lock */
    soft_spin lock;             /* for writing what follows; behind all others */
    _Atomic unsigned count;     /* sockets */
    _Atomic unsigned elsewhere; /* of these, in another CQ's set, too */
    _Atomic bool watched;       /* the engine reads the set */
    _Atomic bool paused;        /* but not before the next tick */
    unsigned seen_polls;        /* the CQ's count of polls when it was looked at last */
};

static CDS_LIST_HEAD(sets); /* control lock */
static _Atomic bool wanted; /* a tick, as some crowd is polled */
static struct soft_timer timer;

static struct soft_tcp_set *set_of(const struct soft_cq *cq) {
    return atomic_load_explicit(&cq->tcp_set, memory_order_acquire);
}

/* Any thread. */
static void want_tick(void) {
    if (!atomic_load_explicit(&wanted, memory_order_relaxed) && !atomic_exchange(&wanted, true))
        soft_engine_wake();
}

/* ---- who reads it ---------------------------------------------------------------------------------------- */

static void watch(struct soft_tcp_set *set, bool watched, bool paused) {
    spin_assert_held(&set->lock);
    bool reads = watched && !paused, read = ld(set->watched) && !ld(set->paused);
    if (reads && !read && soft_watch_modify(&set->watch, EPOLLIN) != 0) { /* no memory */
        paused = true;
        want_tick();
    } else if (read && !reads) {
        soft_watch_rest(&set->watch);
    }
    atomic_store(&set->watched, watched); /* partner: soft_tcp_set_is_watched() */
    st(set->paused, paused);
}

unsigned soft_tcp_polls(const struct soft_cq *cq) {
    return ld(cq->idle_polls) + ld(cq->tcp_looks) * COUNTED_AGAIN;
}

/* True: a thread polled the CQ since the last call. */
static bool is_polled(struct soft_tcp_set *set) {
    spin_assert_held(&set->lock);
    unsigned polls = soft_tcp_polls(set->cq), before = set->seen_polls;
    set->seen_polls = polls;
    return polls != before;
}

/* At once. */
static void change(struct soft_tcp_set *set, bool watched) {
    spin_lock(&set->lock);
    watch(set, watched, false);
    spin_unlock(&set->lock);
}

void soft_tcp_set_arm(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    struct soft_tcp_set *set = set_of(cq);
    if (!set)
        return;
    st(cq->tcp_arms, ld(cq->tcp_arms) + 1);
    if (ld(cq->tcp_crowd) && !ld(cq->asleep) && !ld(set->watched))
        change(set, true);
}

void soft_tcp_set_sleep(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    struct soft_tcp_set *set = set_of(cq);
    atomic_store(&cq->asleep, true); /* partner: soft_tcp_set_is_watched() */
    if (ld(set->watched))
        change(set, false);
}

void soft_tcp_set_wake(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    st(cq->asleep, false);
    if (ld(cq->tcp_crowd))
        want_tick();
}

static bool is_watched(const struct soft_cq *cq) {
    const struct soft_tcp_set *set = set_of(cq);
    return set && (atomic_load(&set->watched) || atomic_load(&cq->asleep));
}

bool soft_tcp_set_is_watched(const struct soft_qp *qp) {
    return is_watched(soft_cq_of(qp->ibv.recv_cq)) || is_watched(soft_cq_of(qp->ibv.send_cq));
}

/* ---- the engine ------------------------------------------------------------------------------------------ */

/* False: what lies in the socket cannot be read now. */
static bool serve(struct soft_qp *qp, uint32_t events) {
    bool alone = qp->ibv.send_cq == qp->ibv.recv_cq;
    return soft_object_upcalls.tcp_event(qp, events, alone);
}

static void on_set(struct soft_watch *watched, uint32_t unused) {
    (void)unused;
    struct soft_tcp_set *set = caa_container_of(watched, struct soft_tcp_set, watch);
    struct epoll_event ready[SOFT_TCP_LOOK];
    spin_lock(&set->lock);
    bool polled = is_polled(set) && !ld(set->cq->armed);
    if (polled || ld(set->cq->asleep))
        watch(set, false, false);
    bool reads = ld(set->watched);
    spin_unlock(&set->lock);
    if (polled)
        want_tick();
    if (!reads)
        return;
    bool any = false;
    int n = epoll_wait(set->watch.fd, ready, SOFT_TCP_LOOK, 0);
    for (int i = 0; i < n; i++)
        any |= serve(ready[i].data.ptr, ready[i].events);
    if (any || n <= 0)
        return;
    spin_lock(&set->lock);
    watch(set, ld(set->watched), true);
    spin_unlock(&set->lock);
    want_tick();
}

/* poll_lock. No thread polls those that wait to be served again: the ticks of each serve them. */
static void tick_busy(struct soft_cq *cq) {
    spin_assert_held(&cq->poll_lock);
    soft_cq_pollset_take_warm(cq);
    for (unsigned i = 0; i < cq->hot_count; i++)
        if (ld(cq->polled[i].qp->has_socket))
            st(cq->polled[i].qp->need_tick, true);
    soft_qp_timer_want();
}

/* True: again in some milliseconds. */
static bool tick(struct soft_tcp_set *set) {
    struct soft_cq *cq = set->cq;
    if (!ld(cq->tcp_crowd) || ld(cq->asleep) || (ld(set->watched) && !ld(set->paused)))
        return false;
    if (!spin_try(&cq->poll_lock))
        return true; /* a thread polls */
    spin_lock(&set->lock);
    bool polled = is_polled(set) && !ld(cq->armed);
    watch(set, !polled && !ld(cq->asleep), false);
    spin_unlock(&set->lock);
    if (!polled)
        tick_busy(cq);
    spin_unlock(&cq->poll_lock);
    return polled;
}

static void on_tick(struct soft_timer *t) {
    struct soft_tcp_set *set;
    bool again = false;
    atomic_store(&wanted, false);
    cds_list_for_each_entry(set, &sets, link)
        again |= tick(set);
    if (again)
        atomic_store(&wanted, true);
    if (atomic_load(&wanted))
        soft_timer_arm(t, soft_now_ns() + TICK_NS, on_tick);
}

void soft_tcp_sets_if_wanted(void) {
    if (atomic_load_explicit(&wanted, memory_order_relaxed) && timer.due_ns == 0)
        soft_timer_arm(&timer, soft_now_ns() + TICK_NS, on_tick);
}

void soft_tcp_sets_stop(void) {
    soft_assert_locked();
    soft_timer_cancel(&timer);
    atomic_store(&wanted, false);
}

void soft_tcp_sets_forked(void) {
    CDS_INIT_LIST_HEAD(&sets);
    timer = (struct soft_timer){0};
    atomic_store(&wanted, false);
}

/* ---- what is in it --------------------------------------------------------------------------------------- */

/* Control lock. */
static int make(struct soft_cq *cq) {
    soft_assert_locked();
    struct soft_tcp_set *set = calloc(1, sizeof *set);
    int fd = set ? epoll_create1(EPOLL_CLOEXEC) : -1, error = errno;
    if (fd >= 0) {
        set->cq = cq;
        set->watch = (struct soft_watch){.fd = fd, .fn = on_set};
        error = -soft_watch_hold(&set->watch);
        if (error == 0) {
            cds_list_add_tail(&set->link, &sets);
            atomic_store_explicit(&cq->tcp_set, set, memory_order_release);
            return 0;
        }
        close(fd);
    }
    free(set);
    return error;
}

int soft_tcp_set_add(struct soft_cq *cq, int fd, struct soft_qp *qp, bool elsewhere) {
    soft_assert_locked();
    struct epoll_event event = {.events = READABLE, .data.ptr = qp};
    int error = ld(cq->tcp_set) ? 0 : make(cq);
    struct soft_tcp_set *set = set_of(cq);
    if (error != 0)
        return error;
    if (epoll_ctl(set->watch.fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return errno;
    st(cq->sockets_hot, true);
    spin_lock(&set->lock);
    st(set->count, ld(set->count) + 1);
    st(set->elsewhere, ld(set->elsewhere) + elsewhere);
    bool begins = ld(set->count) > SOFT_TCP_DIRECT && !ld(cq->tcp_crowd);
    if (begins)
        st(cq->tcp_crowd, true);
    spin_unlock(&set->lock);
    if (begins)
        want_tick();
    return 0;
}

void soft_tcp_set_remove(struct soft_cq *cq, int fd, bool elsewhere) {
    struct soft_tcp_set *set = set_of(cq);
    if (!set || epoll_ctl(set->watch.fd, EPOLL_CTL_DEL, fd, NULL) != 0)
        return;
    spin_lock(&set->lock);
    st(set->count, ld(set->count) - 1);
    st(set->elsewhere, ld(set->elsewhere) - elsewhere);
    if (ld(set->count) == 0) /* those of a crowd that shrinks stay one */
        st(cq->tcp_crowd, false);
    spin_unlock(&set->lock);
}

void soft_tcp_set_listen(struct soft_cq *cq, int fd, struct soft_qp *qp, bool reads) {
    const struct soft_tcp_set *set = set_of(cq);
    struct epoll_event event = {.events = reads ? READABLE : 0, .data.ptr = qp};
    if (set)
        (void)epoll_ctl(set->watch.fd, EPOLL_CTL_MOD, fd, &event);
}

unsigned soft_tcp_set_wait(struct soft_cq *cq, struct epoll_event ready[SOFT_TCP_LOOK]) {
    spin_assert_held(&cq->poll_lock);
    int n = uncancelled(epoll_wait(set_of(cq)->watch.fd, ready, SOFT_TCP_LOOK, 0));
    return n > 0 ? (unsigned)n : 0;
}

unsigned soft_tcp_set_count(const struct soft_cq *cq, int *fd) {
    const struct soft_tcp_set *set = set_of(cq);
    *fd = set ? set->watch.fd : -1;
    return set ? ld(set->count) : 0;
}

bool soft_tcp_set_is_whole(const struct soft_cq *cq) {
    return ld(set_of(cq)->elsewhere) == 0;
}

void soft_tcp_set_free(struct soft_cq *cq) {
    struct soft_tcp_set *set = set_of(cq);
    if (!set)
        return;
    soft_lock();
    soft_watch_remove(&set->watch);
    cds_list_del(&set->link);
    close(set->watch.fd);
    soft_unlock();
    free(set);
}
