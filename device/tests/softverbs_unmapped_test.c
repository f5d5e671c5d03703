/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_unmapped_test.c - memory that its program took away while it was registered: a peer's message, WRITE, READ or
 * atomic fails at both ends, on every way in which the device reaches memory, and no process is ended by it.
 */
#include "support/softverbs_onesided.h"
#include "support/softverbs_tcp.h"

#include <sys/mman.h>

#include "common/sanitize.h"
#include "support/softverbs_datagram.h"

#define PAGE ((size_t)4096)
#define MEMORY (64 * PAGE)

/* ---- memory that goes away ------------------------------------------------------------------------ */

enum gone { UNMAPPED, FORBIDDEN, CUT_OFF, GONES };

static const char *const gone_name[GONES] = {"unmapped", "forbidden", "cut off"};

struct memory {
    uint8_t *at;
    struct ibv_mr *mr;
    int fd;
};

/* Registered with all rights at that end; its second page is what goes. */
static struct memory memory_open(struct ibv_pd *pd, enum gone how) {
    struct memory m = {.fd = -1};
    int flags = how == CUT_OFF ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    if (how == CUT_OFF) {
        m.fd = memfd_create("unmapped-test", MFD_CLOEXEC);
        must(m.fd >= 0 && ftruncate(m.fd, (off_t)MEMORY) == 0);
    }
    m.at = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, flags, m.fd, 0);
    must(m.at != MAP_FAILED);
    memset(m.at, 0x11, MEMORY);
    m.mr = soft_reg_mr(pd, m.at, MEMORY, IBV_ACCESS_LOCAL_WRITE | ALL_REMOTE);
    must(m.mr);
    return m;
}

/* One page, which is too little for anything that another thread may map meanwhile; or all behind the first. */
static void memory_goes(struct memory *m, enum gone how) {
    switch (how) {
    case UNMAPPED:
        must(munmap(m->at + PAGE, PAGE) == 0);
        break;
    case FORBIDDEN:
        must(mprotect(m->at + PAGE, PAGE, PROT_NONE) == 0);
        break;
    case CUT_OFF:
        must(ftruncate(m->fd, (off_t)PAGE) == 0);
        break;
    case GONES:
        break;
    }
}

static void memory_close(struct memory *m) {
    must(soft_dereg_mr(m->mr) == 0);
    must(munmap(m->at, MEMORY) == 0);
    if (m->fd >= 0)
        close(m->fd);
}

static int receive_at(struct ibv_qp *qp, struct ibv_srq *srq, uint64_t wr_id,
                      const struct memory *m, size_t offset, size_t bytes) {
    struct ibv_sge sge = {(uintptr_t)m->at + offset, (uint32_t)bytes, m->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
    return srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);
}

/* Begins on the page that stays, if there is so much of it, and ends on the one that goes. */
static size_t offset_of(size_t bytes) {
    return bytes < 2 * PAGE ? PAGE - bytes / 2 : 0;
}

/* ---- messages ------------------------------------------------------------------------------------- */

/* Of one slot, of several, of several segments; described, if the sender's memory is mapped by the receiver. */
static const size_t sizes[] = {1, 100, 400, 20000, 100000};

static void expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status) {
    struct ibv_wc wc = sv_poll(cq);
    must_data(wc.wr_id == wr_id);
    if (wc.status != status)
        fprintf(stderr, "status %d, not %d\n", wc.status, status);
    must(wc.status == status);
}

