/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * unsupported.c - libibverbs calls that this device does not have. They exist so that a program loads, and so
 * that none of them reaches the system's library with one of our objects; each fails with EOPNOTSUPP.
 */
#include <errno.h>

#include "dropin/dropin.h"

static void *none(void) {
    errno = EOPNOTSUPP;
    return NULL;
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
                                        uint64_t iova, int fd, int access) {
    (void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
    return none();
}

EXPORT struct ibv_context *ibv_import_device(int fd) {
    (void)fd;
    return none();
}

EXPORT struct ibv_pd *ibv_import_pd(struct ibv_context *ctx, uint32_t handle) {
    (void)ctx, (void)handle;
    return none();
}

EXPORT void ibv_unimport_pd(struct ibv_pd *pd) {
    (void)pd;
}

EXPORT struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle) {
    (void)pd, (void)handle;
    return none();
}

EXPORT void ibv_unimport_mr(struct ibv_mr *mr) {
    (void)mr;
}

EXPORT struct ibv_dm *ibv_import_dm(struct ibv_context *ctx, uint32_t handle) {
    (void)ctx, (void)handle;
    return none();
}

EXPORT void ibv_unimport_dm(struct ibv_dm *dm) {
    (void)dm;
}

EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece) {
    (void)qp, (void)ece;
    return EOPNOTSUPP;
}

EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece) {
    (void)qp, (void)ece;
    return EOPNOTSUPP;
}

/* A WRITE's bytes become visible in the order of their addresses, but that is not promised. */
EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags) {
    (void)qp, (void)op, (void)flags;
    return 0;
}
