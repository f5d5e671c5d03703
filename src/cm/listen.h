/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * listen.h - listeners: a table of them, and what the CM thread does with one.
 *
 * Owner: any thread for listener_*(), the CM thread for cm_*().
 */
#ifndef CM_LISTEN_H
#define CM_LISTEN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/stats.h"
#include "core/cm_conn.h"
#include "core/listener_end.h"
#include "core/session.h"
#include "core/session_table.h"

struct cm;

#define LISTENERS_MAX 256

enum listener_life {
    LISTENER_FREE,
    LISTENER_STARTING,
    LISTENER_LISTENING,
    LISTENER_LOST,     /* the device is gone; its loop tells the application, once */
    LISTENER_TOLD,     /* and has done so */
    LISTENER_STOPPING, /* sluice_unlisten() was called */
    LISTENER_FAILED,
};

/* In a table that lives as long as the process; the handle carries slot and generation. */
struct cm_listener {
    struct cm_owner owner; /* first */
    struct sluice_node *node;
    _Atomic uint64_t word; /* generation << 32 | life */
    uint32_t slot;
    struct mpsc_queue_item item;
    struct link_config link;
    union address address;
    bool everywhere; /* "*": the CM thread chooses the family of the address, its port is set */
    struct sluice_loop *loops[STATS_LOOPS_MAX]; /* what link.loops points to */
    /* written by the CM thread before it answers under the node's lock */
    uint16_t port;
    int os_errno;
    sluice_reason reason;
    char text[192];
};

/* Set in the slot of a listener's handle: it never looks like a session's. */
#define LISTENER_SLOT 0x800000u
_Static_assert(SESSION_TABLE_MAX <= LISTENER_SLOT, "and no session's like a listener's");
/* A fork waits until no thread is inside: before it, and on both sides after it. */
void listeners_fork(bool begins);
struct cm_listener *listener_take(struct sluice_node *node); /* STARTING; NULL: none free */
/* LISTENING, LOST or TOLD, which is written to *life; NULL: stale. */
struct cm_listener *listener_find(uint64_t id, enum listener_life *life);
uint64_t listener_handle(struct cm_listener *listener);
void listener_stop(struct cm_listener *listener, uint32_t generation);
void listener_give_back(struct cm_listener *listener);
/* For the loop's thread: upcalls.h. */
enum listener_news listener_next_end(struct sluice_node *node, const struct sluice_loop *l,
                                     bool array, bool handlers, struct listener_end *out);
void cm_listen(struct cm *cm, struct cm_listener *listener);
void cm_unlisten(struct cm *cm, struct cm_listener *listener);
void cm_unlisten_all(struct cm *cm); /* any thread: posts the messages */
void cm_listeners_lost(struct cm *cm);
struct cm_listener *cm_listener_at(struct cm *cm, uint32_t slot);
/* Where it listens, as it was asked for. */
void cm_listener_address(const struct cm_listener *listener, char out[64]);

#endif
