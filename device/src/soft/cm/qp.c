/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp.c - QPs and ids: attributes for each transition, the QP that sits on an id.
 *
 * Attributes and masks are those the kernel hands out; among them a min_rnr_timer of 0, which means
 * 655 ms, and rights that depend on the negotiated responder resources.
 */
#include "soft/cm/qp.h"

#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "soft/cm/agreed.h"
#include "soft/cm/id.h"
#include "soft/cm/mcast.h"
#include "soft/cm/mpa.h"
#include "soft/cm/mpa_answer.h"
#include "soft/object/profile.h"
#include "soft/soft.h"

#define GIDS_MAX 16
#define GIDS_FRESH_NS 1000000000ull
#define PACKET_LIFE_TIME 16 /* as the kernel assumes for RoCE; the ACK timeout is one more */
#define HOP_LIMIT 64

/* ---- the device ------------------------------------------------------------------------------------ */

uint8_t soft_cm_qp_gid_index(struct ibv_context *verbs, const union ibv_gid *gid) {
    /* Asking for the table costs more than the rest of a connection set-up: kept for a second. */
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static union ibv_gid gids[GIDS_MAX];
    static uint64_t fresh_until;
    uint8_t index = 0;
    if (pthread_mutex_trylock(&mutex))
        return 0; /* for RC a hint only */
    if (soft_now_ns() >= fresh_until) {
        for (int i = 0; i < GIDS_MAX; i++)
            if (soft_query_gid(verbs, 1, i, &gids[i]))
                memset(&gids[i], 0, sizeof gids[i]);
        fresh_until = soft_now_ns() + GIDS_FRESH_NS;
    }
    while (index < GIDS_MAX && memcmp(&gids[index], gid, sizeof *gid))
        index++;
    pthread_mutex_unlock(&mutex);
    return index < GIDS_MAX ? index : 0;
}

void soft_cm_qp_limits(struct soft_cm_id *id, uint8_t *responder_resources,
                       uint8_t *initiator_depth) {
    struct ibv_device_attr attr = {0};
    if (id->id.verbs)
        soft_query_device(id->id.verbs, &attr);
    *responder_resources = (uint8_t)(attr.max_qp_rd_atom > 254 ? 254 : attr.max_qp_rd_atom);
    *initiator_depth = (uint8_t)(attr.max_qp_init_rd_atom > 254 ? 254 : attr.max_qp_init_rd_atom);
}

bool soft_cm_qp_param_invalid(struct soft_cm_id *id, const struct rdma_conn_param *param) {
    if (id->id.ps != RDMA_PS_TCP || !param)
        return false;
    uint8_t resources, depth;
    soft_cm_qp_limits(id, &resources, &depth);
    return (param->responder_resources != RDMA_MAX_RESP_RES &&
            param->responder_resources > resources) ||
           (param->initiator_depth != RDMA_MAX_INIT_DEPTH && param->initiator_depth > depth);
}

/* ---- attributes; control lock held ------------------------------------------------------------------- */

/* Before a connection exists, and for UD: the same for every state asked for. */
static int basic_attr(struct soft_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
    attr->port_num = 1;
    *mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (soft_cm_id_is_ud(id)) {
        attr->qkey = RDMA_UDP_QKEY;
        *mask |= IBV_QP_QKEY;
    } else {
        *mask |= IBV_QP_ACCESS_FLAGS;
    }
    return 0;
}

static int init_attr(struct soft_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
    attr->port_num = 1;
    attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (id->conn.responder_resources)
        attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    *mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    return 0;
}

static int rtr_attr(struct soft_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
    attr->ah_attr.is_global = 1;
    attr->ah_attr.port_num = 1;
    attr->ah_attr.grh.dgid = id->id.route.addr.addr.ibaddr.dgid;
    attr->ah_attr.grh.sgid_index = id->gid_index;
    attr->ah_attr.grh.hop_limit = HOP_LIMIT;
    attr->ah_attr.grh.traffic_class = id->tos;
    attr->path_mtu = IBV_MTU_4096;
    attr->dest_qp_num = id->conn.remote_qpn;
    attr->rq_psn = id->conn.recv_psn;
    attr->max_dest_rd_atomic = id->conn.responder_resources;
    attr->min_rnr_timer = 0;
    *mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    return 0;
}

