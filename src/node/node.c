/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * node.c - the table of nodes, and opening one step by step. close.c closes it in reverse.
 *
 * Owner: the thread in sluice_open().
 */
#define _GNU_SOURCE
#include "cm/cm.h"
#include "cm/connector.h"
#include "cm/listen.h"
#include "node/node.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "common/condition.h"
#include "common/limits.h"
#include "common/uncancelled.h"
#include "datapath/loop/loop.h"
#include "datapath/loop/ownership.h"
#include "datapath/rx/srq.h"
#include "core/session_table.h"
#include "node/guests.h"
#include "node/memory.h"
#include "node/worker_select.h"
#include "node/workers.h"

#define FILES_DEVICE 64u /* descriptors that are enough to go on with */

/* The parts of a node that belong to single folders. */
static struct node_parts {
    struct cm cm;
    struct cpu_plan plan;
    struct memory_budget need;
} parts[NODES_MAX];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* ---- fork -------------------------------------------------------------------------------------- */

/*
 * State that all nodes share is in order in the child because the fork waits until no thread is inside. The order
 * is that in which the locks are taken elsewhere: the table's before the slots', the others alone.
 */
static void before_fork(void) {
    pthread_mutex_lock(&table_lock);
    worker_select_fork(true);
    listeners_fork(true);
    loops_fork(true);
    session_table_fork(true);
    connection_table_fork(true);
}

static void after_fork(void) {
    connection_table_fork(false);
    session_table_fork(false);
    loops_fork(false);
    listeners_fork(false);
    worker_select_fork(false);
    pthread_mutex_unlock(&table_lock);
}

/*
 * No object of the parent's nodes is torn down: devices, threads and memory are the parent's, and some of them
 * are shared. Only descriptors that stand for a process as long as they are open are closed: the claims of
 * CPUs and the statistics page.
 */
static void leave_to_parent(sluice_node *n) {
    uint32_t state = atomic_load(&n->state);
    if (state == NODE_CLOSED)
        return;
    for (uint32_t i = 0; state == NODE_OPEN && i < n->worker_count; i++)
        if (n->workers[i].claim.fd >= 0)
            cpu_claim_release(&n->workers[i].claim);
    if (state == NODE_OPEN)
        stats_forked(&n->stats);
    atomic_fetch_or(&forked_nodes, 1ull << n->index);
    atomic_store(&n->state, NODE_INHERITED);
}

static void in_child(void) {
    UNCANCELLED;
    for (uint32_t i = 0; i < NODES_MAX; i++)
        leave_to_parent(context_at(i));
    ownership_forked();
    after_fork();
}

