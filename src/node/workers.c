/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* workers.c - the threads that run a node's own loops, and their CPUs. Owner: see workers.h. */
#define _GNU_SOURCE
#include "node/workers.h"

#include <stdio.h>
#include <string.h>

#include "common/limits.h"
#include "common/thread.h"
#include "node/node.h"
#include "datapath/loop/loop.h"

static void *worker_main(void *arg) {
    struct node_worker *worker = arg;
    loop_run(worker->loop);
    return NULL;
}

/* On its CPU, or, where nothing may run there, on none of its own, and the node says so. */
static int start_thread(sluice_node *n, struct node_worker *worker, const char *name) {
    struct cpu_claim *claim = &worker->claim;
    if (claim->cpu < 0)
        return thread_start(&worker->thread, name, worker_main, worker);
    int error = thread_start_on(&worker->thread, claim->cpu, name, worker_main, worker);
    if (error == 0)
        return 0;
    log_write(&n->log, SLUICE_LOG_WARNING, "a worker cannot be pinned to CPU %d: %s", claim->cpu,
              strerror(error));
    cpu_claim_release(claim);
    loop_set_cpu(worker->loop, -1);
    return thread_start(&worker->thread, name, worker_main, worker);
}

static int claim_cpu(sluice_node *n, uint32_t i, sluice_error *e) {
    struct cpu_claim *claim = &n->workers[i].claim;
    *claim = (struct cpu_claim){-1, -1};
    if (n->manual)
        return SLUICE_OK;
    if (!n->options.worker_cpus) {
        if (cpu_claim_of(claim, n->plan->cpus, n->plan->cpu_count, n->plan->chosen) != 0)
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
    char name[24]; /* 15 characters are taken, and there are two digits at most */
    int status = claim_cpu(n, i, e);
    if (status != SLUICE_OK)
        return status;
    status = loop_open(&worker->loop, n, worker->claim.cpu, e);
    if (status != SLUICE_OK)
        goto release_cpu;
    if (n->manual)
        return SLUICE_OK;
    snprintf(name, sizeof name, "sluice-w%u", i % WORKERS_MAX);
    int error = start_thread(n, worker, name);
    if (error == 0) {
        worker->started = true;
        return SLUICE_OK;
    }
    char why[200];
    limits_error_text(why, sizeof why, error);
    status = error_set(e, SLUICE_ELIMIT, 0, error, "worker %u cannot be started: %s", i, why);
    loop_revoke(worker->loop);
    loop_close(worker->loop);
release_cpu:
    if (worker->claim.fd >= 0)
        cpu_claim_release(&worker->claim);
    return status;
}

void workers_stop(sluice_node *n) {
    /* All at once: one that does not return keeps itself, and not those behind it. */
    for (uint32_t i = 0; i < n->worker_count; i++)
        loop_revoke_begin(n->workers[i].loop);
    for (uint32_t i = 0; i < n->worker_count; i++) {
        struct node_worker *worker = &n->workers[i];
        loop_revoke(worker->loop);
        if (worker->started)
            pthread_join(worker->thread, NULL);
        loop_close(worker->loop);
        if (worker->claim.fd >= 0)
            cpu_claim_release(&worker->claim);
    }
    pthread_mutex_lock(&n->lock); /* the caller of sluice_close() may be looking */
    n->worker_count = 0;
    pthread_mutex_unlock(&n->lock);
}

int workers_start(sluice_node *n, sluice_error *e) {
    for (uint32_t i = 0; i < n->options.workers; i++) {
        int status = start_worker(n, i, e);
        if (status != SLUICE_OK) {
            workers_stop(n);
            return status;
        }
        n->worker_count = i + 1;
    }
    return SLUICE_OK;
}
