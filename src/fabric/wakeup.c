/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wakeup.c - the doorbell's state word and its two bells.
 *
 *   AWAKE --arm--> ARMED --ring--> RUNG       disarm leads from any state back to AWAKE
 *
 * Why no wake is lost. The ringer writes its work, fences, reads the state; the owner writes ARMED,
 * fences, looks for work. With both fences sequentially consistent one of the two must see the
 * other: either the owner finds the work, or the ringer finds ARMED (and rings, if its exchange
 * wins) or RUNG (somebody else's system call is on its way and the owner looks for work after it).
 * A ringer that saw AWAKE or RUNG saw it before the owner's next ARMED, so its work is visible to
 * the look that follows that ARMED. disarm fences as well, so the look after waking sees the work
 * of every ring that was merged into RUNG.
 *
 * Stray events. The one ringer that won writes what it rings into a table before it makes the system
 * call, and the owner strikes it out when the event comes: the ring's number, in the upper bits of the
 * event's argument, says where to look. What stands there is the argument with the bits that name the
 * place replaced by the verb: slot, generation, verb and number are compared at once. An event that was
 * struck out before, or never written, was rung by nobody. A ringer so late that a newer one took its
 * place is counted, and as many events are forgiven.
 *
 * A ringer may be preempted between its exchange and its system call; the bell then rings late and
 * the owner wakes once for nothing. One arm lets at most one system call through, so what a kernel
 * queues is bounded by the number of times the owner slept and is emptied by drain.
 *
 * A channel whose events cannot be fetched would stay readable, and whoever sleeps on it would spin. A
 * doorbell can do without it: at the first failure the channel leaves the set for good, and only the
 * eventfd rings.
 *
 * Signal safety: ring is atomics and one system call, and keeps errno.
 */
#include "fabric/wakeup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/epoll_source.h"

enum { AWAKE, ARMED, RUNG };

#define DRAIN_MAX 64 /* events taken in one drain; the descriptor stays readable for the rest */

#define USER_EVENT ((enum rdma_cm_event_type)FABRIC_CM_USER)

#define PLACE_SHIFT DOORBELL_RECORD_BITS /* of the ring's number its lowest bits are the place */
#define PLACE_MASK ((uint64_t)(DOORBELL_ANNOUNCED - 1) << PLACE_SHIFT)
#define RECORD_MASK ((UINT64_C(1) << DOORBELL_RECORD_BITS) - 1)
#define RING_MARK UINT64_C(0x8000) /* in every ring's number, so that no ring looks like no ring */
_Static_assert(DOORBELL_WAKE < DOORBELL_ANNOUNCED, "a verb fits where the place was");

static _Atomic uint64_t *place_of(struct doorbell *bell, uint64_t arg) {
    return &bell->announced[(arg & PLACE_MASK) >> PLACE_SHIFT];
}

/* Argument and verb in one word, as long as it is known which place it is about. */
static uint64_t both(uint64_t arg, uint32_t verb) {
    return (arg & ~PLACE_MASK) | (uint64_t)verb << PLACE_SHIFT;
}

/* The winning ringer: returns what its event will carry. */
static uint64_t announce(struct doorbell *bell, uint32_t verb, uint64_t record) {
    uint64_t number = atomic_fetch_add_explicit(&bell->sequence, 1, memory_order_relaxed);
    uint64_t arg = (record & RECORD_MASK) | ((number & 0x7fff) | RING_MARK) << DOORBELL_RECORD_BITS;
    _Atomic uint64_t *place = place_of(bell, arg);
    /* Before it is lost: its event may be heard at once. */
    bool taken = atomic_load(place) != 0;
    if (taken)
        atomic_fetch_add(&bell->overwritten, 1);
    if (atomic_exchange(place, both(arg, verb)) != 0 && !taken)
        atomic_fetch_add(&bell->overwritten, 1);
    return arg;
}

/* True: it stood there, and does no more. */
static bool strike_out(struct doorbell *bell, uint64_t arg, uint32_t verb) {
    uint64_t expected = both(arg, verb);
    return expected != 0 && atomic_compare_exchange_strong(place_of(bell, arg), &expected, 0);
}

static void heard(struct doorbell *bell, uint64_t arg, int status) {
    bell->last_arg = arg;
    bell->last_status = status;
    /* The event's own word may be anything. */
    if (status >= 0 && status <= (int)DOORBELL_WAKE && strike_out(bell, arg, (uint32_t)status))
        bell->heard += status != (int)DOORBELL_PROBE;
    else if (bell->excused < atomic_load(&bell->overwritten)) {
        bell->excused++;
        bell->heard++;
    } else {
        bell->stray++;
    }
}

static void cm_close(struct doorbell *bell) {
    if (bell->id)
        bell->fabric->destroy_id(bell->id);
    if (bell->channel)
        bell->fabric->destroy_event_channel(bell->channel);
    bell->id = NULL;
    bell->channel = NULL;
}

/* Takes one event: true, or false and *error, which is EAGAIN if there was none. */
static bool cm_take(struct doorbell *bell, int *error) {
    struct rdma_cm_event *event;
    errno = 0;
    if (bell->fabric->get_cm_event(bell->channel, &event) != 0) {
        *error = errno ? errno : EIO;
        return false;
    }
    /* Copied before the acknowledgement. Anything but USER on an unbound id is the stack's own
     * business and a wake like any other. */
    if (event->event == USER_EVENT)
        heard(bell, fabric_event_arg(event), event->status);
    bell->fabric->ack_cm_event(event);
    return true;
}

static int set_nonblocking(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/* An unbound id on a channel of its own, and one event through it. NULL, or why it cannot be. */
static const char *cm_open(struct doorbell *bell) {
    const struct fabric_ops *fabric = bell->fabric;
    if (!fabric->write_cm_event)
        return "eventfd (this fabric has no rdma_write_cm_event)";
    bell->channel = fabric->create_event_channel();
    if (!bell->channel)
        return "eventfd (no rdma_cm event channel can be opened)";
    if (set_nonblocking(bell->channel->fd) != 0)
        return "eventfd (the event channel cannot be made non-blocking)";
    if (fabric->create_id(bell->channel, &bell->id, bell, RDMA_PS_TCP) != 0) {
        bell->id = NULL;
        return "eventfd (no rdma_cm id can be made)";
    }
    if (fabric->write_cm_event(bell->id, USER_EVENT, (int)DOORBELL_PROBE,
                               announce(bell, DOORBELL_PROBE, 0)) != 0)
        return errno == ENOSYS ? "eventfd (librdmacm before 60 has no rdma_write_cm_event)"
                               : "eventfd (the kernel takes no user events: before Linux 6.18)";
    /* Delivery is not checked: an event that comes late is a wake too many, nothing else. */
    int error;
    (void)cm_take(bell, &error);
    return NULL;
}

int doorbell_open(struct doorbell *bell, const struct fabric_ops *fabric, bool use_cm) {
    memset(bell, 0, sizeof *bell);
    bell->fabric = fabric;
    bell->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (bell->event_fd < 0)
        return -errno;
    if (!use_cm) {
        bell->why = "eventfd";
        return 0;
    }
    bell->why = cm_open(bell);
    if (bell->why)
        cm_close(bell);
    else
        bell->why = fabric->software
                        ? "rdma_write_cm_event of the software device, eventfd beside it"
                        : "rdma_write_cm_event of the system's rdma_cm, eventfd beside it";
    return 0;
}

void doorbell_close(struct doorbell *bell) {
    cm_close(bell);
    if (bell->event_fd >= 0)
        close(bell->event_fd);
    bell->event_fd = -1;
}

int doorbell_watch(struct doorbell *bell, int epoll_fd, void *data) {
    struct epoll_event interest = {.events = EPOLLIN, .data.ptr = data};
    bell->epoll_fd = epoll_fd;
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, bell->event_fd, &interest) != 0)
        return -errno;
    if (bell->channel && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, bell->channel->fd, &interest) != 0) {
        int error = errno;
        epoll_ctl(epoll_fd, EPOLL_CTL_DEL, bell->event_fd, NULL);
        return -error;
    }
    return 0;
}

