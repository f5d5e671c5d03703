/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * channel.h - event channels: a FIFO of events behind a pollable descriptor.
 *
 * The descriptor is an eventfd in semaphore mode that holds one token for every queued event, so
 * blocking, EINTR, O_NONBLOCK and poll are the kernel's own. Fetching takes a token, then the event.
 *
 * Two ways in. Events of the engine and of calls are appended under the channel's mutex. USER events
 * are pushed on a lock-free list out of a fixed set of nodes, because their writer may be a signal
 * handler: the next thread that holds the mutex moves them behind the rest. Events taken back unfetched
 * (destroy, migrate) take their tokens along; a token that a fetcher has already read is noted as
 * a debt, and that fetcher goes back to waiting.
 *
 * A channel may be closed while a thread waits in it: as with the kernel's, that thread goes on waiting,
 * until a signal interrupts it, and the memory and descriptor that it uses stay until it leaves.
 *
 * Lock order: control lock, channel mutex, an id's ack mutex. Any thread.
 */
#ifndef SOFT_CM_CHANNEL_H
#define SOFT_CM_CHANNEL_H

#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

struct soft_cm_id;

/* USER events that may be unfetched in the whole process; beyond it ENOMEM. */
#define SOFT_CM_USER_EVENTS_MAX 4096

/* A queued event; embedded in a soft_cm_event, or in a node for a USER event. */
struct soft_cm_node {
    struct cds_list_head link;
    struct soft_cm_id *id; /* the id it counts on once fetched */
    bool user;
};

struct soft_cm_user_node {
    struct soft_cm_node node; /* first */
    int status;
    uint64_t arg;
    struct soft_cm_user_node *older; /* pushed before it */
    _Atomic uint32_t free_next;      /* index + 1 of the next free one */
};

struct soft_cm_channel {
    struct rdma_event_channel channel; /* first: what the application sees */
    uint32_t generation;
    uint8_t net;                 /* control lock: enum soft_cm_net of ids made on it */
    struct ibv_context *context; /* control lock: kept open (device.h) */
    pthread_mutex_t mutex;       /* guards queue and debt */
    struct cds_list_head queue;
    uint64_t debt;   /* tokens read by fetchers, whose events have been taken back */
    unsigned inside; /* threads that fetch; under the mutex, as is closed */
    bool closed;
    _Atomic(struct soft_cm_user_node *) incoming; /* USER events, newest first */
};

/* The oldest of a list of nodes, no longer in it; NULL: it is empty. */
struct soft_cm_node *soft_cm_queue_pop(struct cds_list_head *queue);

/* NULL and errno. Holds a reference on the engine. Control lock not held. */
struct soft_cm_channel *soft_cm_channel_open(void);
/* For a channel without queued events that no id uses any more. Control lock not held. */
void soft_cm_channel_close(struct soft_cm_channel *channel);

void soft_cm_channel_append(struct soft_cm_channel *channel, struct soft_cm_node *node);
void soft_cm_channel_append_all(struct soft_cm_channel *channel, struct cds_list_head *queue);
/* Async-signal-safe. 0 or an errno. */
int soft_cm_channel_push_user(struct soft_cm_channel *channel, struct soft_cm_id *id, int status,
                              uint64_t arg);
void soft_cm_channel_free_user(struct soft_cm_user_node *node);
/* Around one or more fetches by the application's thread. leave takes a channel: a cancelled thread's too. */
void soft_cm_channel_enter(struct soft_cm_channel *channel);
void soft_cm_channel_leave(void *channel);
/*
 * Takes a token and its event, waiting as the descriptor's mode says, and to be cancelled meanwhile as cancel_state does
 * (soft/ipc/token.h); the event is counted on its id before the mutex is released. NULL and errno. Control lock not held.
 */
struct soft_cm_node *soft_cm_channel_fetch(struct soft_cm_channel *channel, int cancel_state);
/* Puts a fetched event back to the front, uncounted. */
void soft_cm_channel_unfetch(struct soft_cm_channel *channel, struct soft_cm_node *node);
/* Moves the queued events that match to the end of out, in order. */
void soft_cm_channel_extract(struct soft_cm_channel *channel,
                             bool (*match)(const struct soft_cm_node *node, const void *arg),
                             const void *arg, struct cds_list_head *out);

#endif
