/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * node.h - a node: one device, its memory, the CM thread, the workers and the loops.
 *
 * Nodes live in a static table and are never freed, so a call that races with sluice_close() finds
 * a closed node and not a hole. Constant from sluice_open() to sluice_close() are all fields but
 * the ones marked; `lock` protects those marked with it.
 *
 * Owner: the thread that opens and closes it.
 */
#ifndef NODE_NODE_H
#define NODE_NODE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <sluice/sluice.h>

#include "base/cpus.h"
#include "base/env.h"
#include "base/error.h"
#include "base/stats.h"
#include "cm/cm.h"
#include "core/probe.h"
#include "core/region.h"
#include "core/registrations.h"
#include "datapath/loop/loop.h"
#include "fabric/fabric.h"
#include "node/cpu_plan.h"
#include "node/memory_budget.h"
#include "pool/pool.h"

#define WORKERS_MAX 64
#define INLINE_WANTED 256u     /* bytes of a frame that should go with the work request */
#define LINGER_NS 100000000ull /* how long a farewell and what is in flight may take */
#define DRAIN_NS 1000000000ull /* between two looks whether a queue pair still drains: drain.c */
#define CLOSE_EXTRA_NS 5000000000ull /* sluice_close() gives up on a stuck session after this */

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
    uint32_t without;          /* SLUICE_WITHOUT_INLINE ... */
    uint32_t registrations;    /* sluice_registrations */
    uint64_t registration_bytes_max;
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
    int device_numa; /* NUMA node of the device, -1: none, or not known */
    struct plan plan;
    struct need need;
    struct pool *pool, *rx_pool; /* for the application and sending; for receiving */
    struct regions regions;
    struct registrations registrations;
    struct stats stats;
    struct cm cm;
    struct node_worker workers[WORKERS_MAX];
    uint32_t worker_count;
    _Atomic uint32_t inline_bytes; /* what a QP was granted last; INLINE_WANTED before */
    _Atomic uint64_t
        close_deadline_ns; /* while closing: no session takes longer; else UINT64_MAX */

    _Atomic bool device_lost;      /* it failed or was removed: written by the CM thread */
    _Atomic uint32_t device_users; /* loops that hold a CQ of it */

    pthread_mutex_t care; /* taken before lock: no loop is opened or closed, and the device stays */
    pthread_mutex_t lock;
    pthread_mutex_t bells;                      /* taken last: loops may be looked up and rung */
    pthread_cond_t changed;                     /* a session was freed, or a listener answered */
    struct sluice_loop *loops[STATS_LOOPS_MAX]; /* lock, written under bells too: all there are */
    _Atomic uint64_t memory_back;               /* see alloc_wait.c */
    /* see landing.c: what all sessions hold; when one that holds nothing last waited */
    _Atomic uint64_t landing_bytes, landing_wanted_ns;
};

/* One bit for each node that came through fork(): it is the parent's. None elsewhere. */
extern _Atomic uint64_t node_inherited;
_Static_assert(NODES_MAX <= 64, "a bit for every node");
#define FORKED_TEXT "this node came through fork(), it is the parent's"

static inline uint64_t forked_bits(void) {
    return atomic_load_explicit(&node_inherited, memory_order_relaxed);
}

static inline bool forked_index(uint64_t index) {
    uint64_t bits = forked_bits();
    return __builtin_expect(bits != 0, 0) && index < NODES_MAX && (bits >> index & 1);
}

/* A session, or a listener, of the parent's. */
static inline bool forked_id(uint64_t id) {
    return forked_index(id >> 56);
}

static inline bool forked_node(const sluice_node *n) {
    return __builtin_expect(forked_bits() != 0, 0) && n && forked_index(n->index);
}

static inline bool forked_loop(const struct sluice_loop *l) {
    return __builtin_expect(forked_bits() != 0, 0) && l && forked_node(l->node);
}

static inline bool forked_region(const struct sluice_region *r) {
    return __builtin_expect(forked_bits() != 0, 0) && r && forked_node(r->node);
}

bool node_forked_pool(const struct pool *pool); /* the slow part */

static inline bool forked_msg(const struct sluice_msg *msg) {
    return __builtin_expect(forked_bits() != 0, 0) && msg && node_forked_pool(msg->pool);
}

/* sluice_open() with an environment of the caller's; manual: no threads are started. */
int node_open_env(sluice_node **out, const sluice_node_options *o, const struct sluice_env *env,
                  bool manual, sluice_error *e);

/* The node with this index, open or not. */
sluice_node *node_at(uint32_t index);
/* Brackets a call that needs the node open throughout. False: it is not. */
bool node_call_begin(sluice_node *n);
void node_call_end(sluice_node *n);

/* Gives the device back, with all memory registered on it, ahead of closing. Once; CM thread. */
void node_let_go(sluice_node *n);

/* ---- options.c: checked, defaults filled in. 0 or EINVAL with *e. ---------------------------- */
int options_node(struct node_options *out, const sluice_node_options *o, sluice_error *e);
/* OK: the caller has the reference that out->keys is, see keyring.h. */
int options_link(struct link_config *out, sluice_node *n, const sluice_link_options *o,
                 bool dialing, sluice_error *e);

/* ---- address.c ------------------------------------------------------------------------------- */
/*
 * Takes an address apart. Numeric hosts and, listening, "localhost" and "*" end up in *out; another
 * name is copied into host (256 bytes) and only the port is set. 0 or EADDRESS with *e.
 */
int address_parse(const char *text, bool listening, union address *out, char *host,
                  sluice_error *e);
void address_format(const struct sockaddr *addr, char out[64]);

/* ---- sessions.c ------------------------------------------------------------------------------- */
/*
 * A slot filled with what the link asks for, on a loop, not published yet. Any thread. NULL: the
 * limit is reached, there is no memory, or every worker is drained.
 */
struct session *node_session(sluice_node *n, const struct link_config *link);
/* Asks every session of the node to end within grace_ns. */
void node_hangup_all(sluice_node *n, uint64_t grace_ns);
/* A session ended and its slot is free: wakes sluice_close(). */
void node_session_ended(sluice_node *n);

/* ---- log.c ----------------------------------------------------------------------------------- */
void node_log(sluice_node *n, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Fills *e (may be NULL) and returns status. */
int error_set(sluice_error *e, sluice_status status, sluice_reason reason, int os_errno,
              const char *format, ...) __attribute__((format(printf, 5, 6)));
/* What a session's end means as a status. */
sluice_status reason_status(sluice_reason reason);

#endif