static void watch_fork(void) {
    pthread_atfork(before_fork, after_fork, in_child);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void post_to_loop(struct sluice_loop *l, struct connection *c, enum loop_msg verb) {
    loop_post_connection(l, c, verb);
}

static void node_detach_device(sluice_node *n);

static const struct upcalls upcalls = {
    .session_new = node_session,
    .session_resume = node_session_resume,
    .session_join = guests_join,
    .session_guest = guests_asked,
    .listener_put_loops = worker_select_release,
    .device_put = node_detach_device,
    .loop_post = post_to_loop,
    .loop_last_wqe = srq_say_last,
    .loop_device_lost = loop_device_lost,
    .loop_assist = loop_assist,
    .loop_srq_low = srq_say_low,
    .session_ended = node_session_ended,
    .connect_inherits = cm_connect_inherits,
    .listener_next_end = listener_next_end,
};

static sluice_node *take_node(void) {
    sluice_node *found = NULL;
    pthread_mutex_lock(&table_lock);
    for (uint32_t i = 0; i < NODES_MAX && !found; i++) {
        if (atomic_load(&context_at(i)->state) != NODE_CLOSED || session_table_used_count(i) > 0)
            continue;
        found = context_at(i);
        /* callers and state are looked at by stale callers at any time: never plainly written */
        memset((char *)found + offsetof(sluice_node, index), 0,
               sizeof *found - offsetof(sluice_node, index));
        memset(&parts[i], 0, sizeof parts[i]);
        found->index = i;
        found->upcalls = &upcalls;
        found->cm = &parts[i].cm;
        found->plan = &parts[i].plan;
        found->memory_budget = &parts[i].need;
        atomic_store(&found->state, NODE_OPENING);
    }
    pthread_mutex_unlock(&table_lock);
    return found;
}

static int no_device(sluice_node *n, int error, sluice_error *e) {
    struct limits limits;
    char why[200];
    limits_read(&limits, "");
    limits_error_text(why, sizeof why, error);
    if (error == EMFILE)
        return error_set(e, SLUICE_ELIMIT, 0, error,
                         "device %s cannot be opened, RLIMIT_NOFILE is %llu: `ulimit -n %llu` or "
                         "LimitNOFILE= raises it",
                         n->choice.device, (unsigned long long)limits.files_max,
                         (unsigned long long)limits.files_max + FILES_DEVICE);
    return error_set(e, SLUICE_EDEVICE, 0, error, "device %s cannot be opened: %s",
                     n->choice.device, why);
}

static int open_device(sluice_node *n, sluice_error *e) {
    struct limits limits;
    limits_read(&limits, "");
    (void)limits_raise_files(limits.files + FILES_DEVICE);
    if (fabric_select(n->options.device, &n->choice) != 0)
        return error_set(e, errno == EMFILE || errno == ENFILE ? SLUICE_ELIMIT : SLUICE_EDEVICE, 0,
                         errno, "%s", n->choice.why);
    n->fabric = n->choice.ops;
    n->options.device = n->choice.device; /* the caller's string need not live on */
    int count = 0;
    struct ibv_device **list = n->fabric->get_device_list(&count);
    for (int i = 0; list && i < count && !n->context; i++)
        if (strcmp(n->fabric->get_device_name(list[i]), n->choice.device) == 0)
            n->context = n->fabric->open_device(list[i]);
    int error = errno;
    if (list)
        n->fabric->free_device_list(list);
    if (!n->context)
        return no_device(n, error, e);
    if (n->fabric->query_device(n->context, &n->device_attr) != 0)
        memset(&n->device_attr, 0, sizeof n->device_attr);
    n->fabric->get_traits(n->context->device, &n->device_attr, &n->traits);
    if (n->options.rendezvous == SLUICE_RENDEZVOUS_WRITE && n->traits.no_immediate) {
        n->fabric->close_device(n->context);
        return error_set(
            e, SLUICE_EDEVICE, 0, 0,
            "device %s has no WRITE with immediate data, which SLUICE_RENDEZVOUS_WRITE "
            "needs: leave it to AUTO or READ",
            n->choice.device);
    }
    n->pd = n->fabric->alloc_pd(n->context);
    error = !n->pd ? errno : n->traits.sent_is_local ? probe_open(n) : 0;
    if (error == 0)
        return SLUICE_OK;
    if (n->pd) {
        n->fabric->dealloc_pd(n->pd);
        n->fabric->close_device(n->context);
        return error_set(e, SLUICE_ENOMEM, SLUICE_REASON_NO_MEMORY, error,
                         "device %s registers no memory: %s", n->choice.device, strerror(error));
    }
    n->fabric->close_device(n->context);
    return error_set(e, SLUICE_EDEVICE, 0, error, "device %s gives no protection domain: %s",
                     n->choice.device, strerror(error));
}

void node_close_device(sluice_node *n) {
    if (!n->context)
        return; /* it was removed and is let go of */
    probe_close(n);
    struct cm_connector *connector = n->cm->connector;
    n->cm->connector = NULL;
    bool left = connector && connector_close(connector, n->pd, n->context);
    int error = left ? 0 : n->fabric->dealloc_pd(n->pd);
    if (error == 0 && !left)
        error = n->fabric->close_device(n->context);
    if (error != 0)
        log_write(&n->log, SLUICE_LOG_ERROR, "device %s cannot be closed: errno %d",
                  n->choice.device, error);
    n->context = NULL;
    n->pd = NULL;
}

/* Gives the device back, with all memory registered on it, ahead of closing. Once; CM thread. */
static void node_detach_device(sluice_node *n) {
    pool_detach(n->pool);
    pool_detach(n->rx_pool);
    regions_detach(&n->regions);
    regcache_lazy_detach(&n->regcache);
    node_close_device(n);
}

int node_open_env(sluice_node **out, const sluice_node_options *o, const struct sluice_env *env,
                  bool manual, sluice_error *e) {
    struct node_options options;
    if (!out)
        return error_set(e, SLUICE_EINVAL, 0, 0, "nowhere to put the node");
    int status = options_node(&options, o, e);
    if (status != SLUICE_OK)
        return status;
    pthread_once(&fork_once, watch_fork);
    sluice_node *n = take_node();
    if (!n)
        return error_set(e, SLUICE_ELIMIT, 0, 0, "a process has at most %d nodes", NODES_MAX);
    n->options = options;
    n->log.name = n->options.name;
    n->log.sink = options.log;
    n->log.arg = options.log_arg;
    n->env = *env;
    n->manual = manual;
    atomic_store(&n->inline_wanted, INLINE_WANTED);
    atomic_store(&n->inline_granted, INLINE_UNKNOWN);
    atomic_store(&n->close_deadline_ns, UINT64_MAX);
    pthread_mutex_init(&n->assist_lock, NULL);
    pthread_mutex_init(&n->lock, NULL);
    pthread_mutex_init(&n->wakeup_lock, NULL);
    regions_init(&n->regions);
    regcache_lazy_init(&n->regcache);
    landing_peers_init(&n->landing_peers);
    condition_init(&n->changed);
    n->connections = connection_table_of(n->index);
    if (!n->connections) {
        status = error_set(e, SLUICE_ENOMEM, 0, 0, "no memory for a node");
        goto give_back;
    }

    if ((status = open_device(n, e)) != SLUICE_OK)
        goto give_back;
    if (worker_select_plan(n) != 0) {
        status = error_set(e, SLUICE_EINVAL, 0, EINVAL, "%s", n->plan->why);
        goto close_device;
    }
    if ((status = node_memory_open(n, e)) != SLUICE_OK)
        goto close_device;
    if ((status = cm_open(n->cm, n, !manual, e)) != SLUICE_OK)
        goto close_memory;
    if ((status = workers_start(n, e)) != SLUICE_OK)
        goto close_cm;
    worker_select_open(n);
    atomic_store(&n->state, NODE_OPEN);
    *out = n;
    return SLUICE_OK;

close_cm:
    cm_close(n->cm);
close_memory:
    node_memory_close(n);
close_device:
    node_close_device(n);
give_back:
    landing_peers_close(&n->landing_peers);
    regcache_lazy_close(&n->regcache);
    regions_close(&n->regions);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->wakeup_lock);
    pthread_mutex_destroy(&n->lock);
    pthread_mutex_destroy(&n->assist_lock);
    atomic_store(&n->state, NODE_CLOSED);
    return status;
}

int sluice_open(sluice_node **out, const sluice_node_options *o, sluice_error *e) {
    UNCANCELLED;
    return node_open_env(out, o, &env_default, false, e);
}
