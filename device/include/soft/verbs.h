/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * verbs.h - the software device's libibverbs: one call for each of that library's, with its signature, its errno
 * conventions and what it says of threads (see the man page of that name).
 */
#ifndef SOFT_VERBS_H
#define SOFT_VERBS_H

#include <infiniband/verbs.h>

/* Visible between the objects of the drop-in (device/dropin/); libsluice's map hides them again. */
#pragma GCC visibility push(default)

#define SOFT_DEVICE_NAME "sluice_soft0"

/* vendor_part_id of the device without a profile; profiles have others. */
#define SOFT_PART_PLAIN 1u
/* Which other device this one is like (SLUICE_SOFT_PROFILE); NULL: none. */
const char *soft_profile_name(void);

/* ---- devices, regions, queues ---------------------------------------------------------------------- */

struct ibv_device **soft_get_device_list(int *num);
void soft_free_device_list(struct ibv_device **list);
const char *soft_get_device_name(struct ibv_device *dev);
struct ibv_context *soft_open_device(struct ibv_device *dev);
int soft_close_device(struct ibv_context *ctx);
int soft_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr);
int soft_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
int soft_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid);
int soft_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event);
void soft_ack_async_event(struct ibv_async_event *event);
struct ibv_pd *soft_alloc_pd(struct ibv_context *ctx);
int soft_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *soft_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
int soft_dereg_mr(struct ibv_mr *mr);
struct ibv_comp_channel *soft_create_comp_channel(struct ibv_context *ctx);
int soft_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *soft_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                              struct ibv_comp_channel *channel, int comp_vector);
int soft_destroy_cq(struct ibv_cq *cq);
int soft_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void soft_ack_cq_events(struct ibv_cq *cq, unsigned int n);
struct ibv_srq *soft_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int soft_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int soft_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int soft_destroy_srq(struct ibv_srq *srq);
struct ibv_qp *soft_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int soft_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int soft_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                  struct ibv_qp_init_attr *init);
int soft_destroy_qp(struct ibv_qp *qp);

/* ---- datagrams ------------------------------------------------------------------------------------- */

struct ibv_ah *soft_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int soft_destroy_ah(struct ibv_ah *ah);
int soft_init_ah_from_wc(struct ibv_context *ctx, uint8_t port, struct ibv_wc *wc,
                         struct ibv_grh *grh, struct ibv_ah_attr *attr);
struct ibv_ah *soft_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
                                      uint8_t port);
int soft_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int soft_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
/* IBV_QP_CREATE_BLOCK_SELF_MCAST_LB: what this QP sends to a group does not come back to it. */
void soft_block_self_mcast(struct ibv_qp *qp);

/* ---- extended and older calls ---------------------------------------------------------------------- */

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

#pragma GCC visibility pop

#endif
