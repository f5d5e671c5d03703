/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wakeup.c - the wakeup's state word and its two ways to wake.
 *
 *   AWAKE --arm--> ARMED --signal--> SIGNALLED       disarm leads from any state back to AWAKE
 *
 * Why no wake is lost. The signaller writes its work, fences, reads the state; the owner writes ARMED,
 * fences, looks for work. With both fences sequentially consistent one of the two must see the
 * other: either the owner finds the work, or the signaller finds ARMED (and signals, if its exchange
 * wins) or SIGNALLED (another thread's system call is on its way and the owner looks for work after it).
 * A signaller that saw AWAKE or SIGNALLED saw it before the owner's next ARMED, so its work is visible to
 * the look that follows that ARMED. disarm fences as well, so the look after waking sees the work
 * of every signal that was merged into SIGNALLED.
 *
 * Stray events. The one signaller that won writes what it signals into a table before it makes the system
 * call, and the owner removes it when the event comes: the number of the signal, in the upper bits of the
 * event's argument, is the index. The entry is the argument with the bits that hold the
 * index replaced by the verb: slot, generation, verb and number are compared at once. An event whose entry was
 * removed before, or never written, was signalled by no thread. A signaller so late that a newer one overwrote its
 * entry is counted, and as many events are forgiven.
 *
 * A signaller may be preempted between its exchange and its system call; the signal is then late and
 * the owner wakes once for nothing. One arm lets at most one system call through, so what a kernel
 * queues is bounded by the number of times the owner slept and is emptied by drain.
 *
 * A channel whose events cannot be fetched would stay readable, and the thread that sleeps on it would spin. A
 * wakeup can do without it: at the first failure the channel leaves the set for good, and only the
 * eventfd signals.
 *
 * The end. Who closes it may have found the work before its signaller has read the state, or while that makes its
 * system call. So the state is AWAKE first, which lets no signaller win any more, and those that won are waited for.
 *
 * Signal safety: wakeup_signal() is atomics and one system call, and keeps errno.
 */
#include "fabric/wakeup.h"

#include "fabric/fast.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/epoll_source.h"
#include "common/uncancelled.h"

enum { AWAKE, ARMED, SIGNALLED };
#define STATE 3u  /* of the state word: one of these */
#define INSIDE 4u /* and so much for each signaller that won and has not made its system call yet */

#define DRAIN_MAX 64 /* events taken in one drain; the descriptor stays readable for the rest */

#define USER_EVENT ((enum rdma_cm_event_type)FABRIC_CM_USER)

#define RING_SLOT_SHIFT                                                                            \
    WAKEUP_ARG_BITS /* of the number of the signal its lowest bits are the slot */
#define RING_SLOT_MASK ((uint64_t)(WAKEUP_PENDING_MAX - 1) << RING_SLOT_SHIFT)
#define ARG_MASK ((UINT64_C(1) << WAKEUP_ARG_BITS) - 1)
#define SIGNAL_MARK                                                                                \
    UINT64_C(0x8000) /* in the number of each signal, so that none looks like no signal */
_Static_assert(WAKEUP_FLAG < WAKEUP_PENDING_MAX, "a verb fits where the slot was");

static _Atomic uint64_t *pending_of(struct wakeup *wakeup, uint64_t arg) {
    return &wakeup->pending[(arg & RING_SLOT_MASK) >> RING_SLOT_SHIFT];
}

/* Argument and verb in one word, as long as it is known which slot it is about. */
static uint64_t both(uint64_t arg, uint32_t verb) {
    return (arg & ~RING_SLOT_MASK) | (uint64_t)verb << RING_SLOT_SHIFT;
}

/* The winning signaller: returns what its event will carry. */
static uint64_t announce(struct wakeup *wakeup, uint32_t verb, uint64_t record) {
    uint64_t number = atomic_fetch_add_explicit(&wakeup->sequence, 1, memory_order_relaxed);
    uint64_t arg = (record & ARG_MASK) | ((number & 0x7fff) | SIGNAL_MARK) << WAKEUP_ARG_BITS;
    _Atomic uint64_t *slot = pending_of(wakeup, arg);
    /* Before it is lost: its event may be heard at once. */
    bool taken = atomic_load(slot) != 0;
    if (taken)
        atomic_fetch_add(&wakeup->overwritten, 1);
    if (atomic_exchange(slot, both(arg, verb)) != 0 && !taken)
        atomic_fetch_add(&wakeup->overwritten, 1);
    return arg;
}

/* True: it stood there, and does no more. */
static bool strike_out(struct wakeup *wakeup, uint64_t arg, uint32_t verb) {
    uint64_t expected = both(arg, verb);
    return expected != 0 && atomic_compare_exchange_strong(pending_of(wakeup, arg), &expected, 0);
}

static void heard(struct wakeup *wakeup, uint64_t arg, int status) {
    wakeup->last_arg = arg;
    wakeup->last_status = status;
    /* The event's own word may be anything. */
    if (status >= 0 && status <= (int)WAKEUP_FLAG && strike_out(wakeup, arg, (uint32_t)status))
        wakeup->heard += status != (int)WAKEUP_PROBE;
    else if (wakeup->excused < atomic_load(&wakeup->overwritten)) {
        wakeup->excused++;
        wakeup->heard++;
    } else {
        wakeup->stray++;
    }
}

static void cm_close(struct wakeup *wakeup) {
    if (wakeup->id)
        wakeup->fabric->destroy_id(wakeup->id);
    if (wakeup->channel)
        wakeup->fabric->destroy_event_channel(wakeup->channel);
    wakeup->id = NULL;
    wakeup->channel = NULL;
}

/* Takes one event: true, or false and *error, which is EAGAIN if there was none. */
static bool cm_take(struct wakeup *wakeup, int *error) {
    struct rdma_cm_event *event;
    errno = 0;
    if (wakeup->fabric->get_cm_event(wakeup->channel, &event) != 0) {
        *error = errno ? errno : EIO;
        return false;
    }
    /* Copied before the acknowledgement. Anything but USER on an unbound id is the stack's own
     * business and a wake like any other. */
    if (event->event == USER_EVENT)
        heard(wakeup, fabric_event_arg(event), event->status);
    wakeup->fabric->ack_cm_event(event);
    return true;
}

static int set_nonblocking(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/* An unbound id on a channel of its own, and one event through it. NULL, or why it cannot be. */
static const char *cm_open(struct wakeup *wakeup) {
    const struct fabric_ops *fabric = wakeup->fabric;
    if (!fabric->write_cm_event)
        return "eventfd (this fabric has no rdma_write_cm_event)";
    wakeup->channel = fabric->create_event_channel();
    if (!wakeup->channel)
        return "eventfd (no rdma_cm event channel can be opened)";
    if (set_nonblocking(wakeup->channel->fd) != 0)
        return "eventfd (the event channel cannot be made non-blocking)";
    if (fabric->create_id(wakeup->channel, &wakeup->id, wakeup, RDMA_PS_TCP) != 0) {
        wakeup->id = NULL;
        return "eventfd (no rdma_cm id can be made)";
    }
    if (fabric->write_cm_event(wakeup->id, USER_EVENT, (int)WAKEUP_PROBE,
                               announce(wakeup, WAKEUP_PROBE, 0)) != 0)
        return errno == ENOSYS ? "eventfd (librdmacm before 60 has no rdma_write_cm_event)"
                               : "eventfd (the kernel takes no user events: before Linux 6.18)";
    /* Delivery is not checked: an event that comes late is a wake too many, nothing else. */
    int error;
    (void)cm_take(wakeup, &error);
    return NULL;
}

int wakeup_open(struct wakeup *wakeup, const struct fabric_ops *fabric, bool use_cm) {
    memset(wakeup, 0, sizeof *wakeup);
    wakeup->fabric = fabric;
    wakeup->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wakeup->event_fd < 0)
        return -errno;
    if (!use_cm) {
        wakeup->why = "eventfd";
        return 0;
    }
    wakeup->why = cm_open(wakeup);
    if (wakeup->why)
        cm_close(wakeup);
    else
        wakeup->why = fabric_is_software(fabric)
                          ? "rdma_write_cm_event of the software device, eventfd beside it"
                          : "rdma_write_cm_event of the system's rdma_cm, eventfd beside it";
    return 0;
}

/* The owner's moves: signallers only count themselves meanwhile, or take ARMED away. */
static void move_to(struct wakeup *wakeup, uint32_t to) {
    uint32_t state = atomic_load_explicit(&wakeup->state, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&wakeup->state, &state, (state & ~STATE) | to,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

void wakeup_close(struct wakeup *wakeup) {
    move_to(wakeup, AWAKE);
    while (atomic_load_explicit(&wakeup->state, memory_order_acquire) >= INSIDE)
        sched_yield();
    cm_close(wakeup);
    if (wakeup->event_fd >= 0)
        close(wakeup->event_fd);
    wakeup->event_fd = -1;
}

int wakeup_add_to(struct wakeup *wakeup, int epoll_fd, void *data) {
    struct epoll_event interest = {.events = EPOLLIN, .data.ptr = data};
    wakeup->epoll_fd = epoll_fd;
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wakeup->event_fd, &interest) != 0)
        return -errno;
    if (wakeup->channel &&
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wakeup->channel->fd, &interest) != 0) {
        int error = errno;
        epoll_ctl(epoll_fd, EPOLL_CTL_DEL, wakeup->event_fd, NULL);
        return -error;
    }
    return 0;
}

