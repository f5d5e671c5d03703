/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wakeup.h - wakes one thread that may sleep in epoll.
 *
 * Two bells in one: an unbound rdma_cm_id on an event channel of its own, rung with
 * rdma_write_cm_event(USER), and an eventfd that is always in the same epoll set, rung when the
 * write fails, alone where the call does not exist or events cannot be fetched any more. A pending flag in user space merges rings,
 * because a kernel neither merges nor bounds user events.
 *
 * Sleep protocol (the order is what makes it lossless): the owner calls doorbell_arm(), looks at
 * everything it may be woken for once more, sleeps only if there was nothing, and calls
 * doorbell_disarm() when it is awake. A ringer publishes its work first, then calls
 * doorbell_ring(), which makes a system call only when the owner is armed and nobody rang yet.
 *
 * Owner: the sleeping thread (arm, disarm, drain). Any thread, and signal handlers, may ring.
 */
#ifndef FABRIC_WAKEUP_H
#define FABRIC_WAKEUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/stats.h"
#include "fabric/fabric.h"

/*
 * What a user event carries. status is the verb of the record that was rung for. arg names the object
 * the record is part of, by slot and generation (the session's handle without its node), and the ring:
 *
 *   63..48 the ring's number   47..32 slot   31..0 generation
 *
 * It decides nothing: what is to be done stands in the inbox. Every bit of it is compared with what was
 * rung, so an event with another verb, slot or generation, one that comes twice, and one that nobody
 * rang are found out; they wake for nothing and are counted.
 */
#define DOORBELL_RECORD_BITS 48u /* of arg: slot and generation */
#define DOORBELL_ANNOUNCED 64u   /* rings remembered; a power of two */
#define DOORBELL_VERBS 62u       /* verbs of records are below; the two above: */
#define DOORBELL_PROBE 62u       /* nobody is woken: does a user event come through? */
#define DOORBELL_WAKE 63u        /* no record, a flag somewhere was set */

struct doorbell {
    const struct fabric_ops *fabric;
    struct rdma_event_channel *channel; /* NULL: eventfd only */
    struct rdma_cm_id *id;
    int event_fd, epoll_fd;
    _Atomic bool broken;    /* fetching user events failed: the eventfd only, from then on */
    _Atomic uint32_t state; /* AWAKE, ARMED, RUNG */
    /* Statistics of rings that met a sleeper: user events written, rings of the eventfd instead, rings
     * that came while another was on its way. Rings of an owner that is awake touch nothing. */
    _Atomic uint64_t writes, fallbacks, merged;
    /* What was rung and not heard yet, by the ring's number: an event that is not in here came from
     * nobody who posted a record. Written by the one ringer that makes the system call. */
    _Atomic uint32_t sequence;
    _Atomic uint64_t overwritten; /* rings that were so late that a newer one took their place */
    _Atomic uint64_t announced[DOORBELL_ANNOUNCED];
    /* owner: user events that somebody rang, and that nobody did; late ones forgiven; failures to fetch
     * them; the last one's argument and status */
    uint64_t heard, stray, excused, failed;
    uint64_t last_arg;
    int last_status;
    _Atomic(const char *) why;
};

/* use_cm false: eventfd only. Returns 0 or -errno. Probes the write once; starts awake. */
int doorbell_open(struct doorbell *bell, const struct fabric_ops *fabric, bool use_cm);
void doorbell_close(struct doorbell *bell);
/* Adds both descriptors to an epoll set with this data pointer. 0 or -errno. */
int doorbell_watch(struct doorbell *bell, int epoll_fd, void *data);
void doorbell_arm(struct doorbell *bell);
void doorbell_disarm(struct doorbell *bell);
/*
 * Reads and acknowledges what rang; non-blocking. Call after epoll reported one of the descriptors, with
 * these events. The errno of fetching user events if that has failed, once: there are none from then on.
 * To be told.
 */
int doorbell_hear(struct doorbell *bell, uint32_t events);

#define DOORBELL_FAILED "user events of rdma_cm cannot be fetched: %s; a thread is woken by eventfd"

/* The object of a record, as it travels in the argument. */
static inline uint64_t doorbell_record(uint32_t slot, uint32_t generation) {
    return (uint64_t)slot << 32 | generation;
}

/*
 * Rings for a record that was posted: its verb, below DOORBELL_VERBS, and what it is part of. More bits
 * than a record has are cut off, so a handle may be given. Signal-safe.
 */
void doorbell_ring(struct doorbell *bell, uint32_t verb, uint64_t record);
/* Rings for something else that the owner looks at before it sleeps. Signal-safe. */
static inline void doorbell_wake(struct doorbell *bell) {
    doorbell_ring(bell, DOORBELL_WAKE, 0);
}

/* Copies the counters to the statistics page; the owner. */
void doorbell_show(const struct doorbell *bell, struct stats_bell *out);
/* One line for people: which mechanism and why. */
const char *doorbell_describe(const struct doorbell *bell);

#endif
