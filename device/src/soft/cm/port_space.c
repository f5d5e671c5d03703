/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* port_space.c - see port_space.h. Pure; any thread. */
#include "soft/cm/port_space.h"

#include <errno.h>

int soft_cm_qp_type_of(enum rdma_port_space ps) {
    switch (ps) {
    case RDMA_PS_TCP:
    case RDMA_PS_IB:
        return IBV_QPT_RC;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
        return IBV_QPT_UD;
    }
    return -1;
}

int soft_cm_check_types(enum rdma_port_space ps, enum ibv_qp_type type) {
    if (soft_cm_qp_type_of(ps) < 0)
        return EINVAL;
    switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_UD:
        return ps == RDMA_PS_IB || (int)type == soft_cm_qp_type_of(ps) ? 0 : EINVAL;
    case IBV_QPT_UC:
    case IBV_QPT_RAW_PACKET:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
    case IBV_QPT_DRIVER:
        return EOPNOTSUPP;
    }
    return EINVAL;
}
