/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * window.c - memory windows of type 2: bound and invalidated by work requests, good only for the QP on which they are
 * bound, which their entry in the key table names.
 *
 * Bind and invalidate run in the middle of the send queue, so they take no control lock and no system
 * call: the window's entry in the key table was reserved when it was allocated, and a requester
 * that finds a window puts a fence between saying that it is inside and looking again.
 *
 * Owner: a bound window, the lock of its QP.
 */
#include "soft/rc/window.h"

#include <stdatomic.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/keys.h"
#include "soft/object/mr.h"
#include "soft/object/mw.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/upcalls.h"
#include "soft/rc/rkey_fence.h"
#include "soft/soft.h"

void soft_mw_detach(struct soft_mw *mw, struct soft_qp *qp) {
    atomic_fetch_sub(&mw->mr->windows, 1);
    atomic_fetch_sub(&qp->windows, 1);
    mw->mr = NULL;
    atomic_store_explicit(&mw->qp, NULL, memory_order_release);
}

/* The QP's lock. Its key opens nothing any more; the caller waits for requesters that are inside. */
static void unbind(struct soft_mw *mw, struct soft_qp *qp) {
    st(mw->as_mr.key, 0);
    soft_key_publish(&mw->as_mr, 0);
    soft_mw_detach(mw, qp);
}

enum ibv_wc_status soft_mw_bind(struct soft_qp *qp, const struct soft_wqe *wqe) {
    const struct soft_wqe_remote *bind = soft_wqe_remote(qp, wqe);
    struct soft_mw *mw = (struct soft_mw *)(uintptr_t)bind->bind_mw;
    struct soft_mr *mr = (struct soft_mr *)(uintptr_t)bind->bind_mr;
    /* the index part of the key is the window's; the low byte is the application's choice */
    if ((bind->rkey & ~0xffu) != (mw->as_mr.ibv.rkey & ~0xffu) || ld(mw->qp))
        return IBV_WC_MW_BIND_ERR;
    if (bind->bind_length == 0)
        return IBV_WC_SUCCESS;
    const int rights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                       (int)SOFT_ACCESS_STILL;
    bool writes = bind->bind_access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
    if (!(mr->access & IBV_ACCESS_MW_BIND) ||
        !soft_mr_range(mr, bind->addr, bind->bind_length, 0) ||
        (writes && !(mr->access & IBV_ACCESS_LOCAL_WRITE)))
        return (enum ibv_wc_status)soft_profile()->bind_refused;
    struct soft_qp *unbound = NULL; /* two QPs may try at once: one gets it */
    if (!atomic_compare_exchange_strong(&mw->qp, &unbound, qp))
        return (enum ibv_wc_status)soft_profile()->bind_refused;
    mw->as_mr.start = bind->addr;
    mw->as_mr.end = soft_profile()->checks_window_end ? bind->addr + bind->bind_length : mr->end;
    mw->as_mr.shift = mr->shift;
    mw->as_mr.access = (int)bind->bind_access & rights;
    mw->as_mr.region = mr->region;
    mw->as_mr.region_offset = mr->region_offset + (bind->addr - mr->start);
    mw->mr = mr;
    if (mr->region >= 0)
        soft_region_make(mr->region, mw->as_mr.region_offset, bind->bind_length);
    atomic_fetch_add(&mr->windows, 1);
    atomic_fetch_add(&qp->windows, 1);
    mw->ibv.rkey = bind->rkey;
    soft_key_publish(&mw->as_mr, bind->rkey);
    atomic_store_explicit(&mw->as_mr.key, bind->rkey, memory_order_release);
    return IBV_WC_SUCCESS;
}

/* The peer's access through the window fails with its next piece, at both ends. */
static void cut_off(struct soft_qp *qp, const struct soft_mr *window, uint32_t key) {
    bool read = false;
    if (qp->rx_key == key)
        qp->rx_left = 0;
    for (uint32_t i = qp->answer_head; i != qp->answer_tail; i++) {
        struct soft_answer *a = &qp->answer[i % SOFT_RD_ATOMIC];
        if (!a->from || !a->left || a->key != key)
            continue;
        *a = (struct soft_answer){.from = NULL}; /* no READ is answered like that */
        read = true;
    }
    if (read && qp->tcp)
        soft_object_upcalls.tcp_cut_off(qp, window);
}

static bool take_back(struct soft_qp *qp, uint32_t rkey) {
    struct soft_mr *mr = soft_mr_find_remote(rkey, qp);
    if (!mr || !mr->window)
        return false;
    cut_off(qp, mr, rkey);
    unbind(mr->window, qp);
    return true;
}

/*
 * Only this queue waits: the peer may have lost its CPU while it was inside. MW_BIND_ERR: no such bound
 * window on this QP. RETRY_EXC_ERR: the peer does not leave the memory. Both end the QP.
 */
static bool invalidate(struct soft_qp *qp, uint32_t rkey, struct soft_rkey_wait *inside,
                       enum ibv_wc_status *status) {
    *status = IBV_WC_SUCCESS;
    if (inside->seen == 0) {
        if (!take_back(qp, rkey)) {
            *status = IBV_WC_MW_BIND_ERR;
            return true;
        }
        *inside = soft_rkey_fence_begin_window(qp);
        if (__builtin_expect(inside->seen == 0, 1))
            return true;
        inside->rkey = rkey;
    } else if (inside->rkey != rkey) { /* a peer's message that reads otherwise now */
        *inside = (struct soft_rkey_wait){0};
        *status = IBV_WC_MW_BIND_ERR;
        return true;
    }
    enum soft_rkey_fence touch = soft_rkey_fence_poll(qp, inside);
    if (touch == SOFT_RKEY_FENCE_STUCK)
        *status = IBV_WC_RETRY_EXC_ERR;
    return touch != SOFT_RKEY_FENCE_INSIDE;
}

bool soft_mw_invalidate(struct soft_qp *qp, uint32_t rkey, enum ibv_wc_status *status) {
    return invalidate(qp, rkey, &qp->rx_inside, status);
}

bool soft_mw_invalidate_local(struct soft_qp *qp, struct soft_wqe *wqe) {
    enum ibv_wc_status status;
    bool done = invalidate(qp, soft_wqe_remote(qp, wqe)->rkey, &qp->sq_inside, &status);
    wqe->status = (uint8_t)status;
    return done;
}

void soft_mw_forget(struct soft_qp *qp) {
    soft_assert_locked();
    for (uint32_t i = 1; i < SOFT_MAX_MR && ld(qp->windows); i++) {
        struct soft_mr *mr = atomic_load(&soft_mr_table[i]);
        if (!mr || !mr->window || ld(mr->window->qp) != qp)
            continue;
        spin_lock(&qp->lock);
        if (ld(mr->window->qp) == qp) /* a poster may be taking it back */
            unbind(mr->window, qp);
        spin_unlock(&qp->lock);
    }
}
