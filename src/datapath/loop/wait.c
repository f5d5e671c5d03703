/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wait.c - what a loop does when a turn found nothing: spin, sleep, and let another epoll set of the
 * application sleep on its descriptor.
 *
 * Spinning is for messages: a loop that was woken for another reason, to open or close a session, sleeps again
 * at once, because the CM thread it works with may need the CPU. A loop that shall not spin looks for a few microseconds
 * before it sleeps, where its last sleep was too short to be worth more.
 *
 * A sleeping loop misses no event: it arms the CQ and the wakeup, runs one more turn, and sleeps only if that
 * turn found nothing either. The CQ's arming is one shot and stays until its event came, so a loop that
 * alternates between spinning and sleeping arms it once; where the device is told who sleeps, until the thread is awake.
 *
 * The descriptor an application gets is the loop's own epoll set. It stays readable until the events that made
 * it so are fetched; so before arming, the loop fetches what is left of earlier events. A timerfd is
 * in the set too, because the application's epoll knows nothing of the loop's deadlines.
 *
 * Owner: the loop's thread.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/deadline.h"
#include "datapath/loop/cancel.h"
#include "datapath/loop/loop.h"
#include "datapath/loop/ownership.h"
#include "datapath/loop/upward.h"
#include "core/context.h"
#include "fabric/fast.h"

#define SPIN_LOOKS 63u      /* empty turns between two looks at the clock, less one */
#define SPIN_PUBLISH 1023u  /* between two updates of the statistics page, less one */
#define RETRY_NS 1000000ull /* while something waits for memory or for another thread */
#define YIELD_AFTER 64u     /* empty turns before a yield, if no other thread wants the CPU */
#define YIELD_RAN_NS 1000u  /* a yield that took longer let another thread run */
#define LOOK_NS 6000u       /* about what it costs to fall asleep and to be woken */
#define LOOK_TURNS 256u     /* of these at most, where the clock stands still */
#define REARM_TURNS 64      /* turns in a row that may find something while arming */

void loop_set_idle(struct sluice_loop *l, sluice_idle idle) {
    if (idle == SLUICE_IDLE_DEFAULT)
        idle = (sluice_idle)l->node->options.idle;
    atomic_store_explicit(&l->idle, (uint8_t)idle, memory_order_relaxed);
    atomic_store_explicit(&l->stats->idle, (uint64_t)idle, memory_order_relaxed);
    wakeup_signal_flag(&l->mailbox.wakeup);
}

/* ---- sleeping -------------------------------------------------------------------------------- */

int loop_drain_completions(struct sluice_loop *l) {
    struct ibv_cq *cq;
    void *context;
    const struct fabric_ops *fabric = l->node->fabric;
    /* One arming brings one event: asking for a second would cost a system call and find nothing. */
    if (fabric->get_cq_event(l->channel, &cq, &context) != 0)
        return errno;
    fabric->ack_cq_events(l->cq, 1);
    l->cq_armed = false;
    return 0;
}

/* The channel failed: a pause, and the end of the loop's sessions when that lasts (base/epoll_source.h). */
static void channel_failed(struct sluice_loop *l, int error) {
    l->totals.fetch_failed++;
    l->totals_moved = true;
    l->cq_armed = false; /* its event may be lost */
    switch (event_source_pause(&l->source, loop_clock(l))) {
    case EVENT_SOURCE_SAME:
        break;
    case EVENT_SOURCE_FIRST:
        log_write(&l->node->log, l->lost ? SLUICE_LOG_DEBUG : SLUICE_LOG_WARNING,
                  "completion events cannot be fetched: errno %d; tried again", error);
        break;
    case EVENT_SOURCE_LASTS:
        for (struct session *s = l->sessions; s && !l->lost; s = s->next)
            if (session_connection(s)->qp)
                session_close(l, s, SLUICE_REASON_DEVICE_ERROR, (uint32_t)error,
                              "completion events cannot be fetched");
        break;
    }
}

static void drain_completions(struct sluice_loop *l, uint32_t events) {
    int error = loop_drain_completions(l);
    error = event_source_result(events, error == 0, error);
    if (error != 0)
        channel_failed(l, error);
    else
        event_source_ok(&l->source);
}

static void drain_wakeup(struct sluice_loop *l, uint32_t events) {
    int error = wakeup_drain(&l->mailbox.wakeup, events);
    if (error != 0)
        log_write(&l->node->log, SLUICE_LOG_WARNING, WAKEUP_FAILED_TEXT, strerror(error));
}

