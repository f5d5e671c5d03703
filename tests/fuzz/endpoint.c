/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* endpoint.c - addresses, ids and queue pairs for the targets of the software device. */
#include "endpoint.h"

#include <arpa/inet.h>
#include <poll.h>

#include "soft/soft.h"

struct sockaddr_in endpoint_here(uint16_t port) {
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

struct rdma_cm_event *endpoint_event(struct rdma_event_channel *channel, int ms) {
    struct pollfd p = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    return poll(&p, 1, ms) == 1 && soft_get_cm_event(channel, &event) == 0 ? event : NULL;
}

struct rdma_cm_id *endpoint_listen(struct rdma_event_channel *channel, enum rdma_port_space ps,
                                   uint16_t *port) {
    struct sockaddr_in in = endpoint_here(0);
    struct rdma_cm_id *id;
    PROVE(soft_create_id(channel, &id, NULL, ps) == 0);
    PROVE(soft_bind_addr(id, (struct sockaddr *)&in) == 0 && soft_listen(id, 8) == 0);
    *port = ntohs(soft_get_src_port(id));
    return id;
}

struct rdma_cm_id *endpoint_resolved(struct rdma_event_channel *channel, uint16_t port) {
    struct sockaddr_in to = endpoint_here(port);
    struct rdma_cm_id *id;
    PROVE(soft_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    PROVE(soft_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000) == 0);
    PROVE(soft_resolve_route(id, 1000) == 0);
    return id;
}

/* ---- queue pairs ----------------------------------------------------------------------------- */

struct ibv_qp_init_attr endpoint_attr(struct ibv_cq *cq, enum ibv_qp_type type) {
    return (struct ibv_qp_init_attr){
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = type};
}

static struct ibv_qp_attr attr_of(enum ibv_qp_state state, uint32_t dest, int rights) {
    return (struct ibv_qp_attr){.qp_state = state,
                                .qp_access_flags = (unsigned)rights,
                                .path_mtu = IBV_MTU_1024,
                                .dest_qp_num = dest,
                                .port_num = 1,
                                .qkey = 5,
                                .ah_attr = {.is_global = 1, .port_num = 1},
                                .max_rd_atomic = rights ? 4 : 0,
                                .max_dest_rd_atomic = rights ? 4 : 0,
                                .min_rnr_timer = 1,
                                .timeout = 14,
                                .retry_cnt = 7,
                                .rnr_retry = 7};
}

void endpoint_to_init(struct ibv_qp *qp, int rights) {
    struct ibv_qp_attr attr = attr_of(IBV_QPS_INIT, 0, rights);
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
               (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    PROVE(soft_modify_qp(qp, &attr, mask) == 0);
}

void endpoint_to_rts(struct ibv_qp *qp, uint32_t dest, int rights) {
    struct ibv_qp_attr attr = attr_of(IBV_QPS_RTR, dest, rights);
    int to_rtr = IBV_QP_STATE, to_rts = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (qp->qp_type != IBV_QPT_UD)
        to_rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (qp->qp_type == IBV_QPT_RC) {
        to_rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        to_rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    (void)soft_modify_qp(qp, &attr, to_rtr);
    attr.qp_state = IBV_QPS_RTS;
    (void)soft_modify_qp(qp, &attr, to_rts);
}
