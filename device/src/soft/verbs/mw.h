/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mw.h - memory windows: allocation, and the check of a work request that binds one.
 */
#ifndef SOFT_VERBS_MW_H
#define SOFT_VERBS_MW_H

#include <infiniband/verbs.h>

struct soft_qp;

struct ibv_mw *soft_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int soft_dealloc_mw(struct ibv_mw *mw);
int soft_mw_check(struct soft_qp *qp, const struct ibv_send_wr *wr);

#endif