/* Waits up to timeout_ms and fetches what made the set readable. */
static void wait_and_drain(struct sluice_loop *l, int timeout_ms) {
    struct epoll_event events[6];
    int n = timeout_ms == 0 ? epoll_wait(l->epoll_fd, events, 6, 0)
                            : loop_cancel_wait(l, events, 6, timeout_ms);
    for (int i = 0; i < n; i++) {
        uint64_t expirations;
        if (events[i].data.ptr == l->channel)
            drain_completions(l, events[i].events);
        else if (events[i].data.ptr == &l->mailbox)
            drain_wakeup(l, events[i].events);
        else if (events[i].data.ptr == l->sleep_fd)
            continue; /* the next turn takes what came */
        else if (read(l->timer_fd, &expirations, sizeof expirations) < 0)
            continue; /* EAGAIN: set anew meanwhile */
    }
}

static void arm(struct sluice_loop *l) {
    int error = l->source.out ? event_source_resume(&l->source, loop_clock(l)) : 0;
    if (unlikely(error != 0))
        channel_failed(l, error);
    if (!l->cq_armed) {
        l->cq_armed = true;
        ibv_req_notify_cq(l->cq, 0);
    }
    wakeup_arm(&l->mailbox.wakeup);
}

/* When the loop must look again on its own account. */
static uint64_t own_deadline(struct sluice_loop *l) {
    uint64_t due = l->next_deadline_ns;
    if (event_source_due(&l->source) < due)
        due = event_source_due(&l->source);
    if (l->retries || l->dying || l->downs || l->pin_waits || l->settling || l->retired ||
        l->leaving || l->arriving) {
        uint64_t soon = loop_clock(l) + (l->downs || l->settling ? 0 : RETRY_NS);
        due = soon < due ? soon : due;
    }
    return due;
}

static int timeout_ms(struct sluice_loop *l, uint64_t until_ns) {
    uint64_t due = own_deadline(l);
    due = until_ns < due ? until_ns : due;
    return due == DEADLINE_NEVER ? -1 : deadline_timeout_ms(due, loop_clock(l));
}

/* Before a rest. */
static void end_span(struct sluice_loop *l) {
    if (l->worked) {
        loop_clock(l);
        loop_span(l);
    }
}

/* False: a descriptor that the device gave cannot be slept on. */
static bool sleep_on(struct sluice_loop *l, const int fd[FABRIC_SLEEP_FDS]) {
    struct epoll_event edge = {.events = EPOLLIN | EPOLLET, .data.ptr = l->sleep_fd};
    for (unsigned i = 0; i < FABRIC_SLEEP_FDS; i++) {
        if (fd[i] < 0 || fd[i] == l->sleep_fd[i])
            continue;
        if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd[i], &edge) != 0)
            return false;
        l->sleep_fd[i] = fd[i];
    }
    return true;
}

/*
 * Before arming: a device without interrupts wakes the thread by its sockets and its peers' bells then, and not by another
 * thread. Where another epoll set sleeps on the loop's descriptor the thread may do something else when that wakes it, for
 * long: what needs it meanwhile stays the device's.
 */
static void sleep_begin(struct sluice_loop *l) {
    const struct fabric_ops *fabric = l->node->fabric;
    int fd[FABRIC_SLEEP_FDS];
    if (l->lost || /* the CQ is no device's */
        !fabric_sleep_begin(fabric, l->cq, l->fd_used, fd))
        return;
    if (sleep_on(l, fd)) {
        l->cq_armed &= l->slept_on == l->cq; /* an arming from before says nothing of this */
        l->slept_on = l->cq;
    } else {
        l->cq_armed &= !fabric_sleep_end(fabric, l->cq);
    }
}

static void sleep_end(struct sluice_loop *l) {
    /* Another CQ: the device was lost meanwhile, and it with it. */
    if (l->slept_on && l->slept_on == l->cq)
        l->cq_armed &= !fabric_sleep_end(l->node->fabric, l->cq);
    l->slept_on = NULL;
}

void loop_awake(struct sluice_loop *l) {
    sleep_end(l);
    wakeup_disarm(&l->mailbox.wakeup);
    l->spins = 0;
    l->traffic = false;
}

/* The turn that found nothing moved part of a large message, and did not come to its end. */
static inline bool unfinished(struct sluice_loop *l) {
    return !l->lost && fabric_sleep_unfinished(l->node->fabric, l->cq);
}

