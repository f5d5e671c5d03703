/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * node.c - opening a node step by step, and closing it whatever its sessions are doing.
 *
 * Closing. No call may enter any more, and those inside are waited for; every session is hung up;
 * workers and loops somebody polls bring theirs to an end themselves. A loop nobody polls is
 * seized, and the closing thread runs it with its events going nowhere. When no session is left
 * the threads are stopped and everything goes in the reverse order of opening. A session that does
 * not end (a device that answers no more) is given up after a limit, with an error in the log.
 *
 * Owner: the thread in sluice_open() or sluice_close().
 */
#define _GNU_SOURCE
#include "node/node.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "datapath/datapath.h"
#include "datapath/hunger.h"
#include "datapath/slots.h"
#include "node/place.h"
#include "pool/arena.h"
#include "pool/shortage.h"

/* Descriptors, beside the device's own: of the node, two arenas more included; of a worker; of the software
 * device for each process it is connected with. */
#define FILES_NODE 12u
#define FILES_LOOP 5u
#define FILES_PEER 5u
#define GROW_AHEAD_BYTES ((uint64_t)1 << 20) /* free memory below this: more, ahead of need */

static struct sluice_node nodes[NODES_MAX];
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
_Atomic bool node_forked;

/* Nothing is torn down in the child: devices, threads and memory are the parent's. */
static void in_child(void) {
    atomic_store(&node_forked, true);
}

static void watch_fork(void) {
    pthread_atfork(NULL, NULL, in_child);
}

/* ---- opening --------------------------------------------------------------------------------- */

static sluice_node *take_node(void) {
    sluice_node *found = NULL;
    pthread_mutex_lock(&table_lock);
    for (uint32_t i = 0; i < NODES_MAX && !found; i++) {
        if (atomic_load(&nodes[i].state) != NODE_CLOSED || slots_taken(i) > 0)
            continue;
        found = &nodes[i];
        /* callers and state are looked at by stale callers at any time: never plainly written */
        memset((char *)found + offsetof(sluice_node, index), 0,
               sizeof *found - offsetof(sluice_node, index));
        found->index = i;
        atomic_store(&found->state, NODE_OPENING);
    }
    pthread_mutex_unlock(&table_lock);
    return found;
}

static int open_device(sluice_node *n, sluice_error *e) {
    if (fabric_choose(n->options.device, &n->choice) != 0)
        return error_set(e, SLUICE_EDEVICE, 0, errno, "%s", n->choice.why);
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
        return error_set(e, SLUICE_EDEVICE, 0, error, "device %s cannot be opened: %s",
                         n->choice.device, strerror(error));
    if (n->fabric->query_device(n->context, &n->device_attr) != 0)
        memset(&n->device_attr, 0, sizeof n->device_attr);
    n->fabric->get_traits(&n->device_attr, &n->traits);
    if ((n->pd = n->fabric->alloc_pd(n->context)) != NULL)
        return SLUICE_OK;
    error = errno;
    n->fabric->close_device(n->context);
    return error_set(e, SLUICE_EDEVICE, 0, error, "device %s gives no protection domain: %s",
                     n->choice.device, strerror(error));
}

static void close_device(sluice_node *n) {
    if (!n->context)
        return; /* it was removed and is let go of */
    int error = n->fabric->dealloc_pd(n->pd);
    if (error == 0)
        error = n->fabric->close_device(n->context);
    if (error != 0)
        node_log(n, SLUICE_LOG_ERROR, "device %s cannot be closed: errno %d", n->choice.device,
                 error);
    n->context = NULL;
    n->pd = NULL;
}

void node_let_go(sluice_node *n) {
    pool_let_go(n->pool);
    pool_let_go(n->rx_pool);
    regions_let_go(&n->regions);
    registrations_let_go(&n->registrations);
    close_device(n);
}

