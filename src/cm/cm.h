/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm.h - the connection-management thread: every rdma_cm_id of a node, listeners, timers, device
 * events.
 *
 * One epoll over the event channel, the device's async events, and the thread's wakeup. Events
 * are copied and acknowledged before anything else is done with them, so that rdma_destroy_id()
 * can never wait for this thread itself. What an event does in which state is in cm_table.c. The
 * thread never runs application code and never touches a QP: it tells loops what to do by messages
 * (loop_post) and is told by messages (cm_post). One exception: when the device is gone it runs
 * loops that no thread polls (device_removal.c).
 *
 * Owner: the CM thread, except where marked. cm_progress() is one round of it and may be called from a
 * test instead of the thread.
 */
#ifndef CM_CM_H
#define CM_CM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <urcu/list.h>

#include "common/assert.h"
#include "base/epoll_source.h"
#include "base/stats.h"
#include "cm/admission.h"
#include "cm/dial_line.h"
#include "core/cm_conn.h"
#include "core/mailbox.h"
#include "fabric/fabric.h"

struct cm_connector;
struct cm_event;
struct cm_resolver;
struct sluice_node;

struct cm {
    struct sluice_node *node;
    struct rdma_event_channel *channel;
    int epoll_fd;
    struct cds_list_head conns;
    uint64_t next_deadline_ns; /* no deadline is earlier; may be too early itself */
    uint64_t now_ns;
    struct admission admission;
    struct dial_lines dials;
    const struct cm_event *cause;   /* the event that is being handled, or NULL */
    struct cm_resolver *resolver;   /* NULL until a host name was dialed */
    struct cm_connector *connector; /* NULL: connecting does not block on this device */
    struct event_source source, async_source,
        names_source; /* the last: with a resolver that has a channel */
    /* the device's end (device_removal.c) */
    struct cm_owner watch;   /* an id bound to the device and nothing more */
    struct fabric_mark mark; /* rdma_cm's own context of it */
    bool device_lost, device_gone;
    uint64_t ports_down[4]; /* a bit for each of which it was told (async_event.c) */
    /* addr_change.c: the last warning of an address that changed, of this side or of a peer; 0: none */
    uint64_t moved_ns, peer_moved_ns;
    uint64_t lost_ns;
    pthread_t thread;
    bool started;
    _Atomic bool stop;
    struct stats_cm *stats;
    struct mailbox *mailbox; /* the node's cm_mailbox */
#if ASSERTIONS
    const void *_Atomic runner; /* what cm_this_thread() is in its thread; NULL: a test drives it */
#endif
};

/* An address that no other thread has. */
const void *cm_this_thread(void);

/* The calling thread is the CM thread, or the test in its place. */
static inline void cm_assert_thread(const struct cm *cm) {
#if ASSERTIONS
    const void *runner = atomic_load(&cm->runner);
    ASSERT(!runner || runner == cm_this_thread());
#else
    (void)cm;
#endif
}

/* 0 or a negative status with *e. thread false: the caller drives cm_progress(). */
int cm_open(struct cm *cm, struct sluice_node *node, bool thread, sluice_error *e);
/* Every session is gone; listeners that are left are closed. */
void cm_close(struct cm *cm);
/* One round; sleeps up to wait_ns when there is nothing. Returns how many things it did. */
unsigned cm_progress(struct cm *cm, uint64_t wait_ns);
_Static_assert(CM_MSG_UNLISTEN < WAKEUP_VERBS, "the wakeup carries them");

#endif