/* Sleeps regardless of the idle policy, at most until until_ns, unless a turn finds something. */
static void loop_sleep(struct sluice_loop *l, uint64_t until_ns) {
    loop_uncancelled(l);
    sleep_begin(l);
    arm(l);
    unsigned found = loop_progress(l);
    /* Not empty though nothing was taken: a producer is half way. And a thread that switched to spinning may
     * have signalled before the wakeup was armed. */
    if (found == 0 && mpsc_queue_empty(&l->mailbox.queue) && l->wc_next == l->wc_count &&
        loop_idle(l) != SLUICE_IDLE_SPIN && !unfinished(l)) {
        end_span(l);
        int timeout = timeout_ms(l, until_ns);
        bool taken =
            loop_is_revoked(l) && !(loop_discards(l) & LOOP_REVOKED); /* its thread shall leave */
        uint64_t begin = loop_clock(l);
        l->totals.sleeps++;
        loop_publish(l); /* it may be a long time */
        loop_publish_memory(l);
        wait_and_drain(l, taken ? 0 : timeout);
        l->slept_short = loop_clock(l) - begin < LOOP_SHORT_SLEEP_NS;
        loop_span_begin(l);
    }
    loop_awake(l);
}

/* Whether a turn that found nothing is followed by another at once, or by sleep. */
static bool spins(const struct sluice_loop *l) {
    uint8_t idle = loop_idle(l);
    if (idle == SLUICE_IDLE_SPIN)
        return true;
    return idle == SLUICE_IDLE_ADAPTIVE && l->traffic && l->totals.sessions > 0 && !l->alone;
}

/*
 * The thread has one CPU, and the thread it waits for may need that CPU, or run on another. A yield that took long let
 * another thread run: the next empty turn yields at once. A short one was only a system call that delays messages:
 * twice as many empty turns come before the next.
 */
static void yield(struct sluice_loop *l) {
    end_span(l);
    uint64_t before = loop_clock(l);
    sched_yield();
    bool ran = loop_clock(l) - before >= YIELD_RAN_NS;
    uint32_t after = ran ? 0 : l->yield_after * 2 + 1;
    l->yield_after = after < YIELD_AFTER ? after : YIELD_AFTER;
    l->unyielded = 0;
    loop_span_begin(l);
}

/*
 * Before a loop with traffic sleeps that slept too short a time to be worth it: looks for as long as a sleep costs. Without it
 * two loops that answer each other both sleep for every message. True: a turn found something. Not where the device
 * interrupts: Soft-RoCE, whose own work needs the CPU, was no faster by it, and its streams slower.
 */
static bool look_again(struct sluice_loop *l) {
    if (!l->slept_short || !l->traffic || l->totals.sessions == 0 || l->alone ||
        fabric_interrupts(l->node->fabric))
        return false;
    uint64_t begin = loop_clock(l);
    for (unsigned i = 1; i <= LOOK_TURNS; i++) {
        if (loop_progress(l) != 0)
            return true;
        if (i % 8 == 0 && loop_clock(l) - begin >= LOOK_NS)
            break;
    }
    return false;
}

/* After a turn that found nothing: spins or sleeps, until until_ns (UINT64_MAX: no limit). */
static void loop_wait(struct sluice_loop *l, uint64_t until_ns) {
    if (!spins(l)) {
        if (!unfinished(l) && !look_again(l))
            loop_sleep(l, until_ns);
        return;
    }
    if (l->spins == 0)
        l->unyielded = 0;
    if (l->alone && l->unyielded++ >= l->yield_after)
        yield(l);
    if ((++l->spins & SPIN_LOOKS) != 0)
        return;
    loop_uncancelled(l);
    loop_cancel_test(l);
    uint64_t now = loop_clock(l);
    loop_span(l);
    if ((l->spins & SPIN_PUBLISH) == 0)
        loop_publish(l);
    if (l->spins == SPIN_LOOKS + 1)
        l->idle_since_ns = now;
    if (loop_idle(l) != SLUICE_IDLE_SPIN && now - l->idle_since_ns >= LOOP_WAIT_SPIN_NS)
        loop_sleep(l, until_ns);
}

void loop_run(struct sluice_loop *l) {
    if (loop_acquire(l) != SLUICE_OK)
        return;
    while (!loop_is_revoked(l)) {
        if (loop_progress(l) == 0)
            loop_wait(l, UINT64_MAX);
        else
            l->spins = 0;
    }
    loop_unmark_polling(l);
}

/* ---- polling --------------------------------------------------------------------------------- */

/* The timer makes the set readable when the loop has something to do by itself. */
static void arm_timer(struct sluice_loop *l) {
    uint64_t due = own_deadline(l);
    struct itimerspec when = {0};
    if (due != UINT64_MAX) {
        /* Relative: the loop's clock may be a test's. */
        uint64_t now = loop_clock(l), left = due > now ? due - now : 1;
        when.it_value.tv_sec = (time_t)(left / 1000000000u);
        when.it_value.tv_nsec = (long)(left % 1000000000u);
    }
    timerfd_settime(l->timer_fd, 0, &when, NULL);
}