static void a_message(size_t bytes, enum gone how, bool shared, bool mapped) {
    struct sv_end a, b;
    struct ibv_srq *srq = NULL;
    struct ibv_qp *qp;
    sv_open(&a, SV_OPTIONS(.bytes = MEMORY, .mapped = mapped, .one_cq = true));
    sv_open(&b, SV_OPTIONS(.mapped = true, .one_cq = true));
    qp = b.qp;
    if (shared) {
        struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
        must((srq = soft_create_srq(b.pd, &init)) != NULL);
        struct ibv_qp_init_attr attr = {.send_cq = b.scq,
                                        .recv_cq = b.rcq,
                                        .srq = srq,
                                        .cap = {.max_send_wr = 8, .max_send_sge = 1},
                                        .qp_type = IBV_QPT_RC};
        must((qp = soft_create_qp(b.pd, &attr)) != NULL);
    }
    struct memory m = memory_open(b.pd, how);
    sv_connect(&a, qp->qp_num);
    sv_connect_qp(&b, qp, a.qp->qp_num);
    for (uint64_t i = 0; i < 3; i++)
        must(receive_at(qp, srq, i, &m, i == 1 ? offset_of(bytes) : 8 * PAGE,
                        bytes < PAGE ? PAGE : bytes) == 0);
    sv_wait_linked(&a);
    if (mapped)
        sv_wait_mapped(&a);
    sv_fill(a.buf, bytes, 3);
    must(sv_send(&a, 10, 0, bytes, IBV_SEND_SIGNALED) == 0);
    expect(b.rcq, 0, IBV_WC_SUCCESS);
    expect(a.scq, 10, IBV_WC_SUCCESS);
    sv_check(m.at + 8 * PAGE, bytes, 3);
    memory_goes(&m, how);
    must(sv_send(&a, 11, 0, bytes, IBV_SEND_SIGNALED) == 0);
    expect(b.rcq, 1, IBV_WC_LOC_PROT_ERR);
    expect(a.scq, 11, IBV_WC_REM_OP_ERR);
    if (!shared)
        expect(b.rcq, 2, IBV_WC_WR_FLUSH_ERR);
    if (shared)
        must(soft_destroy_qp(qp) == 0 && soft_destroy_srq(srq) == 0);
    must(soft_destroy_qp(a.qp) == 0 && soft_destroy_qp(b.qp) == 0);
    a.qp = b.qp = NULL;
    memory_close(&m);
    sv_close(&a);
    sv_close(&b);
}

TEST(a_message_into_memory_that_is_gone_fails_at_both_ends) {
    for (unsigned k = 0; k < GONES * 2 * 2 * sizeof sizes / sizeof *sizes; k++) {
        enum gone how = (enum gone)(k % GONES);
        bool shared = k / GONES % 2, mapped = k / GONES / 2 % 2;
        size_t bytes = sizes[k / GONES / 4];
        print_message("%zu bytes, %s, %s, %s\n", bytes, gone_name[how], shared ? "shared" : "own",
                      mapped ? "described" : "copied");
        a_message(bytes, how, shared, mapped);
    }
}

/* A datagram is taken, and is the receiver's alone. */
TEST(a_datagram_into_memory_that_is_gone_fails_at_its_receiver) {
    for (enum gone how = 0; how < GONES; how++) {
        struct sv_end a, b;
        ud_open(&a, SV_OPTIONS(.one_cq = true));
        ud_open(&b, SV_OPTIONS(.one_cq = true));
        struct ibv_ah *ah = ud_ah(&b);
        struct memory m = memory_open(b.pd, how);
        must(receive_at(b.qp, NULL, 1, &m, PAGE - 20, PAGE) == 0);
        memory_goes(&m, how);
        ud_send(&a, ah, b.qp->qp_num, 0, 100);
        expect(b.rcq, 1, IBV_WC_LOC_PROT_ERR);
        must(soft_destroy_ah(ah) == 0);
        must(soft_destroy_qp(b.qp) == 0);
        b.qp = NULL;
        memory_close(&m);
        sv_close(&a);
        sv_close(&b);
    }
}

/* ---- one-sided ------------------------------------------------------------------------------------ */

/* The thread sanitizer has a lock while it does an atomic, and keeps it where that is left in the middle. */
#ifdef SANITIZE_THREAD
#define LAST_ACCESS READ
#else
#define LAST_ACCESS ATOMIC
#endif

enum access { WRITE, WRITE_IMM, READ, ATOMIC, ACCESSES = LAST_ACCESS + 1 };

static const char *const access_name[] = {"WRITE", "WRITE with immediate data", "READ", "atomic"};

