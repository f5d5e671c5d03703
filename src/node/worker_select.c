/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * worker_select.c - which loop gets a new session, and which worker gets none.
 *
 * Any thread. One lock for all nodes: it is held for a look at every candidate, once when a session
 * opens. Under it the session is counted too, so that two threads that choose at the same time do not
 * choose the same loop for the same reason. The values of a loop are atomic and may be a moment old.
 */
#define _GNU_SOURCE /* secure_getenv */
#include "node/worker_select.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu_begin.h"
#include "base/cpus.h"
#include "base/topology.h"
#include "common/uncancelled.h"
#include "node/guests.h"
#include "node/node.h"
#include "datapath/loop/loop.h"

/* A rate older than this is that of a worker which has become idle. */
#define RATE_OLD_NS (2 * LOOP_RATE_NS)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t turns; /* lock: sessions placed so far */

void worker_select_fork(bool begins) {
    if (begins)
        pthread_mutex_lock(&lock);
    else
        pthread_mutex_unlock(&lock);
}

/* ---- the decision ------------------------------------------------------------------------------ */

static uint64_t load_of(const struct worker_candidate *c) {
    uint64_t sessions = c->sessions * WORKER_SELECT_SESSION_BYTES;
    return c->bytes > UINT64_MAX - sessions ? UINT64_MAX : sessions + c->bytes;
}

static bool is_near(const struct worker_candidate *c, int device_numa) {
    return device_numa < 0 || c->numa < 0 || c->numa == device_numa;
}

/* Whether a goes before b; neither is drained. */
static bool goes_before(const struct worker_candidate *a, const struct worker_candidate *b,
                        int device_numa) {
    bool near = is_near(a, device_numa);
    if (near != is_near(b, device_numa))
        return near;
    uint64_t load = load_of(a), other = load_of(b);
    if (load != other)
        return load < other;
    return a->turn < b->turn;
}

int worker_select_pick(const struct worker_candidate *list, uint32_t count, int device_numa) {
    int best = -1;
    for (uint32_t i = 0; i < count; i++)
        if (!list[i].drained && (best < 0 || goes_before(&list[i], &list[best], device_numa)))
            best = (int)i;
    return best;
}

/* ---- candidates ----------------------------------------------------------------------------------- */

static uint32_t sessions_of(struct sluice_loop *l) {
    /* Read apart: a listener that comes or goes in between must not make it wrap. */
    uint32_t listed = atomic_load_explicit(&l->listed, memory_order_relaxed);
    uint32_t assigned = atomic_load_explicit(&l->assigned, memory_order_relaxed);
    return assigned > listed ? assigned - listed : 0;
}

static uint64_t rate_of(struct sluice_loop *l, uint64_t now) {
    uint64_t then = atomic_load_explicit(&l->rate_ns, memory_order_relaxed);
    /* The clocks of two threads' readings may cross: a rate from the future is a fresh one. */
    if (now > then && now - then > RATE_OLD_NS)
        return 0;
    return atomic_load_explicit(&l->rate, memory_order_relaxed);
}

static struct sluice_loop *pick_worker(sluice_node *n) {
    struct worker_candidate list[WORKERS_MAX];
    uint64_t now = env_now(&n->env);
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct node_worker *worker = &n->workers[i];
        list[i] = (struct worker_candidate){
            .numa = worker->numa,
            .drained = atomic_load_explicit(&worker->drained, memory_order_relaxed),
            .sessions = sessions_of(worker->loop),
            .bytes = rate_of(worker->loop, now),
            .turn = worker->loop->placed,
        };
    }
    int at = worker_select_pick(list, n->worker_count, n->device_numa);
    return at < 0 ? NULL : n->workers[at].loop;
}

/* The application's own choice of loops: where they run is its business, only the sessions count. */
static struct sluice_loop *pick_listed(const struct link_config *link) {
    struct worker_candidate list[STATS_LOOPS_MAX];
    for (uint32_t i = 0; i < link->loop_count; i++)
        list[i] = (struct worker_candidate){
            .numa = WORKER_SELECT_NO_NUMA,
            .sessions = sessions_of(link->loops[i]),
            .turn = link->loops[i]->placed,
        };
    int at = worker_select_pick(list, link->loop_count, WORKER_SELECT_NO_NUMA);
    return at < 0 ? NULL : link->loops[at];
}