/* Leaves the set armed for the application's own epoll, unless events turn up. */
static void arm_for_others(struct sluice_loop *l) {
    loop_uncancelled(l);
    wait_and_drain(l, 0);
    sleep_begin(l);
    for (int i = 0; i < REARM_TURNS && l->out_count == 0; i++) {
        arm(l);
        if (loop_progress(l) == 0 && mpsc_queue_empty(&l->mailbox.queue) && !unfinished(l))
            break;
    }
    if (l->out_count > 0) {
        sleep_end(l);
        wakeup_disarm(&l->mailbox.wakeup);
    } else { /* what the thread does now is rest as far as the loop knows */
        arm_timer(l);
        end_span(l);
        l->span_ns = 0;
    }
}

/* Until the next poll nothing goes into the array. */
static inline int poll_ends(struct sluice_loop *l) {
    l->out_max = l->out_count;
    return (int)l->out_count;
}

/* The first turn brought no event; `found`: what it found. */
static __attribute__((noinline)) int poll_on(struct sluice_loop *l, unsigned found,
                                             uint64_t wait_ns) {
    uint64_t until = wait_ns == SLUICE_OFF ? UINT64_MAX : 0; /* 0: not known yet */
    while (l->out_count == 0 && l->handled == 0 && wait_ns != 0) {
        /* The clock is read now and then only: a short wait may take a few turns longer. */
        bool look = found == 0 ? !spins(l) || (l->spins & SPIN_LOOKS) == SPIN_LOOKS
                               : (atomic_load_explicit(&l->progress_count, memory_order_relaxed) &
                                  SPIN_LOOKS) == 0;
        if (until == 0 && look) {
            uint64_t now = loop_clock(l);
            until = wait_ns > UINT64_MAX - 1 - now ? UINT64_MAX : now + wait_ns;
        }
        if (found == 0)
            loop_wait(l, until ? until : UINT64_MAX);
        else
            l->spins = 0;
        if (l->out_count > 0 || l->handled > 0 || loop_is_revoked(l) ||
            (look && l->now_ns >= until && until != UINT64_MAX))
            break;
        found = loop_progress(l);
    }
    if (wait_ns != 0 && l->out_count == 0 && l->handled == 0) { /* there is nothing to lose */
        loop_uncancelled(l);
        loop_cancel_test(l);
    }
    if (l->out_count == 0 && l->fd_used && !loop_is_revoked(l))
        arm_for_others(l);
    else
        sleep_end(l);
    return poll_ends(l);
}

int loop_poll(struct sluice_loop *l, sluice_event *events, int max, uint64_t wait_ns) {
    if (unlikely(l->fd_used)) {
        wakeup_disarm(&l->mailbox.wakeup);
        if (l->span_ns == 0) {
            loop_clock(l);
            loop_span_begin(l);
        }
    }
    l->out = events;
    l->out_max = max < LOOP_LOANS_MAX ? (uint32_t)max : LOOP_LOANS_MAX;
    l->out_count = 0;
    l->handled = 0;
    l->spins = 0;
    l->poll_once = wait_ns == 0;
    if (l->loan_count > 0)
        event_take_back(l);
    unsigned found = loop_progress(l);
    if (unlikely(l->fd_used) && found > 0) /* else the CQ stays armed, and peers ring */
        sleep_end(l);
    return likely(l->out_count > 0) ? poll_ends(l) : poll_on(l, found, wait_ns);
}

int loop_fd(struct sluice_loop *l) {
    if (!l->fd_used) {
        struct epoll_event interest = {.events = EPOLLIN, .data.ptr = &l->timer_fd};
        l->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (l->timer_fd < 0)
            return SLUICE_ELIMIT;
        if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->timer_fd, &interest) != 0) {
            close(l->timer_fd);
            l->timer_fd = -1;
            return SLUICE_ELIMIT;
        }
        l->fd_used = true;
        for (unsigned i = 0; i < FABRIC_SLEEP_FDS; i++) {
            if (l->sleep_fd[i] >= 0)
                (void)epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, l->sleep_fd[i], NULL);
            l->sleep_fd[i] = -1; /* the device gives that one again which suits such a loop */
        }
        /* Polls before this one armed nothing: readable once, so that the next poll does. */
        wakeup_arm(&l->mailbox.wakeup);
        wakeup_signal_flag(&l->mailbox.wakeup);
    }
    return l->epoll_fd;
}
