/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * large_flow.h - what both processes of the tests of large transfers do: one session, on which one side
 * gives in one of the ways the data path has and the other takes, until the session ends.
 *
 * Stays true at every event: nothing comes behind CLOSED, each tag is told once, what arrives is whole
 * and in its order, and with CLOSED nothing given is without its outcome and no region is in use. One
 * thread, polled.
 */
#ifndef TESTS_SUPPORT_LARGE_FLOW_H
#define TESTS_SUPPORT_LARGE_FLOW_H

#include "support/side.h"

#include <sluice/memory.h>

#define FLOW_MIB ((size_t)1 << 20)
#define FLOW_RENDEZVOUS ((size_t)32768)
#define FLOW_TAGS 65536u
#define FLOW_SLOTS 4u
#define FLOW_SLOT (3 * FLOW_MIB)
#define FLOW_PUT (2 * FLOW_MIB) /* 8 WRITEs of the data path */

enum flow_way { FLOW_READ, FLOW_WRITE, FLOW_PLACE, FLOW_PUTS, FLOW_REQUEST, FLOW_WAYS };

extern const char *const flow_ways[];

struct flow {
    struct side *side;
    enum flow_way way;
    bool gives, stopped; /* stopped: gives no more */
    bool starved;        /* for want of memory, which is so when the device is gone */
    bool up, full, closed;
    size_t bytes; /* of the one message there is; 0: there are many, of mixed sizes */
    sluice_session session;
    sluice_listener listener;
    sluice_region *region; /* PLACE: where it is taken to; PUTS: from and to */
    sluice_token token;    /* PUTS: the taker's */
    bool known;
    uint64_t accepted, outcomes, good;
    uint64_t received, larges, placed; /* placed: of the larges, how many were told where to go */
    uint64_t waiting;                  /* the token of a LARGE without an answer, or 0 */
    struct note held;                  /* a request that is answered when the next one comes */
    struct note end;                   /* CLOSED */
    uint8_t told[FLOW_TAGS];
};

/* How far this side is: grows as long as anything arrives. */
uint64_t flow_progress(const struct flow *f);
/* Whether something is known to be on its way. */
bool flow_busy(const struct flow *f);
/* Options of a node for that way; valid until the next call. */
const sluice_node_options *flow_node(enum flow_way way, size_t bytes);
/* A flow at the beginning: listens if port is 0 (flow->listener), else dials. */
void flow_begin(struct flow *f, struct side *side, enum flow_way way, bool gives, int port);

/* ---- both ------------------------------------------------------------------------------------------ */

/* One turn: gives what fits and takes one event that comes within wait_ns. */
void flow_turn(struct flow *f, uint64_t wait_ns);

#endif
