/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * extended.h - small frames by extended verbs: header and payload are two buffers of inline data, and no work request
 * is built that the driver reads again (ibv_wr_post(3)). For every device whose driver has them. Stateless.
 */
#ifndef FABRIC_EXTENDED_H
#define FABRIC_EXTENDED_H

#include "fabric/fabric.h"

/*
 * A QP whose sends extended verbs can post, and ibv_post_send() as well. NULL and errno, EOPNOTSUPP among others: this
 * device does not make one; attr is as it was.
 */
struct ibv_qp *extended_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);

/* The call for such QPs of this device. */
fabric_post_framed *extended_post_framed_of(const struct ibv_device_attr *attr);

/* Bytes behind the header that it takes, of a QP with so much inline data. */
uint32_t extended_framed_most(uint32_t inline_most);

#endif
