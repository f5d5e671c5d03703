/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * event.h - events: made by the control path, completed when they are fetched.
 *
 * Every event of every id passes soft_cm_event_post (except USER events, whose writer may hold no
 * lock): one place to delay or replace them. Control lock for making and posting.
 */
#ifndef SOFT_CM_EVENT_H
#define SOFT_CM_EVENT_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/cm/channel.h"
#include "soft/cm/wire.h"

struct soft_cm_id;
struct cm_group;

struct soft_cm_event {
    struct rdma_cm_event event; /* first: what the application sees */
    struct soft_cm_node node;
    struct soft_cm_id *request; /* CONNECT_REQUEST: the new id */
    struct cm_group *group;     /* MULTICAST_*: counts there as well */
    uint8_t data[SOFT_CM_DATA_MAX];
};

/* NULL: no memory; the caller gives up, as the kernel does. */
struct soft_cm_event *soft_cm_event_new(struct soft_cm_id *id, int type, int status);
/* Private data as conn or ud has it, by the QP type of the id. */
void soft_cm_event_set_data(struct soft_cm_event *event, const uint8_t *data, size_t len);
/* Hands the event to the id's channel; without one it is dropped. */
void soft_cm_event_post(struct soft_cm_event *event);
void soft_cm_event_raise(struct soft_cm_id *id, int type, int status);

/* Takes back the id's unfetched events (those of one group, if group is not NULL). */
void soft_cm_event_discard_all(struct soft_cm_channel *channel, struct soft_cm_id *id,
                               struct cm_group *group);
void soft_cm_event_discard_channel(struct soft_cm_channel *channel);
/* Moves the id's unfetched events from one channel to another. */
void soft_cm_event_move(struct soft_cm_id *id, struct soft_cm_channel *from,
                        struct soft_cm_channel *to);

/* rdma_get_cm_event(); while it waits the thread may be cancelled as cancel_state says (soft/ipc/token.h). */
int soft_cm_get_event(struct rdma_event_channel *channel, struct rdma_cm_event **out,
                      int cancel_state);

/* For the channel: an event was fetched. Takes only ack mutexes. */
void soft_cm_event_count(struct soft_cm_node *node);

#endif
