/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm_table.h - rdma_cm events, and the handler of each in every state.
 *
 * Owner: the table is constant; handlers run on the CM thread.
 */
#ifndef CM_CM_TABLE_H
#define CM_CM_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/stats.h"
#include "core/cm_conn.h"

struct cm;

#define CM_EVENT_UNKNOWN 20 /* column of every event number this library does not know */
#define CM_EVENT_COUNT 21
_Static_assert(CM_EVENT_COUNT == STATS_CM_EVENTS, "the statistics page counts the same events");

/* A private copy of an rdma_cm event, taken before it was acknowledged. */
struct cm_event {
    unsigned type; /* column: 0..19, or CM_EVENT_UNKNOWN */
    int status;
    struct rdma_cm_id *id, *listen_id;
    struct cm_owner *owner; /* the id's, or the listener's: read before it was acknowledged */
    uint32_t qp_num;
    uint8_t retry_count, rnr_retry_count; /* the peer's; a response has no retry_count */
    uint32_t data_bytes;
    uint8_t data[256];
};

typedef void cm_run(struct cm *cm, struct cm_owner *owner, const struct cm_event *event);

struct cm_cell {
    cm_run *run;
    const char *ignored; /* why nothing has to be done */
};

extern const struct cm_cell cm_table[CM_STATE_COUNT][CM_EVENT_COUNT];
const char *cm_state_name(unsigned state);
/* Whether a connection may go from one state to the other; FAILED and RELEASED end every way. */
bool cm_may_follow(enum cm_state from, enum cm_state to);
const char *cm_event_name(unsigned type);
/* Handlers of the table. */
cm_run cm_on_request, cm_on_addr_resolved, cm_on_addr_error, cm_on_route_resolved,
    cm_on_route_error, cm_on_response, cm_on_rejected, cm_on_lost, cm_on_connect_error,
    cm_on_established, cm_on_closed_early, cm_on_disconnected, cm_on_device_removal,
    cm_on_listener_removal, cm_on_watch_removal, cm_on_addrinfo_resolved, cm_on_addrinfo_error,
    cm_on_addr_change, cm_on_unreachable;

#endif