static int ask(struct sv_end *a, enum access what, const struct memory *m, size_t bytes) {
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                                 IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};
    struct ibv_sge sge = sv_sge(a, 0, what == ATOMIC ? 8 : bytes);
    struct ibv_send_wr wr = {.wr_id = 20,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcodes[what],
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    if (what == ATOMIC) {
        wr.wr.atomic.remote_addr = (uintptr_t)m->at + PAGE;
        wr.wr.atomic.rkey = m->mr->rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = (uintptr_t)m->at + offset_of(bytes);
        wr.wr.rdma.rkey = m->mr->rkey;
    }
    return ibv_post_send(a->qp, &wr, &bad);
}

TEST(an_access_of_memory_that_is_gone_fails_at_both_ends) {
    for (unsigned k = 0; k < GONES * 2 * ACCESSES * 3; k++) {
        enum gone how = (enum gone)(k % GONES);
        enum way way = k / GONES % 2 ? RING : PROCESS;
        enum access what = (enum access)(k / GONES / 2 % ACCESSES);
        size_t bytes = sizes[1 + k / GONES / 2 / ACCESSES];
        struct onesided p;
        print_message("%s of %zu bytes, %s, %s\n", access_name[what], bytes, gone_name[how],
                      onesided_way_name[way]);
        onesided_open(&p, way, ALL_REMOTE, ALL_REMOTE, 4);
        struct memory m = memory_open(p.b.pd, how);
        must(sv_recv(&p.b, 1, 0, 100) == 0);
        memory_goes(&m, how);
        must(ask(&p.a, what, &m, bytes) == 0);
        expect(p.a.scq, 20, IBV_WC_REM_OP_ERR);
        sv_until(sv_state(&p.a) == IBV_QPS_ERR);
        must(soft_dereg_mr(m.mr) == 0);
        must(munmap(m.at, MEMORY) == 0);
        if (m.fd >= 0)
            close(m.fd);
        onesided_close(&p);
    }
}

/* ---- over TCP ------------------------------------------------------------------------------------- */

static void over_tcp(enum access what, bool is_message, size_t bytes, enum gone how, bool crc) {
    struct tcp_pair p;
    tcp_open(&p,
             &(struct tcp_options){.o = SV_OPTIONS(.bytes = MEMORY), .crc = crc, .extended = true});
    struct memory m = memory_open(p.b.pd, how);
    struct memory other = {.at = p.b.buf, .mr = p.b.mr};
    must(receive_at(p.b.qp, NULL, 1, is_message ? &m : &other, is_message ? offset_of(bytes) : 0,
                    bytes < PAGE ? PAGE : bytes) == 0);
    memory_goes(&m, how);
    if (is_message)
        must(sv_send(&p.a, 20, 0, bytes, IBV_SEND_SIGNALED) == 0);
    else
        must(ask(&p.a, what, &m, bytes) == 0);
    struct ibv_wc wc = sv_poll(p.a.scq);
    must_data(wc.wr_id == 20);
    if (wc.status != IBV_WC_REM_OP_ERR)
        fprintf(stderr, "status %d\n", wc.status);
    must(wc.status == IBV_WC_REM_OP_ERR);
    if (is_message)
        tcp_expect(p.b.rcq, 1, IBV_WC_LOC_PROT_ERR);
    tcp_wait_down(&p.a);
    tcp_wait_down(&p.b);
    must(soft_destroy_qp(p.b.qp) == 0);
    p.b.qp = NULL;
    memory_close(&m);
    tcp_close(&p);
}

TEST(memory_that_is_gone_fails_what_comes_over_tcp) {
    for (unsigned k = 0; k < GONES * 2 * (ACCESSES + 1) * 4; k++) {
        enum gone how = (enum gone)(k % GONES);
        bool crc = k / GONES % 2;
        unsigned what = k / GONES / 2 % (ACCESSES + 1);
        size_t bytes = sizes[1 + k / GONES / 2 / (ACCESSES + 1)];
        print_message("%s of %zu bytes, %s, %s\n", what < ACCESSES ? access_name[what] : "message",
                      bytes, gone_name[how], crc ? "with check values" : "without");
        over_tcp((enum access)what, what == ACCESSES, bytes, how, crc);
    }
}
