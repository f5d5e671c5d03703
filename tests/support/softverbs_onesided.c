/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* softverbs_onesided.c - see softverbs_onesided.h. */
#include "support/softverbs_onesided.h"

#include <sched.h>
#include <stdlib.h>

#include "soft/rc/process_copy.h"

const char *const onesided_way_name[WAYS] = {"mapped", "process", "ring"};

void onesided_to_rts(struct sv_end *e, uint32_t dest, int access, uint8_t depth) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_INIT, 0);
    attr.qp_access_flags = (unsigned)access;
    must(soft_modify_qp(e->qp, &attr, SV_INIT_MASK) == 0);
    attr = sv_attr(e, IBV_QPS_RTR, dest);
    attr.max_dest_rd_atomic = depth;
    must(soft_modify_qp(e->qp, &attr, SV_RTR_MASK) == 0);
    attr = sv_attr(e, IBV_QPS_RTS, 0);
    attr.max_rd_atomic = depth;
    must(soft_modify_qp(e->qp, &attr, SV_RTS_MASK) == 0);
}

/* There is a thread that copies, and the kernel lets it: a byte was read. */
static void reach_process(struct sv_end *e) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    static uint8_t from = 1, to;
    struct iovec iov = {&to, 1};
    const struct process_piece piece = {.iov = &iov, .count = 1, .addr = &from, .bytes = 1};
    uint32_t bytes;
    for (bool given = false, over = false; !over; sched_yield()) {
        spin_lock(&qp->lock);
        if (!given)
            given = soft_process_copy_give(qp, &piece);
        else
            over = soft_process_copy_take(qp, &bytes) != PROCESS_COPY_UNDER_WAY;
        spin_unlock(&qp->lock);
    }
    must(ld(qp->link_peer->reach) == PROCESS_REACHED && to == 1);
}

void onesided_open_bytes(struct onesided *p, size_t bytes, enum way way, int qp_access,
                         int mr_access, uint8_t depth) {
    if (way == PROCESS && getenv("SLUICE_EMULATED"))
        way = RING; /* as where a kernel has no process_vm_readv(): QEMU's user mode has none */
    sv_open(&p->a, SV_OPTIONS(.bytes = bytes, .mapped = true, .one_cq = true));
    sv_open(&p->b, SV_OPTIONS(.bytes = bytes, .mapped = way == MAPPED, .one_cq = true));
    p->open = soft_reg_mr(p->b.pd, p->b.buf, bytes, IBV_ACCESS_LOCAL_WRITE | mr_access);
    must(p->open);
    onesided_to_rts(&p->a, p->b.qp->qp_num, ALL_REMOTE, depth);
    onesided_to_rts(&p->b, p->a.qp->qp_num, qp_access, depth);
    sv_wait_linked(&p->a);
    sv_wait_linked(&p->b);
    struct soft_peer *peer = soft_qp_of(p->a.qp)->link_peer;
    sv_until(atomic_load(&peer->keys) != NULL);
    if (way == MAPPED && (mr_access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)))
        sv_until(atomic_load(&peer->regions[soft_mr_of(p->open)->region].writable));
    else if (way == MAPPED)
        sv_until(atomic_load(&peer->regions[soft_mr_of(p->open)->region].addr) != NULL);
    if (way == PROCESS)
        reach_process(&p->a);
    if (way == RING)
        atomic_store(&peer->reach, PROCESS_CLOSED);
}

void onesided_open(struct onesided *p, enum way way, int qp_access, int mr_access, uint8_t depth) {
    onesided_open_bytes(p, ONESIDED_BYTES, way, qp_access, mr_access, depth);
}

void onesided_close(struct onesided *p) {
    must(soft_destroy_qp(p->a.qp) == 0);
    must(soft_destroy_qp(p->b.qp) == 0);
    p->a.qp = p->b.qp = NULL;
    must(soft_dereg_mr(p->open) == 0);
    sv_close(&p->a);
    sv_close(&p->b);
}

int onesided_post(struct onesided *p, enum ibv_wr_opcode opcode, size_t local, size_t bytes,
                  size_t remote, uint32_t rkey, unsigned flags) {
    struct ibv_sge sge = sv_sge(&p->a, local, bytes);
    struct ibv_send_wr wr = {.wr_id = 100 + opcode,
                             .sg_list = &sge,
                             .num_sge = bytes ? 1 : 0,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED | flags,
                             .imm_data = 0x11223344,
                             .wr.rdma = {(uintptr_t)p->b.buf + remote, rkey}},
                       *bad;
    return ibv_post_send(p->a.qp, &wr, &bad);
}

int onesided_post_atomic(struct onesided *p, bool swap, size_t local, size_t remote,
                         uint64_t compare_add, uint64_t swap_to) {
    struct ibv_sge sge = sv_sge(&p->a, local, 8);
    struct ibv_send_wr wr = {.wr_id = 7,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode =
                                 swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.atomic = {.remote_addr = (uintptr_t)p->b.buf + remote,
                                           .rkey = p->open->rkey,
                                           .compare_add = compare_add,
                                           .swap = swap_to}},
                       *bad;
    return ibv_post_send(p->a.qp, &wr, &bad);
}

void onesided_expect(struct onesided *p, enum ibv_wc_status status, enum ibv_wc_opcode opcode) {
    struct ibv_wc wc = sv_poll(p->a.rcq);
    if (wc.status != status)
        fprintf(stderr, "status %d, not %d\n", wc.status, status);
    must(wc.status == status);
    if (status == IBV_WC_SUCCESS)
        must(wc.opcode == opcode);
    must(wc.qp_num == p->a.qp->qp_num);
}

void onesided_refused(struct onesided *p, enum ibv_wc_status status, enum ibv_event_type event) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    onesided_expect(p, status, 0);
    sv_async(p->b.ctx, event, p->b.qp);
    must(soft_query_qp(p->b.qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
    must(soft_query_qp(p->a.qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
    must(p->a.qp->state == IBV_QPS_ERR);
}