static int rts_attr(struct soft_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
    attr->sq_psn = id->conn.send_psn;
    attr->timeout = id->ack_timeout_set ? id->ack_timeout & 31 : PACKET_LIFE_TIME + 1;
    attr->retry_cnt = id->conn.retry_count;
    attr->rnr_retry = id->conn.rnr_retry_count;
    attr->max_rd_atomic = id->conn.initiator_depth;
    *mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
            IBV_QP_MAX_QP_RD_ATOMIC;
    return 0;
}

static bool knows_peer(enum soft_cm_conn_state state) {
    switch (state) {
    case SOFT_CM_CONN_REQ_RCVD:
    case SOFT_CM_CONN_REP_SENT:
    case SOFT_CM_CONN_REP_RCVD:
    case SOFT_CM_CONN_UP:
        return true;
    case SOFT_CM_CONN_NONE:
    case SOFT_CM_CONN_REQ_SENT:
    case SOFT_CM_CONN_DREQ_SENT:
    case SOFT_CM_CONN_DREQ_RCVD:
    case SOFT_CM_CONN_TIMEWAIT:
    case SOFT_CM_CONN_SIDR_SENT:
    case SOFT_CM_CONN_SIDR_RCVD:
    case SOFT_CM_CONN_SIDR_DONE:
    case SOFT_CM_CONN_OVER:
        return false;
    }
    return false;
}

static int fill_attr(struct soft_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
    enum ibv_qp_state state = attr->qp_state;
    memset(attr, 0, sizeof *attr);
    attr->qp_state = state;
    if (soft_profile()->iwarp) {
        soft_cm_mpa_attr(id, attr, mask);
        return 0;
    }
    if (id->conn.state == SOFT_CM_CONN_NONE || soft_cm_id_is_ud(id))
        return basic_attr(id, attr, mask);
    if (state == IBV_QPS_INIT &&
        (knows_peer(id->conn.state) || id->conn.state == SOFT_CM_CONN_REQ_SENT))
        return init_attr(id, attr, mask);
    if (state == IBV_QPS_RTR && knows_peer(id->conn.state))
        return rtr_attr(id, attr, mask);
    if (state == IBV_QPS_RTS && knows_peer(id->conn.state))
        return rts_attr(id, attr, mask);
    return EINVAL;
}

int soft_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (!error && (!attr || !mask || !id->verbs))
        error = EINVAL;
    if (error)
        return soft_cm_fail(error);
    soft_lock();
    error = soft_cm_id_of(id)->state == SOFT_CM_DEAD ? EINVAL
                                                     : fill_attr(soft_cm_id_of(id), attr, mask);
    if (!error && attr->qp_state == IBV_QPS_RTR)
        soft_cm_agreed_tell(soft_cm_id_of(id), attr);
    soft_unlock();
    return error ? soft_cm_fail(error) : 0;
}

/* ---- transitions ------------------------------------------------------------------------------------- */

static int modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    int error = soft_modify_qp(qp, attr, mask);
    return error ? soft_cm_fail(error) : 0;
}

static int move(struct soft_cm_id *id, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask;
    if (soft_init_qp_attr(&id->id, &attr, &mask))
        return -1;
    return modify(id->id.qp, &attr, mask);
}

int soft_cm_qp_connect(struct soft_cm_id *id, uint8_t responder_resources,
                       uint8_t initiator_depth) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    int mask;
    if (move(id, IBV_QPS_INIT) || soft_init_qp_attr(&id->id, &attr, &mask))
        return -1;
    if (responder_resources != RDMA_MAX_RESP_RES)
        attr.max_dest_rd_atomic = responder_resources;
    if (modify(id->id.qp, &attr, mask))
        return -1;
    attr.qp_state = IBV_QPS_RTS;
    if (soft_init_qp_attr(&id->id, &attr, &mask))
        return -1;
    if (initiator_depth != RDMA_MAX_INIT_DEPTH)
        attr.max_rd_atomic = initiator_depth;
    return modify(id->id.qp, &attr, mask);
}

void soft_cm_qp_error(struct soft_cm_id *id) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    if (id->id.qp)
        (void)soft_modify_qp(id->id.qp, &attr, IBV_QP_STATE);
}

