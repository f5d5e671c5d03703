/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mw.c - memory windows of type 2: a key of its own for a part of an MR. Binding and taking back are rc/window.c.
 *
 * Owner: allocation, the control lock.
 */
#include "soft/verbs/mw.h"

#include <errno.h>
#include <stdlib.h>

#include "common/uncancelled.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/device.h"
#include "soft/object/keys.h"
#include "soft/object/mr.h"
#include "soft/object/mw.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/rc/window.h"
#include "soft/soft.h"
#include "soft/verbs/mr.h"

struct ibv_mw *soft_alloc_mw(struct ibv_pd *ibpd, enum ibv_mw_type type) {
    UNCANCELLED;
    struct soft_pd *pd = soft_pd_of(ibpd);
    if (soft_stale(pd) || type != IBV_MW_TYPE_2 || !soft_profile()->windows) {
        errno = soft_stale(pd) ? EPERM : EOPNOTSUPP;
        return NULL;
    }
    if (soft_removed(ibpd->context)) {
        errno = EIO;
        return NULL;
    }
    struct soft_mw *mw = calloc(1, sizeof *mw);
    if (!mw)
        return NULL;
    mw->ibv.context = ibpd->context;
    mw->ibv.pd = ibpd;
    mw->ibv.type = type;
    mw->generation = soft_generation_now;
    mw->as_mr.region = -1;
    mw->as_mr.window = mw;
    soft_lock();
    int err = soft_mr_insert(&mw->as_mr);
    (void)soft_keys_fd();
    soft_unlock();
    if (err) {
        free(mw);
        errno = err;
        return NULL;
    }
    mw->ibv.rkey = mw->as_mr.ibv.rkey;
    st(mw->as_mr.key, 0); /* not bound: the slot is ours, the key opens nothing */
    atomic_fetch_add(&pd->users, 1);
    return &mw->ibv;
}

int soft_dealloc_mw(struct ibv_mw *ibmw) {
    UNCANCELLED;
    struct soft_mw *mw = soft_mw_of(ibmw);
    if (soft_stale(mw))
        return EPERM;
    soft_lock();
    struct soft_qp *qp = ld(mw->qp); /* it forgets its windows before it goes */
    if (qp) {
        spin_lock(&qp->lock);
        if (ld(mw->qp) == qp) /* it may be taking the window back */
            soft_mw_detach(mw, qp);
        spin_unlock(&qp->lock);
    }
    soft_mr_remove(&mw->as_mr);
    soft_unlock();
    atomic_fetch_sub(&soft_pd_of(ibmw->pd)->users, 1);
    free(mw);
    return 0;
}

int soft_mw_check(struct soft_qp *qp, const struct ibv_send_wr *wr) {
    const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
    if (!wr->bind_mw.mw || wr->bind_mw.mw->pd != qp->ibv.pd)
        return EINVAL;
    if (info->length && (!info->mr || info->mr->pd != qp->ibv.pd))
        return EINVAL;
    return 0;
}
