/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * endpoint.h - what the targets of the software device make again and again: addresses, ids, queue pairs.
 * Without the control lock.
 */
#ifndef TESTS_FUZZ_ENDPOINT_H
#define TESTS_FUZZ_ENDPOINT_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include "fuzz/fuzz.h"

struct sockaddr_in endpoint_here(uint16_t port); /* of this host, loopback */
/* NULL: none within so many ms. To be acknowledged. */
struct rdma_cm_event *endpoint_event(struct rdma_event_channel *channel, int ms);
struct rdma_cm_id *endpoint_listen(struct rdma_event_channel *channel, enum rdma_port_space ps,
                                   uint16_t *port);
/* Up to the route; the two events of that are still to be fetched. */
struct rdma_cm_id *endpoint_resolved(struct rdma_event_channel *channel, uint16_t port);

struct ibv_qp_init_attr endpoint_attr(struct ibv_cq *cq, enum ibv_qp_type type);
void endpoint_to_init(struct ibv_qp *qp, int rights);
/* RTR and RTS, as far as the device allows it. */
void endpoint_to_rts(struct ibv_qp *qp, uint32_t dest, int rights);

#endif
