/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* memory.c - the budget's check, the two pools and the statistics page. Owner: see memory.h. */
#include "node/memory.h"

#include <errno.h>
#include <string.h>

#include "common/limits.h"
#include "datapath/loop/cq_share.h"
#include "datapath/rx/landing.h"
#include "datapath/rx/alloc_wait.h"
#include "node/node.h"
#include "pool/arena.h"
#include "pool/limit_text.h"

/* Descriptors, beside the device's own: of the node, two arenas more included; of a worker; of the software
 * device for each process it is connected with. */
#define FILES_NODE 12u
#define FILES_LOOP 7u
#define FILES_PROGRAM 1024u                  /* left to the program */
#define FILES_PEER 7u                        /* with the bells of two loops */
#define GROW_AHEAD_BYTES ((uint64_t)1 << 20) /* free memory below this: more, ahead of need */

/* Connections times depth times size, and what they need of the device, before any of it is allocated. */
static int check_need(sluice_node *n, const struct hugepages_wish *wish, sluice_error *e) {
    struct limits limits;
    char why[200];
    limits_read(&limits, "");
    n->frames_max = pool_holds(n->options.receive_bytes_max, (size_t)1 << n->options.eager_log2);
    atomic_store(&n->primed, 0);
    const struct memory_budget_input in = {
        .sessions = n->options.sessions_max,
        .chosen = n->options.sessions_chosen,
        .depth = CREDITS_INITIAL,
        .full = CREDITS_DEFAULT,
        .frame = ((uint64_t)1 << n->options.eager_log2) + POOL_HEADROOM,
        .receive_bytes_max = n->options.receive_bytes_max,
        .memory_bytes_max = n->options.memory_bytes_max,
        .frames_max = n->frames_max,
        .locks = !n->traits.unpinned,
        .limits = &limits,
        .huge_log2 = wish->huge_log2,
        .numa = wish->numa,
        .queue_entries = n->device_attr.max_cqe > 0 ? (uint32_t)n->device_attr.max_cqe : 0,
        .session_entries = cq_share_least(&n->device_attr),
        .queue_pairs = n->device_attr.max_qp > 0 ? (uint32_t)n->device_attr.max_qp : 0,
        .files = FILES_NODE + FILES_LOOP * n->options.workers,
        .files_peer = n->traits.files_per_peer ? FILES_PEER : 0,
    };
    limits.files_max =
        limits_raise_files(limits.files + in.files +
                           (uint64_t)in.files_peer * n->options.sessions_max + FILES_PROGRAM);
    int error = memory_budget_make(n->memory_budget, &in, why, sizeof why);
    if (error == -EMFILE)
        return error_set(e, SLUICE_ELIMIT, SLUICE_REASON_NONE, EMFILE, "%s", why);
    if (error != 0)
        return error_set(e, error == -EINVAL ? SLUICE_EINVAL : SLUICE_ENOMEM,
                         error == -EINVAL ? SLUICE_REASON_NONE : SLUICE_REASON_NO_MEMORY, -error,
                         "%s", why);
    n->options.sessions_max = n->memory_budget->sessions;
    if (n->memory_budget->files[0])
        log_write(&n->log, SLUICE_LOG_INFO, "%s", n->memory_budget->files);
    if (n->memory_budget->warning[0])
        log_write(&n->log, n->memory_budget->serious ? SLUICE_LOG_WARNING : SLUICE_LOG_INFO, "%s",
                  n->memory_budget->warning);
    return SLUICE_OK;
}

static void show_memory(sluice_node *n) {
    for (unsigned i = 0; i < POOL_CLASSES; i++) /* the last has any size */
        n->stats.page->class_bytes[i] = pool_class_bytes(i);
    pool_show(n->pool, &n->stats.page->memory[STATS_SEND]);
    pool_show(n->rx_pool, &n->stats.page->memory[STATS_RECEIVE]);
}

static void on_shortage(const char *text, void *arg) {
    log_write(&((sluice_node *)arg)->log, SLUICE_LOG_WARNING, "%s", text);
}

int node_memory_open(sluice_node *n, sluice_error *e) {
    struct pool_config config = {n->fabric, n->pd, 0, {0}};
    config.wish.numa = (int16_t)n->plan->arena_numa;
    hugepages_from_environment(&config.wish);
    int status = check_need(n, &config.wish, e);
    if (status != SLUICE_OK)
        return status;
    config.bytes_max = n->options.memory_bytes_max - n->options.receive_bytes_max;
    int error = pool_open(&n->pool, &config);
    if (error == 0) {
        config.bytes_max = n->options.receive_bytes_max;
        if ((error = pool_open(&n->rx_pool, &config)) != 0)
            pool_close(n->pool);
    }
    if (error != 0) {
        char why[200];
        struct limit_text shortage = {POOL_PAGE, config.bytes_max, -error, !n->traits.unpinned, 0};
        limit_text_explain(why, sizeof why, &shortage);
        return error_set(e, SLUICE_ENOMEM, SLUICE_REASON_NO_MEMORY, -error, "%s", why);
    }
    alloc_wait_open(n);
    pool_on_return(n->pool, landing_returned, n);
    pool_on_return(n->rx_pool, landing_returned, n);
    pool_on_shortage(n->pool, !n->traits.unpinned, on_shortage, n);
    pool_on_shortage(n->rx_pool, !n->traits.unpinned, on_shortage, n);
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
    char why[200];
    limits_error_text(why, sizeof why, -error);
    return error_set(e, error == -EMFILE || error == -ENFILE ? SLUICE_ELIMIT : SLUICE_ENOMEM, 0,
                     -error, "no statistics page: %s", why);
}

void node_memory_close(sluice_node *n) {
    stats_close(&n->stats);
    pool_close(n->rx_pool);
    pool_close(n->pool);
}