/* A datagram QP is ready at once. */
static int start_ud(struct soft_cm_id *id) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
    if (move(id, IBV_QPS_INIT) || modify(id->id.qp, &attr, IBV_QP_STATE))
        return -1;
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = 0;
    return modify(id->id.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

/* ---- the QP on the id -------------------------------------------------------------------------------- */

static void destroy_cqs(struct rdma_cm_id *id) {
    if (id->recv_cq)
        soft_destroy_cq(id->recv_cq);
    if (id->recv_cq_channel)
        soft_destroy_comp_channel(id->recv_cq_channel);
    if (id->send_cq && id->send_cq != id->recv_cq)
        soft_destroy_cq(id->send_cq);
    if (id->send_cq_channel && id->send_cq_channel != id->recv_cq_channel)
        soft_destroy_comp_channel(id->send_cq_channel);
    id->recv_cq = id->send_cq = NULL;
    id->recv_cq_channel = id->send_cq_channel = NULL;
}

static int create_cq(struct rdma_cm_id *id, uint32_t entries, struct ibv_comp_channel **channel,
                     struct ibv_cq **cq) {
    *channel = soft_create_comp_channel(id->verbs);
    if (!*channel)
        return -1;
    *cq = soft_create_cq(id->verbs, entries ? (int)entries : 1, id, *channel, 0);
    if (!*cq)
        return -1;
    int error = ibv_req_notify_cq(*cq, 0);
    return error ? soft_cm_fail(error) : 0;
}

/* Makes the CQs the caller left out; they are the id's, not the caller's. */
static int create_cqs(struct rdma_cm_id *id, struct ibv_qp_init_attr *attr) {
    if (!attr->recv_cq) {
        if (create_cq(id, attr->cap.max_recv_wr, &id->recv_cq_channel, &id->recv_cq))
            return -1;
        attr->recv_cq = id->recv_cq;
    }
    if (!attr->send_cq) {
        if (create_cq(id, attr->cap.max_send_wr, &id->send_cq_channel, &id->send_cq))
            return -1;
        attr->send_cq = id->send_cq;
    }
    return 0;
}

int soft_cm_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (!error && (!attr || !id->verbs || id->qp))
        error = EINVAL;
    if (error)
        return soft_cm_fail(error);
    if (!pd)
        pd = id->pd;
    if (!pd || pd->context != id->verbs)
        return soft_cm_fail(EINVAL);
    if ((id->recv_cq && attr->recv_cq && id->recv_cq != attr->recv_cq) ||
        (id->send_cq && attr->send_cq && id->send_cq != attr->send_cq))
        return soft_cm_fail(EINVAL);
    if (create_cqs(id, attr))
        goto undo_cqs;
    if (id->srq && !attr->srq)
        attr->srq = id->srq;
    struct ibv_qp *qp = soft_create_qp(pd, attr);
    if (!qp)
        goto undo_cqs;
    id->qp = qp;
    soft_lock();
    soft_cm_agreed_note(soft_cm_id_of(id), qp->qp_num);
    soft_unlock();
    if (soft_cm_id_is_ud(soft_cm_id_of(id)) ? start_ud(soft_cm_id_of(id))
                                            : move(soft_cm_id_of(id), IBV_QPS_INIT))
        goto undo_qp;
    id->pd = pd;
    return 0;
undo_qp:
    error = errno;
    id->qp = NULL;
    soft_destroy_qp(qp);
    errno = error;
undo_cqs:
    error = errno;
    destroy_cqs(id);
    return soft_cm_fail(error);
}

void soft_cm_destroy_qp(struct rdma_cm_id *id) {
    UNCANCELLED;
    if (!id || !id->qp || soft_cm_id_of(id)->generation != soft_generation_now)
        return;
    soft_cm_mcast_detach_all(soft_cm_id_of(id));
    soft_destroy_qp(id->qp);
    id->qp = NULL;
    destroy_cqs(id);
}

/* ---- the SRQ on the id ------------------------------------------------------------------------------- */

int soft_cm_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
    UNCANCELLED;
    int error = soft_cm_id_unusable(id);
    if (!error && (!attr || !id->verbs || id->srq))
        error = EINVAL;
    if (error)
        return soft_cm_fail(error);
    if (!pd)
        pd = id->pd;
    if (!pd || pd->context != id->verbs)
        return soft_cm_fail(EINVAL);
    id->srq = soft_create_srq(pd, attr);
    if (!id->srq)
        return -1;
    id->pd = pd;
    return 0;
}

void soft_cm_destroy_srq(struct rdma_cm_id *id) {
    UNCANCELLED;
    if (!id || !id->srq || soft_cm_id_of(id)->generation != soft_generation_now)
        return;
    soft_destroy_srq(id->srq);
    id->srq = NULL;
    destroy_cqs(id);
}
