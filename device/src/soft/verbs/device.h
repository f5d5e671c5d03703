/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * device.h - whether a call that makes an object is refused.
 */
#ifndef SOFT_VERBS_DEVICE_H
#define SOFT_VERBS_DEVICE_H

#include <errno.h>
#include <infiniband/verbs.h>

#include "soft/fault/inject.h"
#include "soft/object/device.h"

/* An errno a call on this context fails with, or 0. */
static inline int soft_refuse(const struct ibv_context *ctx, enum soft_fault_call call) {
    if (soft_removed(ctx))
        return EIO;
    return soft_fault_call(call);
}

#endif
