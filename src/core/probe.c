/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * probe.c - registering the two bytes of probe.h, each on a page of its own.
 *
 * Owner: the node, until its CM thread runs; then that.
 */
#include "core/probe.h"

#include <errno.h>

#include "core/context.h"
#include "pool/arena.h"

int probe_open(sluice_node *n) {
    struct probe *p = &n->probe;
    if (p->sink)
        return 0;
    errno = 0;
    size_t page = page_round(1);
    p->memory = n->fabric->mem_alloc(2 * page);
    if (p->memory)
        p->source = n->fabric->reg_mr(n->pd, p->memory, 1, IBV_ACCESS_REMOTE_READ);
    if (p->source)
        p->sink = n->fabric->reg_mr(n->pd, p->memory + page, 1,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (p->sink)
        return 0;
    int error = errno ? errno : ENOMEM;
    probe_close(n);
    return error;
}

void probe_close(sluice_node *n) {
    struct probe *p = &n->probe;
    bool gone = true;
    if (p->source)
        gone = n->fabric->dereg_mr(p->source) == 0;
    if (p->sink)
        gone = n->fabric->dereg_mr(p->sink) == 0 && gone;
    if (!gone)
        log_write(&n->log, SLUICE_LOG_ERROR, "a registration cannot be ended");
    else if (p->memory) /* what a device may still write to is never unmapped */
        n->fabric->mem_free(p->memory, 2 * page_round(1));
    *p = (struct probe){0};
}