/* Connections times depth times size, before any of it is allocated. */
static int check_need(sluice_node *n, const struct backing_wish *wish, sluice_error *e) {
    struct limits limits;
    char why[200];
    limits_read(&limits, "");
    const struct need_input in = {
        .sessions = n->options.sessions_max,
        .chosen = n->options.sessions_chosen,
        .depth = GRANT_MIN,
        .full = CREDITS_DEFAULT,
        .frame = ((uint64_t)1 << n->options.eager_log2) + POOL_HEADROOM,
        .receive_bytes_max = n->options.receive_bytes_max,
        .memory_bytes_max = n->options.memory_bytes_max,
        .locks = !n->fabric->software,
        .limits = &limits,
        .huge_log2 = wish->huge_log2,
        .numa = wish->numa,
        .files = FILES_NODE + FILES_LOOP * n->options.workers,
        .files_peer = n->fabric->software ? FILES_PEER : 0,
    };
    int error = need_make(&n->need, &in, why, sizeof why);
    if (error == -EMFILE)
        return error_set(e, SLUICE_ELIMIT, SLUICE_REASON_NONE, EMFILE, "%s", why);
    if (error != 0)
        return error_set(e, error == -EINVAL ? SLUICE_EINVAL : SLUICE_ENOMEM,
                         error == -EINVAL ? SLUICE_REASON_NONE : SLUICE_REASON_NO_MEMORY, -error,
                         "%s", why);
    n->options.sessions_max = n->need.sessions;
    if (n->need.files[0])
        node_log(n, SLUICE_LOG_INFO, "%s", n->need.files);
    if (n->need.warning[0])
        node_log(n, n->need.serious ? SLUICE_LOG_WARNING : SLUICE_LOG_INFO, "%s", n->need.warning);
    return SLUICE_OK;
}

static void show_memory(sluice_node *n) {
    for (unsigned i = 0; i < POOL_CLASSES; i++) /* the last has any size */
        n->stats.page->class_bytes[i] = pool_class_bytes(i);
    pool_show(n->pool, &n->stats.page->memory[STATS_SEND]);
    pool_show(n->rx_pool, &n->stats.page->memory[STATS_RECEIVE]);
}

static void on_shortage(const char *text, void *arg) {
    node_log(arg, SLUICE_LOG_WARNING, "%s", text);
}

static int open_memory(sluice_node *n, sluice_error *e) {
    struct pool_config config = {n->fabric, n->pd, 0, {0}};
    config.wish.numa = (int16_t)n->plan.arena_numa;
    backing_from_environment(&config.wish);
    int status = check_need(n, &config.wish, e);
    if (status != SLUICE_OK)
        return status;
    config.bytes_max = n->options.memory_bytes_max - n->options.receive_bytes_max;
    int error = pool_open_with(&n->pool, &config);
    if (error == 0) {
        config.bytes_max = n->options.receive_bytes_max;
        if ((error = pool_open_with(&n->rx_pool, &config)) != 0)
            pool_close(n->pool);
    }
    if (error != 0) {
        char why[200];
        struct shortage shortage = {POOL_PAGE, config.bytes_max, -error, !n->fabric->software, 0};
        shortage_explain(why, sizeof why, &shortage);
        return error_set(e, SLUICE_ENOMEM, SLUICE_REASON_NO_MEMORY, -error, "%s", why);
    }
    hunger_open(n);
    pool_on_shortage(n->pool, !n->fabric->software, on_shortage, n);
    pool_on_shortage(n->rx_pool, !n->fabric->software, on_shortage, n);
    if (!n->manual) {
        pool_grow_ahead(n->pool, GROW_AHEAD_BYTES);
        pool_grow_ahead(n->rx_pool, GROW_AHEAD_BYTES);
    }
    error = stats_open(&n->stats, n->options.name, n->choice.device);
    if (error == 0) {
        show_memory(n);
        return SLUICE_OK;
    }
    pool_close(n->rx_pool);
    pool_close(n->pool);
    return error_set(e, SLUICE_ENOMEM, 0, -error, "no statistics page: %s", strerror(-error));
}

static void *worker_main(void *arg) {
    struct node_worker *worker = arg;
    if (worker->claim.cpu >= 0)
        cpu_pin_self(worker->claim.cpu);
    loop_run(worker->loop);
    return NULL;
}

static int claim_cpu(sluice_node *n, uint32_t i, sluice_error *e) {
    struct cpu_claim *claim = &n->workers[i].claim;
    *claim = (struct cpu_claim){-1, -1};
    if (n->manual)
        return SLUICE_OK;
    if (!n->options.worker_cpus) {
        if (cpu_claim_of(claim, n->plan.cpus, n->plan.cpu_count, n->plan.chosen) != 0)
            *claim = (struct cpu_claim){-1, -1}; /* not pinned is not worse than not started */
        return SLUICE_OK;
    }
    int cpu = n->options.worker_cpus[i];
    if (cpu < 0)
        return SLUICE_OK;
    int error = cpu_claim_fixed(claim, cpu);
    if (error == 0)
        return SLUICE_OK;
    return error_set(e, SLUICE_EINVAL, 0, -error, "worker %u cannot be pinned to CPU %d: %s", i,
                     cpu, strerror(-error));
}