void doorbell_arm(struct doorbell *bell) {
    atomic_store_explicit(&bell->state, ARMED, memory_order_relaxed);
    atomic_thread_fence(
        memory_order_seq_cst); /* before the caller's last look; partner: doorbell_ring() */
}

void doorbell_disarm(struct doorbell *bell) {
    atomic_store_explicit(&bell->state, AWAKE, memory_order_relaxed);
    atomic_thread_fence(
        memory_order_seq_cst); /* before the look that finds merged rings' work; likewise */
}

/*
 * Nothing is lost by that. Whoever rang with an event that is not heard any more did so while the owner
 * slept, which is awake now, and looks for work before it sleeps again; whoever rings after that sees
 * `broken`, or is so late that his work was found.
 */
static void give_up_events(struct doorbell *bell) {
    atomic_store(&bell->broken, true);
    bell->failed++;
    /* EBADF: it left the set when it was closed. */
    (void)epoll_ctl(bell->epoll_fd, EPOLL_CTL_DEL, bell->channel->fd, NULL);
    bell->why = "eventfd (rdma_cm's user events cannot be fetched any more)";
}

int doorbell_hear(struct doorbell *bell, uint32_t events) {
    uint64_t count;
    /* One read empties an eventfd; EAGAIN means it was not this bell. */
    while (read(bell->event_fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
    if (!bell->channel || atomic_load_explicit(&bell->broken, memory_order_relaxed))
        return 0;
    unsigned taken = 0;
    int error = 0;
    while (taken < DRAIN_MAX && cm_take(bell, &error))
        taken++;
    error = source_verdict(events, taken, error); /* an eventfd reports no errors */
    if (error != 0)
        give_up_events(bell);
    return error;
}

static void ring_event_fd(struct doorbell *bell) {
    uint64_t one = 1;
    atomic_fetch_add_explicit(&bell->fallbacks, 1, memory_order_relaxed);
    /* EAGAIN would mean a full counter: the descriptor is readable then. */
    while (write(bell->event_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static bool ring_user_event(struct doorbell *bell, uint32_t verb, uint64_t record) {
    if (!bell->id || atomic_load(&bell->broken))
        return false;
    uint64_t arg = announce(bell, verb, record);
    /* Counted before it is heard: nobody ever sees more heard than written. */
    atomic_fetch_add_explicit(&bell->writes, 1, memory_order_relaxed);
    if (bell->fabric->write_cm_event(bell->id, USER_EVENT, (int)verb, arg) == 0)
        return true;
    atomic_fetch_sub_explicit(&bell->writes, 1, memory_order_relaxed);
    strike_out(bell, arg, verb);
    return false;
}

void doorbell_ring(struct doorbell *bell, uint32_t verb, uint64_t record) {
    atomic_thread_fence(
        memory_order_seq_cst); /* after the caller's publication; partner: doorbell_arm() */
    uint32_t state = atomic_load_explicit(&bell->state, memory_order_relaxed);
    if (state == AWAKE)
        return;
    if (state == RUNG ||
        !atomic_compare_exchange_strong_explicit(&bell->state, &state, RUNG, memory_order_seq_cst,
                                                 memory_order_relaxed)) {
        if (state == RUNG) /* rung by somebody else; if not, the owner is awake again */
            atomic_fetch_add_explicit(&bell->merged, 1, memory_order_relaxed);
        return;
    }
    int saved_errno = errno;
    if (!ring_user_event(bell, verb, record))
        ring_event_fd(bell);
    errno = saved_errno;
}

void doorbell_show(const struct doorbell *bell, struct stats_bell *out) {
    const uint64_t writes = atomic_load_explicit(&bell->writes, memory_order_relaxed);
    atomic_store_explicit(&out->user_written, writes, memory_order_relaxed);
    atomic_store_explicit(&out->user_heard, bell->heard, memory_order_relaxed);
    atomic_store_explicit(&out->user_stray, bell->stray, memory_order_relaxed);
    atomic_store_explicit(&out->user_failed, bell->failed, memory_order_relaxed);
    atomic_store_explicit(&out->wakes_merged,
                          atomic_load_explicit(&bell->merged, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&out->wakes_by_eventfd,
                          atomic_load_explicit(&bell->fallbacks, memory_order_relaxed),
                          memory_order_relaxed);
}

const char *doorbell_describe(const struct doorbell *bell) {
    return bell->why;
}
