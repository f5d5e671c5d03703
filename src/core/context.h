/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * context.h - what the connection manager and the data path share of a node: device, memory, options,
 * loops.
 *
 * Nodes live in a static table and are never freed, so a call that races with sluice_close() finds
 * a closed node and not freed memory. Constant from sluice_open() to sluice_close() are all fields but
 * the ones marked; `lock` protects those marked with it.
 *
 * Owner: the thread that opens and closes it, see node/node.h.
 */
#ifndef CORE_CONTEXT_H
#define CORE_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <sluice/sluice.h>

#include "base/cpus.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/stats.h"
#include "core/connection_table.h"
#include "core/landing_peers.h"
#include "core/resumable.h"
#include "core/mailbox.h"
#include "core/probe.h"
#include "core/region.h"
#include "core/registrations.h"
#include "core/session.h"
#include "core/upcalls.h"
#include "fabric/fabric.h"
#include "pool/pool.h"

#define WORKERS_MAX 64
#define INLINE_WANTED 256u        /* bytes of a frame that should go with the work request */
#define INLINE_UNKNOWN UINT32_MAX /* there was no queue pair yet */
#define LINGER_NS 100000000ull /* between two looks whether a farewell moves on: session/close.c */
#define LEAVE_NS 2000000000ull /* how long it may take */
#define LEAVE_MOST_NS 5000000000ull /* the same where the device repeats what was lost */
#define DRAIN_NS 1000000000ull /* between two looks whether a queue pair still drains: drain.c */
#define CLOSE_EXTRA_NS 5000000000ull /* sluice_close() gives up on a session after this */

/* The text of a call that begins something on a node whose device is gone. */
#define DEVICE_LOST_TEXT                                                                           \
    "the device failed or was removed; the node must be closed and opened again"

enum node_state {
    NODE_CLOSED,
    NODE_OPENING,
    NODE_OPEN,
    NODE_CLOSING,
    NODE_INHERITED, /* came through fork(): it stays as it is */
};

struct node_options { /* sluice_node_options with the defaults filled in */
    char name[64];
    const char *device;
    uint32_t workers, idle, eager_log2, message_log2, sessions_max, handshakes_max, requests_max;
    const int *worker_cpus;
    uint64_t memory_bytes_max, message_bytes_max, receive_bytes_max;
    uint32_t memory_numa;      /* as the option */
    bool sessions_chosen;      /* sessions_max is the caller's */
    uint64_t rendezvous_bytes; /* 0: by device */
    uint32_t rendezvous;       /* sluice_rendezvous */
    uint32_t without;          /* bits of techniques.h */
    uint32_t registrations;    /* sluice_registrations */
    uint64_t registration_bytes_max;
    uint32_t soft_net; /* sluice_soft_net */
    void (*log)(int level, const char *text, void *log_arg);
    void *log_arg;
};

struct node_worker {
    struct sluice_loop *loop;
    struct cpu_claim claim;
    pthread_t thread;
    bool started;
    int numa;             /* NUMA node of its CPU, -1: not pinned, or not known */
    _Atomic bool drained; /* it gets no new sessions */
};

struct sluice_node {
    _Atomic uint32_t state;   /* enum node_state */
    _Atomic uint32_t callers; /* calls of the application that closing waits for */
    uint32_t index;
    const struct upcalls *upcalls;
    bool manual; /* a test drives the CM thread's and the loops' turns itself */
    struct node_options options;
    struct sluice_env env;
    struct fabric_choice choice;
    const struct fabric_ops *fabric;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_device_attr device_attr;
    struct fabric_traits traits; /* of the device */
    struct probe probe;
    int device_numa;             /* NUMA node of the device, -1: none, or not known */
    struct pool *pool, *rx_pool; /* for the application and sending; for receiving */
    uint64_t frames_max;         /* receive buffers that the latter has room for */
    _Atomic uint32_t primed;     /* connections that have the first of them: rx/recv_queue.c */
    struct regions regions;
    struct regcache_lazy regcache;
    struct stats stats;
    struct mailbox cm_mailbox; /* messages for the CM thread */
    struct replay *replay;     /* authentications seen lately; has a lock of its own; or NULL */
    /* Parts of single folders: NULL or theirs. */
    struct cm *cm;
    struct cpu_plan *plan;               /* node/cpu_plan.h */
    struct memory_budget *memory_budget; /* node/memory_budget.h */
    struct node_worker workers[WORKERS_MAX];
    uint32_t worker_count;
    /* queue_pair.c: what a queue pair is asked to have, and what the last one was granted */
    _Atomic uint32_t inline_wanted, inline_granted;
    _Atomic uint64_t
        close_deadline_ns; /* while closing: no session takes longer; else UINT64_MAX */

    struct log log;
    _Atomic bool device_lost;      /* it failed or was removed: written by the CM thread */
    _Atomic uint32_t device_users; /* loops that hold a CQ of it */

    pthread_mutex_t
        assist_lock; /* taken before lock: no loop is opened or closed, and the device stays */
    pthread_mutex_t lock;
    pthread_mutex_t wakeup_lock; /* taken last: loops may be looked up and woken */
    pthread_cond_t changed;      /* a session was freed, or a listener answered */
    struct sluice_loop
        *loops[STATS_LOOPS_MAX];  /* lock, written under wakeup_lock too: all there are */
    _Atomic uint64_t memory_back; /* see alloc_wait.c */
    /* see landing.c: what all peers hold of the reserve; when a session that holds nothing last waited */
    _Atomic uint64_t landing_bytes, landing_wanted_ns;
    struct landing_peers landing_peers;
    struct connection_table *connections;
    struct session *resumable[RESUMABLE_BUCKETS]; /* resumable.h; lock */
};

/* The node with this index, open or not. */
sluice_node *context_at(uint32_t index);
/* Brackets a call that needs the node open throughout. False: it is not. */
bool context_call_begin(sluice_node *n);
void context_call_end(sluice_node *n);

/* How long a farewell may take. */
static inline uint64_t node_leave_ns(const sluice_node *n) {
    return n->traits.repeats ? LEAVE_MOST_NS : LEAVE_NS;
}

/* Hands a message of a connection to the CM thread. Any thread. */
static inline void cm_post(sluice_node *n, struct connection *c, enum cm_msg verb) {
    mailbox_post(&n->cm_mailbox, &c->to_cm[verb], (uint32_t)verb, c->slot,
                 connection_generation(c));
}

#endif
