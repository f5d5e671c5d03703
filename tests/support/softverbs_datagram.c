/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* softverbs_datagram.c - see softverbs_datagram.h. */
#include "support/softverbs_datagram.h"

void ud_to(struct sv_end *e, enum ibv_qp_state state, int mask, uint32_t qkey) {
    struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1, .qkey = qkey};
    must(soft_modify_qp(e->qp, &attr, IBV_QP_STATE | mask) == 0);
}

void ud_start(struct sv_end *e, uint32_t qkey) {
    ud_to(e, IBV_QPS_INIT, UD_INIT_MASK, qkey);
    ud_to(e, IBV_QPS_RTR, 0, 0);
    ud_to(e, IBV_QPS_RTS, IBV_QP_SQ_PSN, 0);
}

void ud_open(struct sv_end *e, struct sv_options o) {
    o.type = IBV_QPT_UD;
    sv_open(e, o);
    ud_start(e, UD_QKEY);
}

struct ibv_ah_attr ud_ah_attr(struct sv_end *e) {
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
    must(soft_query_gid(e->ctx, 1, 0, &attr.grh.dgid) == 0);
    return attr;
}

struct ibv_ah *ud_ah(struct sv_end *e) {
    struct ibv_ah_attr attr = ud_ah_attr(e);
    struct ibv_ah *ah = soft_create_ah(e->pd, &attr);
    must(ah);
    return ah;
}

struct ibv_send_wr ud_wr(struct ibv_ah *ah, uint32_t qpn, struct ibv_sge *sge, unsigned flags) {
    return (struct ibv_send_wr){.sg_list = sge,
                                .num_sge = 1,
                                .opcode = IBV_WR_SEND,
                                .send_flags = flags | IBV_SEND_SIGNALED,
                                .wr.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = UD_QKEY}};
}

int ud_post(struct sv_end *e, struct ibv_send_wr *wr) {
    struct ibv_send_wr *bad = NULL;
    int rc = ibv_post_send(e->qp, wr, &bad);
    must(rc == 0 || bad);
    return rc;
}

void ud_send(struct sv_end *e, struct ibv_ah *ah, uint32_t qpn, size_t offset, size_t bytes) {
    struct ibv_sge sge = sv_sge(e, offset, bytes);
    struct ibv_send_wr wr = ud_wr(ah, qpn, &sge, 0);
    must(ud_post(e, &wr) == 0);
    struct ibv_wc wc = sv_poll(e->scq);
    must(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND && wc.qp_num == e->qp->qp_num);
}

uint32_t ud_drops(struct sv_end *e, enum soft_drop why) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    spin_lock(&qp->lock);
    uint32_t count = qp->drops[why];
    spin_unlock(&qp->lock);
    return count;
}

bool ud_dropped(struct sv_end *e, enum soft_drop why, uint32_t count) {
    soft_qp_progress(soft_qp_of(e->qp));
    return ud_drops(e, why) == count;
}

unsigned ud_ins(struct sv_end *e) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    spin_lock(&qp->lock);
    unsigned n = qp->ud->in_count;
    spin_unlock(&qp->lock);
    return n;
}

unsigned ud_ways(struct sv_end *e) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    unsigned n = 0;
    spin_lock(&qp->lock);
    for (unsigned i = 0; i < qp->ud->way_count; i++)
        n += qp->ud->way[i]->taken;
    spin_unlock(&qp->lock);
    return n;
}

uint32_t ud_run;

union ibv_gid ud_group(uint8_t last) {
    union ibv_gid gid = {.raw = {0xff, 0x0e, [15] = last}};
    must(ud_run != 0);
    memcpy(gid.raw + 8, &ud_run, sizeof ud_run);
    return gid;
}

struct ibv_ah *ud_group_ah(struct sv_end *e, uint8_t last) {
    struct ibv_ah_attr attr = ud_ah_attr(e);
    attr.grh.dgid = ud_group(last);
    struct ibv_ah *ah = soft_create_ah(e->pd, &attr);
    must(ah);
    return ah;
}
