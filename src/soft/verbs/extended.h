/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * extended.h - the part of the verbs interface that Sluice itself does not use: extended contexts, CQs
 * with reader calls, QPs with ibv_wr_* calls, and the older calls only other programs make.
 *
 * Signatures and errno conventions are those of the man page of the same name.
 */
#ifndef SOFT_VERBS_EXTENDED_H
#define SOFT_VERBS_EXTENDED_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#pragma GCC visibility push(default)

__be64 soft_device_guid(void);
struct ibv_mr *soft_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                int access);
int soft_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
                  int access);
int soft_resize_cq(struct ibv_cq *cq, int cqe);
struct ibv_cq_ex *soft_create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr);
struct ibv_qp *soft_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp_ex *soft_qp_to_qp_ex(struct ibv_qp *qp);
struct ibv_srq *soft_create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *attr);
int soft_cm_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr);
int soft_cm_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr);

#pragma GCC visibility pop

#endif