static int start_worker(sluice_node *n, uint32_t i, sluice_error *e) {
    struct node_worker *worker = &n->workers[i];
    sigset_t all, before;
    char name[24]; /* 15 characters are taken, and there are two digits at most */
    int status = claim_cpu(n, i, e);
    if (status != SLUICE_OK)
        return status;
    status = loop_open(&worker->loop, n, worker->claim.cpu, e);
    if (status != SLUICE_OK)
        goto release_cpu;
    if (n->manual)
        return SLUICE_OK;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&worker->thread, NULL, worker_main, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        worker->started = true;
        snprintf(name, sizeof name, "sluice-w%u", i % WORKERS_MAX);
        pthread_setname_np(worker->thread, name);
        return SLUICE_OK;
    }
    status = error_set(e, SLUICE_ELIMIT, 0, error, "worker %u cannot be started: %s", i,
                       strerror(error));
    loop_seize(worker->loop);
    loop_close(worker->loop);
release_cpu:
    if (worker->claim.fd >= 0)
        cpu_claim_release(&worker->claim);
    return status;
}

static void stop_workers(sluice_node *n) {
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct node_worker *worker = &n->workers[i];
        loop_seize(worker->loop);
        if (worker->started)
            pthread_join(worker->thread, NULL);
        loop_close(worker->loop);
        if (worker->claim.fd >= 0)
            cpu_claim_release(&worker->claim);
    }
    n->worker_count = 0;
}

static int start_workers(sluice_node *n, sluice_error *e) {
    for (uint32_t i = 0; i < n->options.workers; i++) {
        int status = start_worker(n, i, e);
        if (status != SLUICE_OK) {
            stop_workers(n);
            return status;
        }
        n->worker_count = i + 1;
    }
    return SLUICE_OK;
}

int node_open_env(sluice_node **out, const sluice_node_options *o, const struct sluice_env *env,
                  bool manual, sluice_error *e) {
    struct node_options options;
    if (forked())
        return error_set(e, SLUICE_EFORKED, 0, 0, "this process was forked from one with a node");
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
    n->env = *env;
    n->manual = manual;
    atomic_store(&n->inline_bytes, INLINE_WANTED);
    atomic_store(&n->close_deadline_ns, UINT64_MAX);
    pthread_mutex_init(&n->care, NULL);
    pthread_mutex_init(&n->lock, NULL);
    pthread_mutex_init(&n->bells, NULL);
    regions_init(&n->regions);
    registrations_init(&n->registrations);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&n->changed, &attr);
    pthread_condattr_destroy(&attr);

    if ((status = open_device(n, e)) != SLUICE_OK)
        goto give_back;
    if (place_plan(n) != 0) {
        status = error_set(e, SLUICE_EINVAL, 0, EINVAL, "%s", n->plan.why);
        goto close_device;
    }
    if ((status = open_memory(n, e)) != SLUICE_OK)
        goto close_device;
    if ((status = cm_open(&n->cm, n, !manual, e)) != SLUICE_OK)
        goto close_memory;
    if ((status = start_workers(n, e)) != SLUICE_OK)
        goto close_cm;
    place_open(n);
    atomic_store(&n->state, NODE_OPEN);
    *out = n;
    return SLUICE_OK;

close_cm:
    cm_close(&n->cm);
close_memory:
    stats_close(&n->stats);
    pool_close(n->rx_pool);
    pool_close(n->pool);
close_device:
    close_device(n);
give_back:
    registrations_close(&n->registrations);
    regions_close(&n->regions);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->bells);
    pthread_mutex_destroy(&n->lock);
    pthread_mutex_destroy(&n->care);
    atomic_store(&n->state, NODE_CLOSED);
    return status;
}

int sluice_open(sluice_node **out, const sluice_node_options *o, sluice_error *e) {
    return node_open_env(out, o, &env_default, false, e);
}

/* ---- closing --------------------------------------------------------------------------------- */

#define STEP_NS 1000000u /* between two looks at loops that may need to be seized */

