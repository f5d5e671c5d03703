/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_uid_test.c - the trust model between two users: nothing but rings and boards is shared,
 * messages and one-sided operations still work, and keys are enforced at the target. Needs root to
 * become somebody else; says so loudly and skips where it cannot.
 */
#include "support/softverbs.h"
#include "support/skip.h"
#include "soft/rc/process_copy.h"
#include "soft/ipc/peer.h"

#define OTHER_UID 65534
#define BYTES (256u * 1024)
#define SKIPPED 77

#define ALL_REMOTE                                                                                 \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC)

static void to_rts(struct sv_end *e, uint32_t dest) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_INIT, 0);
    attr.qp_access_flags = ALL_REMOTE;
    must(soft_modify_qp(e->qp, &attr, SV_INIT_MASK) == 0);
    attr = sv_attr(e, IBV_QPS_RTR, dest);
    attr.max_dest_rd_atomic = 4;
    must(soft_modify_qp(e->qp, &attr, SV_RTR_MASK) == 0);
    attr = sv_attr(e, IBV_QPS_RTS, 0);
    attr.max_rd_atomic = 4;
    must(soft_modify_qp(e->qp, &attr, SV_RTS_MASK) == 0);
}

/*
 * The engine executes requests with the control lock held; the other process says when over a
 * socket, which thread sanitizer cannot follow. Passing the lock shows it the order.
 */
static void after_the_engine(void) {
    soft_lock();
    soft_unlock();
}

static struct ibv_wc ask(struct sv_end *e, enum ibv_wr_opcode opcode, size_t bytes, uint64_t addr,
                         uint32_t rkey) {
    struct ibv_sge sge = sv_sge(e, 0, bytes);
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {addr, rkey}},
                       *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = addr;
        wr.wr.atomic.compare_add = 5;
        wr.wr.atomic.rkey = rkey;
    }
    must(ibv_post_send(e->qp, &wr, &bad) == 0);
    return sv_poll(e->scq);
}

/* The target: its memory lies in a region, and it never polls while it is written. */
static void other_user(int fd) {
    struct sv_end e;
    if (setresgid(OTHER_UID, OTHER_UID, OTHER_UID) != 0 ||
        setresuid(OTHER_UID, OTHER_UID, OTHER_UID) != 0)
        _exit(SKIPPED);
    sv_open(&e, SV_OPTIONS(.mapped = true, .bytes = BYTES, .one_cq = true));
    struct ibv_mr *open = soft_reg_mr(e.pd, e.buf, BYTES / 2, ALL_REMOTE);
    must(open);
    sv_tell(fd, e.qp->qp_num);
    to_rts(&e, sv_hear(fd));
    sv_tell(fd, open->rkey);
    sv_tell(fd, (uint32_t)((uintptr_t)e.buf >> 32));
    sv_tell(fd, (uint32_t)(uintptr_t)e.buf);
    must(sv_recv(&e, 1, 0, BYTES) == 0);
    struct ibv_wc wc = sv_poll(e.rcq); /* a message larger than the ring */
    must(wc.status == IBV_WC_SUCCESS && wc.byte_len == 100000);
    sv_check(e.buf, 100000, 1);
    sv_wait_linked(&e); /* it may receive before it can send */
    struct soft_peer *peer = soft_qp_of(e.qp)->link_peer;
    must(soft_peer_uid(peer) == 0 && atomic_load(&peer->keys) == NULL && !peer->keys_sent);
    for (int i = 0; i < SOFT_MAX_REGIONS; i++)
        must(atomic_load(&peer->regions[i].addr) == NULL &&
             atomic_load(&peer->region_sent[i]) == REGION_UNSENT);
    after_the_engine();
    sv_tell(fd, 1);
    must(sv_hear(fd) == 2); /* it wrote, read and added while we did nothing */
    after_the_engine();
    sv_check(e.buf, 3000, 2);
    sv_tell(fd, 3);
    must(sv_hear(fd) == 4); /* it tried what it may not */
    sv_async(e.ctx, IBV_EVENT_QP_ACCESS_ERR, NULL);
    must(soft_destroy_qp(e.qp) == 0);
    e.qp = NULL;
    must(soft_dereg_mr(open) == 0);
    sv_close(&e);
}

TEST(users_share_no_memory_and_keys_are_enforced_at_the_target) {
    struct sv_end e;
    if (geteuid() != 0)
        skip_with("needs root to run a process of another user");
    struct sv_child child = sv_fork(other_user);
    sv_open(&e, SV_OPTIONS(.mapped = true, .bytes = BYTES, .one_cq = true));
    sv_tell(child.fd, e.qp->qp_num);
    uint32_t qpn;
    if (recv(child.fd, &qpn, sizeof qpn, MSG_WAITALL) != sizeof qpn) {
        must(WEXITSTATUS(sv_join(&child)) == SKIPPED);
        sv_close(&e);
        skip_with("this process may not become another user");
    }
    to_rts(&e, qpn);
    uint32_t rkey = sv_hear(child.fd);
    uint64_t addr = (uint64_t)sv_hear(child.fd) << 32;
    addr |= sv_hear(child.fd);
    sv_fill(e.buf, 100000, 1);
    must(sv_send(&e, 1, 0, 100000, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(e.scq).status == IBV_WC_SUCCESS);
    must(sv_hear(child.fd) == 1);
    sv_fill(e.buf, 3000, 2);
    struct ibv_wc wc = ask(&e, IBV_WR_RDMA_WRITE, 3000, addr, rkey);
    must(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RDMA_WRITE);
    memset(e.buf, 0, 3000);
    must(ask(&e, IBV_WR_RDMA_READ, 3000, addr, rkey).status == IBV_WC_SUCCESS);
    sv_check(e.buf, 3000, 2);
    must(ask(&e, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, addr + 4096, rkey).status == IBV_WC_SUCCESS);
    must(ask(&e, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, addr + 4096, rkey).status == IBV_WC_SUCCESS);
    uint64_t old, began;
    memcpy(&old, e.buf, sizeof old);
    must(ask(&e, IBV_WR_RDMA_READ, 8, addr + 4096, rkey).status == IBV_WC_SUCCESS);
    memcpy(&began, e.buf, sizeof began);
    must(began == old + 5);
    must(ld(soft_qp_of(e.qp)->link_peer->reach) != PROCESS_REACHED);
    sv_tell(child.fd, 2);
    must(sv_hear(child.fd) == 3);
    /* one byte past what the key covers, though the memory behind it is registered too */
    must(ask(&e, IBV_WR_RDMA_WRITE, 2, addr + BYTES / 2 - 1, rkey).status == IBV_WC_REM_ACCESS_ERR);
    sv_tell(child.fd, 4);
    must(sv_join(&child) == 0);
    sv_close(&e);
}
