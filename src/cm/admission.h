/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * admission.h - admission: how many peers are in their handshake at a time, and which wait.
 *
 * Three classes, by the state a listener's connection is in: AWAITING_APP (the application decides),
 * QUEUED (a line in order of arrival), and the handshakes: CREATING_QP_PASSIVE, ACCEPTING, HANDSHAKE. Of the
 * last there are handshakes_max, of the first two together requests_max; the application is asked about a peer with
 * a handshake after that, so of those there may be handshakes_max more. A peer that finds no room gets
 * BUSY. Only cm_enter() moves a connection from state to state, and it calls admission_move(), so the room is
 * given back exactly once, however a connection ends.
 *
 * The room is free as soon as its connection fails, not when its QP is destroyed: that waits for
 * a loop, and a loop that no thread polls must not keep all peers out. sessions_max bounds those.
 *
 * Owner: the CM thread.
 */
#ifndef CM_ADMISSION_H
#define CM_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

#include "core/cm_conn.h"

#define ADMISSION_PATIENCE_MIN_NS 20000000ull
#define ADMISSION_PATIENCE_MAX_NS 1000000000ull
#define ADMISSION_PATIENCE_FACTOR 8u     /* of the time that handshakes took lately */
#define ADMISSION_USUAL_NS 5000000ull    /* which is this before there was any */
#define ADMISSION_GRACE_NS 2000000000ull /* the patience with peers that have not failed before */
#define ADMISSION_UNSEEN_FACTOR 2u /* on the patience, while its end may be among unread events */
#define ADMISSION_LIMIT_NS 5000000000ull /* for one handshake, unless all take long */
#define ADMISSION_BURST                                                                            \
    8u /* the part of all handshakes that may be made up for, ending late ones */
#define ADMISSION_BUSY_TEXT "busy, try again"

struct cm;

struct admission_queue {
    struct cds_list_head conns;
    uint32_t count;
};

struct admission {
    struct admission_queue open;  /* handshakes under way, the oldest first */
    struct admission_queue queue; /* requests that wait for one, the oldest first */
    uint32_t asking;              /* requests that wait for the application */
    uint64_t usual_ns;            /* smoothed time of successful handshakes */
    uint64_t evicted_ns;          /* when one was ended last to make room */
    uint64_t due_ns;              /* when that was due, or not too long ago */
    uint64_t grace_ns;            /* what was left of the grace then */
};

void admission_init(struct cm *cm);
/* No request has a handshake, waits for one, or waits for the application. For assertions. */
bool admission_idle(const struct cm *cm);
/* Whether there is room for one more request; asks: the application is to be asked first. */
bool admission_room(const struct cm *cm, bool asks);
/* The time of a listener's connection is over. True: that was the limit of its handshake alone, which has a later one now. */
bool admission_prolongs(struct cm *cm, struct cm_conn *conn);
/* A request may be served: now, or when those before it have been. */
void admission_start(struct cm *cm, struct cm_conn *conn);
/* cm_enter() only: before conn->owner.state becomes `state`. */
void admission_move(struct cm *cm, struct cm_conn *conn, enum cm_state state);
/* How long a handshake may take while another peer waits for one. */
uint64_t admission_patience(const struct cm *cm);
/* When the patience with the oldest handshake ends, if a peer waits; else UINT64_MAX. */
uint64_t admission_due(const struct cm *cm);
/*
 * Once a round, after its events: ends the handshake that is too slow, starts those that have room.
 * seen: no event is left in the channel. Otherwise the end of a handshake may be among those, and
 * one is given more time. Returns how many things it did.
 */
unsigned admission_progress(struct cm *cm, bool seen);

#endif
