/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mw.c - making keys for one message, and taking them back.
 *
 * Owner: the loop's thread.
 */
#include "datapath/rndv/mw.h"

#include "common/uncancelled.h"
#include "core/context.h"
#include "datapath/loop/loop.h"
#include "fabric/fast.h"

static bool has_mw(const sluice_node *n) {
    return n->traits.exact_windows &&
           (n->device_attr.device_cap_flags &
            (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)) != 0;
}

static bool open_registration(sluice_node *n, struct mw *w, const struct mw_bytes *of) {
    int access =
        (int)of->rights | (of->rights & IBV_ACCESS_REMOTE_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0);
    w->mr = n->fabric->reg_mr(n->pd, of->addr, of->bytes, access);
    if (!w->mr)
        return false;
    w->rkey = w->mr->rkey;
    w->open = true;
    return true;
}

bool mw_open(sluice_node *n, struct mw *w, const struct mw_bytes *of, struct ibv_send_wr *wr,
             bool *bind) {
    *bind = false;
    if (of->mr && !w->mw && has_mw(n)) {
        w->mw = uncancelled(ibv_alloc_mw(n->pd, IBV_MW_TYPE_2));
        w->bound = w->mw ? w->mw->rkey : 0;
    }
    if (!of->mr || !w->mw)
        return open_registration(n, w, of);
    /* A key of its own every time: one that was told before opens nothing. */
    w->rkey = w->bound = ibv_inc_rkey(w->bound);
    w->open = *bind = true;
    wr->opcode = IBV_WR_BIND_MW;
    wr->bind_mw.mw = w->mw;
    wr->bind_mw.rkey = w->rkey;
    wr->bind_mw.bind_info = (struct ibv_mw_bind_info){
        .mr = of->mr,
        .addr = (uintptr_t)of->addr,
        .length = of->bytes,
        .mw_access_flags = of->rights | (of->still ? fabric_still_access(n->fabric) : 0),
    };
    return true;
}

static void close_registration(sluice_node *n, struct mw *w) {
    if (w->mr && n->fabric->dereg_mr(w->mr) != 0)
        log_write(&n->log, SLUICE_LOG_ERROR, "a registration cannot be ended");
    w->mr = NULL;
    w->open = false;
}

bool mw_close(sluice_node *n, struct mw *w, struct ibv_send_wr *wr) {
    if (w->mr || !w->open) {
        close_registration(n, w);
        return false;
    }
    wr->opcode = IBV_WR_LOCAL_INV;
    wr->invalidate_rkey = w->rkey;
    w->open = false;
    return true;
}

void mw_free(sluice_node *n, struct mw *w) {
    if (w->mr)
        close_registration(n, w);
    if (w->mw && uncancelled(ibv_dealloc_mw(w->mw)) != 0)
        log_write(&n->log, SLUICE_LOG_ERROR, "a memory window cannot be given back");
    *w = (struct mw){0};
}

void mw_forget(sluice_node *n, struct mw *w) {
    if (w->open)
        close_registration(n, w);
}
