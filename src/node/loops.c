/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * loops.c - the public side of loops, and the public figures of a node.
 *
 * Any thread; sluice_poll() makes its caller the loop's owner (datapath/loop/loop.h).
 */
#include <stdio.h>
#include <string.h>

#include "common/limits.h"
#include "common/uncancelled.h"
#include "datapath/loop/loop.h"
#include "datapath/progress/messages.h"
#include "datapath/loop/upward.h"
#include "datapath/session/queue_pair.h"
#include "node/node.h"
#include "fabric/fast.h"

int sluice_loop_open(sluice_node *n, sluice_loop **out, sluice_error *e) {
    UNCANCELLED;
    if (forked_node(n))
        return error_set(e, SLUICE_EFORKED, 0, 0, FORKED_TEXT);
    if (!n || !out)
        return error_set(e, SLUICE_EINVAL, 0, 0, "no node, or nowhere to put the loop");
    if (!context_call_begin(n))
        return error_set(e, SLUICE_ECLOSED, SLUICE_REASON_NODE_CLOSED, 0, "the node is closed");
    int status = loop_open(out, n, -1, e);
    context_call_end(n);
    return status;
}

int sluice_poll(sluice_loop *l, sluice_event *events, int max, uint64_t wait_ns) {
    if (forked_loop(l))
        return SLUICE_EFORKED;
    if (!l || max < 0 || (max > 0 && !events))
        return SLUICE_EINVAL;
    int status = loop_acquire(l);
    if (status != SLUICE_OK)
        return status;
    status = loop_poll(l, events, max, wait_ns);
    /* Taken by sluice_close() meanwhile: what this poll found is delivered all the same. */
    if (status == 0 && loop_is_revoked(l))
        status = SLUICE_ECLOSED;
    loop_unmark_polling(l);
    return status;
}

int sluice_fd(sluice_loop *l) {
    UNCANCELLED;
    if (forked_loop(l))
        return SLUICE_EFORKED;
    if (!l)
        return SLUICE_EINVAL;
    int status = loop_acquire(l);
    if (status != SLUICE_OK)
        return status;
    status = loop_fd(l);
    loop_unmark_polling(l);
    return status;
}

void sluice_wake(sluice_loop *l) {
    if (!l || forked_loop(l))
        return;
    atomic_fetch_or_explicit(&l->wake, LOOP_WAKE_EVENT, memory_order_release);
    wakeup_signal_flag(&l->mailbox.wakeup);
}

/* ---- the idle policy of a live loop ---------------------------------------------------------- */

static bool is_idle(sluice_idle idle) {
    return (unsigned)idle <= SLUICE_IDLE_BLOCK;
}

int sluice_loop_set_idle(sluice_loop *l, sluice_idle idle) {
    UNCANCELLED;
    if (forked_loop(l))
        return SLUICE_EFORKED;
    if (!l || !is_idle(idle))
        return SLUICE_EINVAL;
    sluice_node *n = l->node;
    if (loop_is_revoked(l) || !context_call_begin(n))
        return SLUICE_ECLOSED;
    loop_set_idle(l, idle);
    context_call_end(n);
    return SLUICE_OK;
}

int sluice_worker_set_idle(sluice_node *n, uint32_t worker, sluice_idle idle) {
    UNCANCELLED;
    if (forked_node(n))
        return SLUICE_EFORKED;
    if (!n || !is_idle(idle))
        return SLUICE_EINVAL;
    if (!context_call_begin(n))
        return SLUICE_ECLOSED;
    int status = SLUICE_EINVAL;
    if (worker < n->worker_count) {
        loop_set_idle(n->workers[worker].loop, idle);
        status = SLUICE_OK;
    }
    context_call_end(n);
    return status;
}

/* ---- closing, and what a node tells ---------------------------------------------------------- */

