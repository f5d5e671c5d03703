/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wakeup.h - wakes one thread that may sleep in epoll.
 *
 * Two ways in one: an unbound rdma_cm_id on an event channel of its own, signalled with
 * rdma_write_cm_event(USER), and an eventfd that is always in the same epoll set, signalled when the
 * write fails, alone where the call does not exist or events cannot be fetched any more. A pending flag in user
 * space merges signals, because a kernel neither merges nor bounds user events.
 *
 * Sleep protocol (the order is what makes it lossless): the owner calls wakeup_arm(), looks at
 * everything it may be woken for once more, sleeps only if there was nothing, and calls
 * wakeup_disarm() when it is awake. A signaller publishes its work first, then calls
 * wakeup_signal(), which makes a system call only when the owner is armed and no other thread has signalled.
 *
 * Owner: the sleeping thread (arm, disarm, drain). Any thread, and signal handlers, may signal.
 */
#ifndef FABRIC_WAKEUP_H
#define FABRIC_WAKEUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/stats.h"
#include "fabric/fabric.h"

/*
 * The fields of a user event. status is the verb of the message that was signalled for. arg names the object
 * the message is part of, by slot and generation (the session's handle without its node), and the signal:
 *
 *   63..48 the number of the signal   47..32 slot   31..0 generation
 *
 * The event decides nothing: the work stands in the mailbox. Every bit of it is compared with what was
 * signalled, so an event with another verb, slot or generation, one that comes twice, and one that no thread
 * signalled are found out; they wake for nothing and are counted.
 */
#define WAKEUP_ARG_BITS 48u    /* of arg: slot and generation */
#define WAKEUP_PENDING_MAX 64u /* signals remembered; a power of two */
#define WAKEUP_VERBS 62u       /* verbs of messages are below; the two above: */
#define WAKEUP_PROBE 62u       /* wakes no thread: does a user event come through? */
#define WAKEUP_FLAG 63u        /* no message, a flag somewhere was set */

struct wakeup {
    const struct fabric_ops *fabric;
    struct rdma_event_channel *channel; /* NULL: eventfd only */
    struct rdma_cm_id *id;
    int event_fd, epoll_fd;
    _Atomic bool broken;    /* fetching user events failed: the eventfd only, from then on */
    _Atomic uint32_t state; /* AWAKE, ARMED, SIGNALLED; and how many threads are about to wake it */
    /* Statistics of signals that met a sleeper: user events written, writes of the eventfd instead, signals
     * that came while another was on its way. Signals to an owner that is awake touch nothing. */
    _Atomic uint64_t writes, fallbacks, merged;
    /* Signals not received yet, by the number of the signal: an event that is not in here came from
     * no thread that posted a message. Written by the one signaller that makes the system call. */
    _Atomic uint32_t sequence;
    _Atomic uint64_t overwritten; /* signals that were so late that a newer one took their place */
    _Atomic uint64_t pending[WAKEUP_PENDING_MAX];
    /* owner: user events that a thread signalled, and that none did; late ones forgiven; failures to fetch
     * them; the last one's argument and status */
    uint64_t heard, stray, excused, failed;
    uint64_t last_arg;
    int last_status;
    _Atomic(const char *) why;
};

/* use_cm false: eventfd only. Returns 0 or -errno. Probes the write once; starts awake. */
int wakeup_open(struct wakeup *wakeup, const struct fabric_ops *fabric, bool use_cm);
/* No message is posted any more; a thread that is yet to signal for one is waited for, or finds nothing to do. */
void wakeup_close(struct wakeup *wakeup);
/* Adds both descriptors to an epoll set with this data pointer. 0 or -errno. */
int wakeup_add_to(struct wakeup *wakeup, int epoll_fd, void *data);
void wakeup_arm(struct wakeup *wakeup);
void wakeup_disarm(struct wakeup *wakeup);
/*
 * Reads and acknowledges what was signalled; non-blocking. Call after epoll reported one of the descriptors, with
 * these events. The errno of fetching user events if that has failed, once: there are none from then on.
 * To be told.
 */
int wakeup_drain(struct wakeup *wakeup, uint32_t events);

#define WAKEUP_FAILED_TEXT                                                                         \
    "user events of rdma_cm cannot be fetched: %s; a thread is woken by eventfd"

/* The object of a message, as it travels in the argument. */
static inline uint64_t wakeup_arg(uint32_t slot, uint32_t generation) {
    return (uint64_t)slot << 32 | generation;
}

/*
 * Signals for a message that was posted: its verb, below WAKEUP_VERBS, and what it is part of. More bits
 * than a message has are cut off, so a handle may be given. Signal-safe.
 */
void wakeup_signal(struct wakeup *wakeup, uint32_t verb, uint64_t record);
/* Signals for something else that the owner looks at before it sleeps. Signal-safe. */
static inline void wakeup_signal_flag(struct wakeup *wakeup) {
    wakeup_signal(wakeup, WAKEUP_FLAG, 0);
}

/* Copies the counters to the statistics page; the owner. */
void wakeup_publish(const struct wakeup *wakeup, struct stats_wakeup *out);
/* One line for people: which mechanism and why. */
const char *wakeup_describe(const struct wakeup *wakeup);

#endif