struct sluice_loop *worker_select_loop(sluice_node *n, const struct link_config *link) {
    pthread_mutex_lock(&lock);
    struct sluice_loop *l = link->loop;
    if (!l)
        l = link->loop_count > 0 ? pick_listed(link) : pick_worker(n);
    if (l) {
        l->placed = ++turns;
        atomic_fetch_add_explicit(&l->assigned, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
    return l;
}

struct sluice_loop *worker_select_worker(sluice_node *n) {
    pthread_mutex_lock(&lock);
    struct sluice_loop *l = pick_worker(n);
    pthread_mutex_unlock(&lock);
    return l;
}

/* ---- listeners ------------------------------------------------------------------------------------ */

void worker_select_hold(const struct link_config *link) {
    for (uint32_t i = 0; i < link->loop_count + (link->loop != NULL); i++) {
        struct sluice_loop *l = link->loop ? link->loop : link->loops[i];
        atomic_fetch_add_explicit(&l->assigned, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&l->listed, 1, memory_order_relaxed);
    }
}

/* Node's lock held: not closed, which sluice_close() does without asking listeners. */
static bool is_open(sluice_node *n, const struct sluice_loop *l) {
    for (uint32_t i = 0; i < STATS_LOOPS_MAX; i++)
        if (n->loops[i] == l)
            return true;
    return false;
}

void worker_select_release(sluice_node *n, const struct link_config *link) {
    pthread_mutex_lock(&n->lock);
    for (uint32_t i = 0; i < link->loop_count + (link->loop != NULL); i++) {
        struct sluice_loop *l = link->loop ? link->loop : link->loops[i];
        if (!is_open(n, l))
            continue; /* its struct may be another loop by now */
        atomic_fetch_sub_explicit(&l->listed, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&l->assigned, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&n->lock);
}

/* ---- workers -------------------------------------------------------------------------------------- */

int sluice_worker_drain(sluice_node *n, uint32_t worker, int drain) {
    UNCANCELLED;
    if (forked_node(n))
        return SLUICE_EFORKED;
    if (!n)
        return SLUICE_EINVAL;
    if (!context_call_begin(n))
        return SLUICE_ECLOSED;
    int status = SLUICE_EINVAL;
    if (worker < n->worker_count) {
        struct node_worker *it = &n->workers[worker];
        /* Under the lock: when this returns no thread is about to act upon the former value. */
        pthread_mutex_lock(&lock);
        atomic_store_explicit(&it->drained, drain != 0, memory_order_relaxed);
        atomic_store_explicit(&it->loop->stats->drained, drain != 0, memory_order_relaxed);
        pthread_mutex_unlock(&lock);
        if (drain == SLUICE_DRAIN_MOVE)
            guests_move_away(n, it->loop);
        status = SLUICE_OK;
    }
    context_call_end(n);
    return status;
}

/* ---- where everything is ---------------------------------------------------------------------------- */

int worker_select_read_numa(const char *path) {
    char text[32], *end;
    FILE *file = fopen(path, "re");
    if (!file)
        return WORKER_SELECT_NO_NUMA;
    bool read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    long numa = read ? strtol(text, &end, 10) : -1;
    bool valid = read && end != text && (*end == '\n' || *end == 0) && numa >= 0 && numa < 4096;
    return valid ? (int)numa : WORKER_SELECT_NO_NUMA;
}

/* The address on the PCI bus, the last part of where the device's link in sysfs leads; or "". */
static void read_pci(const char *device, char *out, size_t bytes) {
    char path[160], target[256];
    out[0] = 0;
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/device", device);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0)
        return;
    target[length] = 0;
    const char *last = strrchr(target, '/');
    last = last ? last + 1 : target;
    if (strlen(last) < bytes)
        strcpy(out, last);
}

int worker_select_plan(sluice_node *n) {
    char path[160], pci[64] = "";
    struct cpu_plan_nic nic = {n->choice.device, CPU_PLAN_NO_NUMA};
    struct cpu_plan_input in = {
        .topology = topology_here(),
        .missing = topology_missing(),
        .device = n->choice.device,
        .anywhere = n->traits.anywhere,
        .nics = &nic,
        .nic_count = 1,
        .memory_numa = n->options.memory_numa,
        .numa_environment = secure_getenv("SLUICE_NUMA"),
        .worker_cpus = n->options.worker_cpus,
        .environment = secure_getenv("SLUICE_CPUS"),
        .workers = n->options.workers,
        .begin = cpu_claim_begin ? *cpu_claim_begin : cpu_begin_here(),
    };
    hwloc_bitmap_t cpus = NULL, usable = NULL;
    if (in.topology && (usable = hwloc_bitmap_alloc()) != NULL &&
        hwloc_get_cpubind(in.topology, usable, HWLOC_CPUBIND_THREAD) == 0)
        in.usable = usable;
    if (in.topology && (cpus = hwloc_bitmap_alloc()) != NULL &&
        n->fabric->affinity_cpus(in.topology, n->context->device, cpus) == 0)
        in.device_cpus = cpus;
    if (!in.anywhere && !strchr(nic.device, '/')) {
        snprintf(path, sizeof path, "/sys/class/infiniband/%s/device/numa_node", nic.device);
        nic.numa = worker_select_read_numa(path);
        read_pci(nic.device, pci, sizeof pci);
        in.pci = *pci ? pci : NULL;
    }
    int error = cpu_plan_make(n->plan, &in);
    /* A node that is not there for this process is no worker's: none is nearer to it than another. Without a
     * topology no worker's node is known, and the kernel's word does no harm. */
    n->device_numa = in.topology ? n->plan->device_numa : nic.numa;
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(usable);
    return error;
}

void worker_select_open(sluice_node *n) {
    for (uint32_t i = 0; i < n->worker_count; i++)
        n->workers[i].numa = cpu_numa_node(n->workers[i].claim.cpu);
}