int sluice_loop_close(sluice_loop *l) {
    UNCANCELLED;
    if (forked_loop(l))
        return SLUICE_EFORKED;
    if (!l)
        return SLUICE_EINVAL;
    int status = loop_acquire(l);
    if (status != SLUICE_OK)
        return status;
    sluice_node *n = l->node;
    if (!context_call_begin(n)) {
        loop_unmark_polling(l);
        return SLUICE_ECLOSED; /* sluice_close() does it */
    }
    /* The messages of the last poll are given back: the sessions it ended may be freed now. */
    l->out_max = l->out_count = 0;
    loop_progress(l);
    if (atomic_load_explicit(&l->assigned, memory_order_relaxed) > 0) {
        status = SLUICE_EINVAL;
        loop_unmark_polling(l);
    } else {
        loop_unmark_polling(l);
        loop_revoke(l);
        while (!mpsc_queue_empty(&l->mailbox.queue)) /* of guests whose host has left it */
            loop_take_msgs(l);
        loop_close(l);
    }
    context_call_end(n);
    return status;
}

static void add_limits(sluice_node_info *info) {
    struct limits limits;
    limits_read(&limits, "");
    info->memlock_bytes = limits.memlock;
    info->memlock_exempt = limits.memlock_exempt;
    info->cgroup_bytes = limits.cgroup;
    info->files_max = limits.files_max;
    info->files = limits.files;
    for (; info->huge_count < limits.huge_count; info->huge_count++) {
        const struct limits_huge *huge = &limits.huge[info->huge_count];
        info->huge[info->huge_count] =
            (sluice_huge_pages){huge->numa, huge->page_log2, huge->total, huge->free};
    }
}

int sluice_node_get_info(sluice_node *n, sluice_node_info *info) {
    UNCANCELLED;
    if (forked_node(n))
        return SLUICE_EFORKED;
    if (!n || !info || info->size < sizeof info->size)
        return SLUICE_EINVAL;
    if (!context_call_begin(n))
        return SLUICE_ECLOSED;
    sluice_node_info known = {.size = info->size};
    memcpy(known.device, n->choice.device, sizeof known.device);
    memcpy(known.why, n->choice.why, sizeof known.why);
    snprintf(known.other_hosts, sizeof known.other_hosts, "%s",
             fabric_other_hosts(n->fabric, n->options.soft_net));
    snprintf(known.wake, sizeof known.wake, "%s", wakeup_describe(&n->cm_mailbox.wakeup));
    known.software = fabric_is_software(n->fabric);
    known.workers = n->worker_count;
    for (uint32_t i = 0; i < 64; i++)
        known.worker_cpu[i] = i < n->worker_count ? n->workers[i].claim.cpu : -1;
    for (uint32_t i = 0; i < 64; i++)
        known.worker_numa[i] = i < n->worker_count ? n->workers[i].numa : -1;
    known.eager_bytes = 1u << n->options.eager_log2;
    known.inline_bytes = queue_pair_inline(n);
    known.message_bytes_max = n->options.message_bytes_max;
    known.memory_bytes_max = n->options.memory_bytes_max;
    known.memory_bytes = pool_bytes(n->pool) + pool_bytes(n->rx_pool);
    known.sessions_max = n->options.sessions_max;
    known.sessions = session_table_open_count(n->index);
    known.device_numa = n->device_numa;
    known.memory_numa = n->plan->arena_numa;
    known.receive_bytes_max = n->options.receive_bytes_max;
    known.session_bytes = n->memory_budget->session_bytes;
    known.sessions_bytes = n->memory_budget->receive_bytes;
    known.sessions_bytes_full = n->memory_budget->receive_bytes_full;
    add_limits(&known);
    pool_describe(n->pool, known.memory, sizeof known.memory);
    pool_describe(n->rx_pool, known.receive_memory, sizeof known.receive_memory);
    memcpy(known.placement, n->plan->why, sizeof known.placement);
    context_call_end(n);
    memcpy(info, &known, info->size < sizeof known ? info->size : sizeof known);
    return SLUICE_OK;
}
