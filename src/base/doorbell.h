/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * doorbell.h - wakes one thread that may sleep in epoll.
 *
 * Two bells in one: an unbound rdma_cm_id on an event channel of its own, rung with
 * rdma_write_cm_event(USER), and an eventfd that is always in the same epoll set, rung when the
 * write fails and alone where the call does not exist. A pending flag in user space merges rings,
 * because a kernel neither merges nor bounds user events.
 *
 * Sleep protocol (the order is what makes it lossless): the owner calls doorbell_arm(), looks at
 * everything it may be woken for once more, sleeps only if there was nothing, and calls
 * doorbell_disarm() when it is awake. A ringer publishes its work first, then calls
 * doorbell_ring(), which makes a system call only when the owner is armed and nobody rang yet.
 *
 * Owner: the sleeping thread (arm, disarm, drain). Any thread, and signal handlers, may ring.
 */
#ifndef SLUICE_DOORBELL_H
#define SLUICE_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"

#define DOORBELL_ARG_BITS 48   /* of what a ringer says; the rest is the ring's own number */
#define DOORBELL_ANNOUNCED 64u /* rings remembered; a power of two */

struct doorbell {
    const struct fabric_ops *fabric;
    struct rdma_event_channel *channel; /* NULL: eventfd only */
    struct rdma_cm_id *id;
    int event_fd;
    _Atomic uint32_t state; /* AWAKE, ARMED, RUNG */
    /* statistics: rings that met a sleeper, user events written, eventfd rings; the first less the
     * other two were merged. Rings of an owner that is awake touch nothing. */
    _Atomic uint64_t rings, writes, fallbacks;
    /* What was rung and not heard yet, by the ring's number: an event that is not in here came from
     * nobody who posted a record. Written by the one ringer that makes the system call. */
    _Atomic uint32_t sequence;
    _Atomic uint64_t overwritten; /* rings that were so late that a newer one took their place */
    _Atomic uint64_t announced[DOORBELL_ANNOUNCED];
    /* owner: argument of the last user event taken; events that nobody rang; late ones forgiven */
    uint64_t last_arg, stray, excused;
    const char *why;
};

/* use_cm false: eventfd only. Returns 0 or -errno. Probes the write once; starts awake. */
int doorbell_open(struct doorbell *bell, const struct fabric_ops *fabric, bool use_cm);
void doorbell_close(struct doorbell *bell);
/* Adds both descriptors to an epoll set with this data pointer. 0 or -errno. */
int doorbell_watch(struct doorbell *bell, int epoll_fd, void *data);
void doorbell_arm(struct doorbell *bell);
void doorbell_disarm(struct doorbell *bell);
/* Reads and acknowledges what rang; non-blocking. Call after epoll reported a descriptor. */
void doorbell_drain(struct doorbell *bell);
/*
 * arg, {verb:16, slot:32}, travels with the user event and names the record that made the ring. It
 * decides nothing: what is to be done stands in the inbox. Draining compares it with what was rung and
 * counts an event without a ring as stray. Signal-safe on the software fabric.
 */
void doorbell_ring(struct doorbell *bell, uint64_t arg);
/* One line for people: which mechanism and why. */
const char *doorbell_describe(const struct doorbell *bell);

#endif
