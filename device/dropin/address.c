/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * address.c - address handles and multicast groups. The device's datagrams may be left out of a build:
 * then its calls do not exist, and these fail with EOPNOTSUPP.
 */
#include <errno.h>
#include <string.h>

#include "dropin/dropin.h"

#define WEAK __attribute__((weak))

WEAK struct ibv_ah *soft_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
WEAK int soft_destroy_ah(struct ibv_ah *ah);
WEAK int soft_init_ah_from_wc(struct ibv_context *ctx, uint8_t port, struct ibv_wc *wc,
                              struct ibv_grh *grh, struct ibv_ah_attr *attr);
WEAK struct ibv_ah *soft_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
                                           struct ibv_grh *grh, uint8_t port);
WEAK int soft_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
WEAK int soft_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
    if (soft_create_ah)
        return soft_create_ah(pd, attr);
    errno = EOPNOTSUPP;
    return NULL;
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah) {
    return soft_destroy_ah ? soft_destroy_ah(ah) : EOPNOTSUPP;
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *ctx, uint8_t port, struct ibv_wc *wc,
                               struct ibv_grh *grh, struct ibv_ah_attr *attr) {
    if (soft_init_ah_from_wc)
        return soft_init_ah_from_wc(ctx, port, wc, grh, attr);
    errno = EOPNOTSUPP;
    return -1;
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
                                            struct ibv_grh *grh, uint8_t port) {
    if (soft_create_ah_from_wc)
        return soft_create_ah_from_wc(pd, wc, grh, port);
    errno = EOPNOTSUPP;
    return NULL;
}

EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
    return soft_attach_mcast ? soft_attach_mcast(qp, gid, lid) : EOPNOTSUPP;
}

EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid) {
    return soft_detach_mcast ? soft_detach_mcast(qp, gid, lid) : EOPNOTSUPP;
}

/* There are no link addresses between processes of one host. */
EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *ctx, struct ibv_ah_attr *attr,
                                       uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid) {
    (void)ctx, (void)attr;
    memset(mac, 0, ETHERNET_LL_SIZE);
    if (vid)
        *vid = 0xffff;
    return 0;
}