void wakeup_arm(struct wakeup *wakeup) {
    move_to(wakeup, ARMED);
    atomic_thread_fence(
        memory_order_seq_cst); /* before the caller's last look; partner: wakeup_signal() */
}

void wakeup_disarm(struct wakeup *wakeup) {
    move_to(wakeup, AWAKE);
    atomic_thread_fence(
        memory_order_seq_cst); /* before the look that finds the work of merged signals; likewise */
}

/*
 * No wake is lost by that. A thread that signalled with an event that is not fetched any more did so while the owner
 * slept; the owner is awake now, and looks for work before it sleeps again. A thread that signals after that sees
 * `broken`, or is so late that its work was found.
 */
static void give_up_events(struct wakeup *wakeup) {
    atomic_store(&wakeup->broken, true);
    wakeup->failed++;
    /* EBADF: it left the set when it was closed. */
    (void)epoll_ctl(wakeup->epoll_fd, EPOLL_CTL_DEL, wakeup->channel->fd, NULL);
    wakeup->why = "eventfd (rdma_cm's user events cannot be fetched any more)";
}

int wakeup_drain(struct wakeup *wakeup, uint32_t events) {
    uint64_t count;
    /* One read empties an eventfd; EAGAIN means it was not this one. */
    while (read(wakeup->event_fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
    if (!wakeup->channel || atomic_load_explicit(&wakeup->broken, memory_order_relaxed))
        return 0;
    unsigned taken = 0;
    int error = 0;
    while (taken < DRAIN_MAX && cm_take(wakeup, &error))
        taken++;
    error = event_source_result(events, taken, error); /* an eventfd reports no errors */
    if (error != 0)
        give_up_events(wakeup);
    return error;
}

static void signal_event_fd(struct wakeup *wakeup) {
    uint64_t one = 1;
    atomic_fetch_add_explicit(&wakeup->fallbacks, 1, memory_order_relaxed);
    /* EAGAIN would mean a full counter: the descriptor is readable then. */
    while (write(wakeup->event_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static bool signal_user_event(struct wakeup *wakeup, uint32_t verb, uint64_t record) {
    if (!wakeup->id || atomic_load(&wakeup->broken))
        return false;
    uint64_t arg = announce(wakeup, verb, record);
    /* Counted before it is heard: no reader ever sees more heard than written. */
    atomic_fetch_add_explicit(&wakeup->writes, 1, memory_order_relaxed);
    if (wakeup->fabric->write_cm_event(wakeup->id, USER_EVENT, (int)verb, arg) == 0)
        return true;
    atomic_fetch_sub_explicit(&wakeup->writes, 1, memory_order_relaxed);
    strike_out(wakeup, arg, verb);
    return false;
}

void wakeup_signal(struct wakeup *wakeup, uint32_t verb, uint64_t record) {
    atomic_thread_fence(
        memory_order_seq_cst); /* after the caller's publication; partner: wakeup_arm() */
    uint32_t state = atomic_load_explicit(&wakeup->state, memory_order_relaxed);
    while ((state & STATE) == ARMED) {
        uint32_t won = state - ARMED + SIGNALLED + INSIDE;
        if (atomic_compare_exchange_weak_explicit(&wakeup->state, &state, won, memory_order_seq_cst,
                                                  memory_order_relaxed))
            break;
    }
    if ((state & STATE) != ARMED) { /* signalled by another thread, or the owner is awake */
        if ((state & STATE) == SIGNALLED)
            atomic_fetch_add_explicit(&wakeup->merged, 1, memory_order_relaxed);
        return;
    }
    UNCANCELLED;
    int saved_errno = errno;
    if (!signal_user_event(wakeup, verb, record))
        signal_event_fd(wakeup);
    atomic_fetch_sub_explicit(&wakeup->state, INSIDE, memory_order_release);
    errno = saved_errno;
}

void wakeup_publish(const struct wakeup *wakeup, struct stats_wakeup *out) {
    const uint64_t writes = atomic_load_explicit(&wakeup->writes, memory_order_relaxed);
    atomic_store_explicit(&out->user_events_written, writes, memory_order_relaxed);
    atomic_store_explicit(&out->user_events_received, wakeup->heard, memory_order_relaxed);
    atomic_store_explicit(&out->user_events_stray, wakeup->stray, memory_order_relaxed);
    atomic_store_explicit(&out->user_events_failed, wakeup->failed, memory_order_relaxed);
    atomic_store_explicit(&out->wakeups_merged,
                          atomic_load_explicit(&wakeup->merged, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&out->wakeups_by_eventfd,
                          atomic_load_explicit(&wakeup->fallbacks, memory_order_relaxed),
                          memory_order_relaxed);
}

const char *wakeup_describe(const struct wakeup *wakeup) {
    return wakeup->why;
}
