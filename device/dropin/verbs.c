/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * verbs.c - libibverbs: the calls that the device has, under their public names.
 *
 * Signatures and errno conventions are those of the man page of the same name. Any thread.
 */
#include <errno.h>
#include <string.h>

#include "dropin/dropin.h"
#include "soft/soft.h"

/* ---- device --------------------------------------------------------------------------------------- */

EXPORT struct ibv_device **ibv_get_device_list(int *num) {
    return soft_get_device_list(num);
}

EXPORT void ibv_free_device_list(struct ibv_device **list) {
    soft_free_device_list(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *dev) {
    return soft_get_device_name(dev);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *dev) {
    return soft_open_device(dev);
}

/* The system's library closes it under objects that were forgotten; here it stays for their sake. */
EXPORT int ibv_close_device(struct ibv_context *ctx) {
    int rc = soft_close_device(ctx);
    return rc == EBUSY ? 0 : rc;
}

EXPORT int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr) {
    return soft_query_device(ctx, attr);
}

/* A caller of the symbol, not of the context's slot, has the structure as it was before link_layer. */
EXPORT int ibv_query_port(struct ibv_context *ctx, uint8_t port,
                          struct _compat_ibv_port_attr *attr) {
    struct ibv_port_attr all;
    int rc = soft_query_port(ctx, port, &all);
    if (rc == 0)
        memcpy(attr, &all, offsetof(struct ibv_port_attr, link_layer));
    return rc;
}

EXPORT int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid) {
    return soft_query_gid(ctx, port, index, gid);
}

EXPORT int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event) {
    return soft_get_async_event(ctx, event);
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event) {
    soft_ack_async_event(event);
}

/* ---- memory --------------------------------------------------------------------------------------- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx) {
    return soft_alloc_pd(ctx);
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd) {
    return soft_dealloc_pd(pd);
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    return soft_reg_mr(pd, addr, length, access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                      int access) {
    return soft_reg_mr_iova(pd, addr, length, iova, access);
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                       unsigned int access) {
    return soft_reg_mr_iova(pd, addr, length, iova, (int)access);
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
                        int access) {
    return soft_rereg_mr(mr, flags, pd, addr, length, access);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr) {
    return soft_dereg_mr(mr);
}

/* ---- completion ------------------------------------------------------------------------------------- */

EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx) {
    return soft_create_comp_channel(ctx);
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    return soft_destroy_comp_channel(channel);
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                                    struct ibv_comp_channel *channel, int comp_vector) {
    return soft_create_cq(ctx, cqe, cq_context, channel, comp_vector);
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe) {
    return soft_resize_cq(cq, cqe);
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq) {
    return soft_destroy_cq(cq);
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                            void **cq_context) {
    return soft_get_cq_event(channel, cq, cq_context);
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n) {
    soft_ack_cq_events(cq, n);
}

/* ---- queues --------------------------------------------------------------------------------------- */

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
    return soft_create_srq(pd, attr);
}

EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask) {
    return soft_modify_srq(srq, attr, mask);
}

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr) {
    return soft_query_srq(srq, attr);
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq) {
    return soft_destroy_srq(srq);
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    return soft_create_qp(pd, attr);
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) {
    return soft_qp_to_qp_ex(qp);
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    return soft_modify_qp(qp, attr, mask);
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                        struct ibv_qp_init_attr *init) {
    return soft_query_qp(qp, attr, mask, init);
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp) {
    return soft_destroy_qp(qp);
}
