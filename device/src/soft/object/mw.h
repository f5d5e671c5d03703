/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mw.h - memory windows of type 2: a key of its own inside an MR, given and taken by work requests.
 *
 * Owner: a bound window, the lock of its QP; allocation, the control lock.
 */
#ifndef SOFT_OBJECT_MW_H
#define SOFT_OBJECT_MW_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "soft/object/mr.h"

struct soft_qp;

struct soft_mw {
    struct ibv_mw ibv;
    uint8_t zero[64];
    uint32_t generation;
    struct soft_mr as_mr; /* what the key table and the target path see while it is bound */
    struct soft_mr *mr;   /* NULL: not bound; the lock of the QP */
    /* A type 2 window serves the QP it was bound on. Changed under its lock, looked at by others. */
    struct soft_qp *_Atomic qp;
};

#define soft_mw_of(p) ((struct soft_mw *)(p))

#endif