/* Takes every loop of the application that nobody is inside of, or all of them. */
static void seize_loops(sluice_node *n, bool all) {
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++) {
        pthread_mutex_lock(&n->lock);
        struct sluice_loop *l = n->loops[i];
        pthread_mutex_unlock(&n->lock);
        bool worker = false;
        for (uint32_t w = 0; w < n->worker_count; w++)
            worker |= l == n->workers[w].loop;
        if (!l || l->discard || (worker && !n->manual) || (!all && atomic_load(&l->poll_busy) != 0))
            continue;
        loop_seize(l);
        l->discard = true; /* from here on this thread is the one that runs it */
        l->out_max = l->out_count = 0;
        event_take_back(l);
    }
}

/* Runs what this thread has seized; returns how much it found. */
static unsigned run_seized(sluice_node *n) {
    unsigned found = 0;
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++) {
        pthread_mutex_lock(&n->lock);
        struct sluice_loop *l = n->loops[i];
        pthread_mutex_unlock(&n->lock);
        if (l && l->discard)
            found += loop_turn(l);
    }
    if (n->manual)
        found += cm_turn(&n->cm, 0);
    return found;
}

static void wait_step(sluice_node *n) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += STEP_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&n->lock);
    if (slots_taken(n->index) > 0)
        pthread_cond_timedwait(&n->changed, &n->lock, &until);
    pthread_mutex_unlock(&n->lock);
}

/* The real clock: a test's may stand still. */
static uint64_t real_now(void) {
    return env_now(&env_default);
}

static void end_sessions(sluice_node *n, uint64_t grace_ns) {
    uint64_t limit = grace_ns > LINGER_NS ? grace_ns : LINGER_NS;
    uint64_t start = real_now(), now = env_now(&n->env);
    uint64_t due = limit > UINT64_MAX - 1 - now ? UINT64_MAX - 1 : now + limit;
    uint64_t seize_all = limit > UINT64_MAX / 2 - start ? UINT64_MAX : start + limit;
    atomic_store(&n->close_deadline_ns, due);
    while (slots_taken(n->index) > 0) {
        uint64_t real = real_now();
        /* Again and again: a request that was being decided becomes a session only now. */
        node_hangup_all(n, grace_ns);
        seize_loops(n, real >= seize_all);
        if (seize_all != UINT64_MAX && real >= seize_all + CLOSE_EXTRA_NS) {
            node_log(n, SLUICE_LOG_ERROR, "%u sessions did not end; given up",
                     slots_taken(n->index));
            break;
        }
        if (run_seized(n) == 0)
            wait_step(n);
    }
    seize_loops(n, true);
}

static void close_loops(sluice_node *n) {
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++) {
        struct sluice_loop *l = n->loops[i];
        bool worker = false;
        for (uint32_t w = 0; w < n->worker_count; w++)
            worker |= l == n->workers[w].loop;
        if (l && !worker)
            loop_close(l);
    }
}

/* From a handler the thread to be joined would be the caller's own. */
static bool in_handler(const sluice_node *n) {
    struct sluice_loop *l = loop_self.current;
    bool nested = false;
    if (!l || l->node != n || !loop_enter(l, &nested))
        return false;
    loop_leave(l, nested);
    return nested;
}

void sluice_close(sluice_node *n, uint64_t grace_ns) {
    if (!n || forked())
        return;
    if (in_handler(n)) {
        node_log(n, SLUICE_LOG_ERROR, "sluice_close() must not be called from a handler");
        return;
    }
    uint32_t open = NODE_OPEN;
    if (!atomic_compare_exchange_strong(&n->state, &open, NODE_CLOSING))
        return;
    while (atomic_load(&n->callers) > 0) {
        if (n->manual)
            cm_turn(&n->cm, 0);
        sched_yield();
    }
    cm_unlisten_all(&n->cm);
    end_sessions(n, grace_ns);
    stop_workers(n);
    close_loops(n);
    cm_close(&n->cm);
    stats_close(&n->stats);
    pool_close(n->rx_pool);
    registrations_close(&n->registrations);
    regions_close(&n->regions);
    pool_close(n->pool);
    close_device(n);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->bells);
    pthread_mutex_destroy(&n->lock);
    pthread_mutex_destroy(&n->care);
    atomic_store(&n->state, NODE_CLOSED);
}

sluice_node *node_at(uint32_t index) {
    return &nodes[index % NODES_MAX];
}

bool node_call_begin(sluice_node *n) {
    atomic_fetch_add(&n->callers, 1);
    if (atomic_load(&n->state) == NODE_OPEN)
        return true;
    atomic_fetch_sub(&n->callers, 1);
    return false;
}

void node_call_end(sluice_node *n) {
    atomic_fetch_sub(&n->callers, 1);
}
