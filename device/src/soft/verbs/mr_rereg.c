/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mr_rereg.c - ibv_rereg_mr: an MR that stands for other memory, has other rights or belongs to another PD from
 * now on, and keeps its keys.
 *
 * In between its keys are invalid, as if it was deregistered and registered again, so no access is under way
 * through the former registration when the call returns. If the new one is refused the former stays.
 *
 * Owner: the control lock.
 */
#include <errno.h>
#include <stdatomic.h>

#include "common/uncancelled.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/object/device.h"
#include "soft/object/mr.h"
#include "soft/soft.h"
#include "soft/verbs/mr.h"

/* False for arguments that the system's library refuses before it asks a device. */
static bool sensible(const struct ibv_mr *mr, int flags, const struct ibv_pd *pd, const void *addr,
                     size_t length, int access) {
    if ((flags & ~(int)IBV_REREG_MR_FLAGS_SUPPORTED) != 0)
        return false;
    if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length))
        return false;
    if ((flags & IBV_REREG_MR_CHANGE_PD) && (!pd || pd->context != mr->context))
        return false;
    return access == 0 || (flags & IBV_REREG_MR_CHANGE_ACCESS);
}

static int check(const struct soft_mr *mr, int flags, const struct soft_pd *pd, void *addr,
                 size_t length, uint64_t iova, int access) {
    if (soft_stale(mr))
        return EPERM;
    if (soft_removed(mr->ibv.context))
        return EIO;
    if (flags == 0)
        return EINVAL;
    if (atomic_load(&mr->windows) != 0)
        return EBUSY;
    return soft_mr_check(pd, addr, length, iova, access);
}

/* 0, or what the manual page lists, with errno; the registration is as it was then. */
int soft_rereg_mr(struct ibv_mr *ibmr, int flags, struct ibv_pd *ibpd, void *addr, size_t length,
                  int access) {
    UNCANCELLED;
    struct soft_mr *mr = soft_mr_of(ibmr);
    if (!sensible(ibmr, flags, ibpd, addr, length, access)) {
        errno = EINVAL;
        return IBV_REREG_MR_ERR_INPUT;
    }
    struct soft_pd *before = soft_pd_of(ibmr->pd);
    struct soft_pd *pd = flags & IBV_REREG_MR_CHANGE_PD ? soft_pd_of(ibpd) : before;
    uint64_t iova = mr->start;
    if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
        access = mr->access;
    if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
        iova = access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
    } else {
        addr = ibmr->addr;
        length = ibmr->length;
    }
    int err = check(mr, flags, pd, addr, length, iova, access);
    if (err) {
        errno = err;
        return IBV_REREG_MR_ERR_CMD;
    }
    soft_lock();
    soft_mr_withdraw(mr);
    ibmr->pd = &pd->ibv;
    soft_mr_describe(mr, addr, length, iova, access);
    atomic_store_explicit(&mr->key, ibmr->lkey, memory_order_release);
    soft_mr_show(mr);
    soft_unlock();
    soft_mr_make(mr);
    atomic_fetch_add(&pd->users, 1);
    atomic_fetch_sub(&before->users, 1);
    return 0;
}
