/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* port_space.h - which queue pairs an id of a port space may have. */
#ifndef SOFT_CM_PORT_SPACE_H
#define SOFT_CM_PORT_SPACE_H

#include <rdma/rdma_cma.h>

/* What an id has whose type is not named; -1: there is no such port space. */
int soft_cm_qp_type_of(enum rdma_port_space ps);
/* 0 or errno. Types that exist, but not here, are told from what is no type: EOPNOTSUPP. */
int soft_cm_check_types(enum rdma_port_space ps, enum ibv_qp_type type);

#endif
