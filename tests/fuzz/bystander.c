/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* bystander.c - a connection that nobody may touch. */
#include "bystander.h"

#include <poll.h>

#include "soft/cm/id.h"
#include "soft/object/qp.h"
#include "soft/soft.h"

static struct rdma_cm_id *take(struct bystander *b, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event = endpoint_event(b->channel, 20000);
    PROVE(event && event->event == type);
    struct rdma_cm_id *id = event->id;
    soft_ack_cm_event(event);
    return id;
}

void bystander_open(struct bystander *b, struct ibv_pd *pd, struct ibv_cq *cq) {
    uint16_t port;
    struct ibv_qp_init_attr init = endpoint_attr(cq, IBV_QPT_RC);
    b->channel = soft_create_event_channel();
    PROVE(b->channel);
    struct rdma_cm_id *listener = endpoint_listen(b->channel, RDMA_PS_TCP, &port);
    b->id[0] = endpoint_resolved(b->channel, port);
    take(b, RDMA_CM_EVENT_ADDR_RESOLVED);
    take(b, RDMA_CM_EVENT_ROUTE_RESOLVED);
    PROVE(soft_cm_create_qp(b->id[0], pd, &init) == 0);
    PROVE(soft_connect(b->id[0], NULL) == 0);
    b->id[1] = take(b, RDMA_CM_EVENT_CONNECT_REQUEST);
    PROVE(soft_cm_create_qp(b->id[1], pd, &init) == 0);
    PROVE(soft_accept(b->id[1], NULL) == 0);
    take(b, RDMA_CM_EVENT_ESTABLISHED);
    take(b, RDMA_CM_EVENT_ESTABLISHED);
    for (int i = 0; i < 2; i++) {
        struct soft_qp *qp = soft_qp_of(b->id[i]->qp);
        while (!(b->tx[i] = atomic_load(&qp->tx)))
            poll(NULL, 0, 1);
        b->rx[i] = atomic_load(&qp->rx);
    }
    soft_destroy_id(listener);
}

uint64_t bystander_number(const struct bystander *b, int end) {
    return soft_cm_id_of(b->id[end])->number;
}

void bystander_prove(const struct bystander *b) {
    PROVE(!endpoint_event(b->channel, 0));
    for (int i = 0; i < 2; i++) {
        struct soft_qp *qp = soft_qp_of(b->id[i]->qp);
        PROVE(soft_cm_id_of(b->id[i])->conn.state == SOFT_CM_CONN_UP);
        PROVE(qp->state == IBV_QPS_RTS && atomic_load(&qp->tx) == b->tx[i]);
        PROVE(atomic_load(&qp->rx) == b->rx[i] && !qp->peer_gone &&
              cds_list_empty(&qp->pending_rings));
    }
}
