/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * watched.h - the software device's fabric with eyes on rdma_cm, and a hand in its events.
 *
 * Watches, for nodes given to watched_node(): no rdma_cm call is made while the calling thread holds
 * an event that it has not acknowledged; every id of a node is destroyed by one thread; the id of a
 * connection only after its loop has given the connection back, QP destroyed.
 *
 * Forges: watched_forge() makes an event of any number, status and content arrive on an id, through
 * the descriptor and the call of the real ones. Holds: of one channel, real events are kept back and
 * let through one by one (one thread only).
 */
#ifndef TESTS_SUPPORT_WATCHED_H
#define TESTS_SUPPORT_WATCHED_H

#include "cm/listen.h"
#include "support/pair.h"
#include "support/fault.h"

#include <errno.h>
#include <pthread.h>

#include "soft/fault/inject.h"
#include "soft/ipc/engine.h"
#include "soft/soft.h"

#define WATCHED_KEPT 256

struct watched_event { /* an event that did not happen */
    struct rdma_cm_event event;
    struct rdma_cm_event *real; /* what carries it */
    struct watched_event *next;
    uint8_t data[256];
};

extern struct watched {
    _Atomic unsigned unacknowledged, wrong_thread, too_early; /* the three rules, broken */
    _Atomic unsigned destroyed;
    _Atomic uintptr_t threads[NODES_MAX]; /* the CM thread of each node; 0: any will do */
    /* one thread only */
    struct rdma_event_channel *held; /* its real events wait */
    unsigned let_through;            /* but so many of them */
    struct rdma_cm_event *kept[WATCHED_KEPT];
    unsigned kept_count;
    struct watched_event *forged; /* all of them, freed at the end: some are never fetched */
} watched;

/* This thread. */
uintptr_t watched_self(void);

/* ---- the rules ------------------------------------------------------------------------------- */

extern struct fabric_ops watched_fabric;

/* None of the three rules was broken. */
void watched_rules_were_kept(void);

/* ---- forging --------------------------------------------------------------------------------- */

/* An event that says all this, behind the real ones. False: the id has no device any more. */
bool watched_forge(const struct rdma_cm_event *says, const void *data, size_t bytes);
/* The node looks for events, even if there are only some that were kept. */
void watched_nudge(sluice_node *n);

/* ---- the device's faults --------------------------------------------------------------------- */

/* Does that to the device. */
void watched_device(enum soft_device_what what, enum soft_device_order order);

/* ---- a pair of watched nodes ------------------------------------------------------------------ */

/* Two watched nodes, the first listening. */
void watched_open(struct pair *p, const sluice_link_options *link);
/* Closes both; the rules were kept. */
void watched_close(struct pair *p);

#endif
