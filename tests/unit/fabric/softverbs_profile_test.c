/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_profile_test.c - SLUICE_SOFT_PROFILE: what each profile says and does, that without it nothing
 * changes, and that a word which names none is refused.
 *
 * A process has one profile, so each case is a process.
 */
#include "support/child.h"
#include "support/softverbs.h"
#include "support/wait.h"
#include "support/rows.h"

#include <poll.h>

#include "common/sanitize.h"
#include "fabric/fabric.h"
#include "soft/fault/inject.h"
#include "soft/fault/plan.h"
#include "soft/object/mw.h"
#include "soft/object/profile.h"
#include "soft/verbs/mw.h"
#include "fabric/fast.h"

/* The thread sanitizer forbids threads in a child of a process that has some; this one has none. */
static void in_a_process(const char *profile, void (*run)(void)) {
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (profile)
            setenv("SLUICE_SOFT_PROFILE", profile, 1);
        else
            unsetenv("SLUICE_SOFT_PROFILE");
        must_end_process = true; /* what fails ends it, and does not go on to the next test */
        run();
        _exit(0);
    }
    assert_int_equal(wait_exit(child), 0);
}

/* What a node would go by. */
static void look(struct ibv_device_attr *attr, struct fabric_traits *traits) {
    struct ibv_device **list = soft_get_device_list(NULL);
    must(list && list[0]);
    struct ibv_context *ctx = soft_open_device(list[0]);
    must(ctx);
    must(soft_query_device(ctx, attr) == 0);
    fabric_soft.get_traits(ctx->device, attr, traits);
    must(strstr(soft_get_device_name(list[0]), "soft"));
    must(soft_close_device(ctx) == 0);
    soft_free_device_list(list);
}

static bool user_events(void) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id;
    must(channel);
    must(soft_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    int rc = soft_write_cm_event(id, (enum rdma_cm_event_type)FABRIC_CM_USER, 0, 0);
    must(rc == 0 || errno == EINVAL);
    must(soft_destroy_id(id) == 0);
    soft_destroy_event_channel(channel);
    return rc == 0;
}

/* One kernel has both; without it a name is refused, and nothing comes of it later. */
static bool names(void) {
    const struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_qp_type = IBV_QPT_RC};
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_addrinfo *list = NULL;
    struct rdma_cm_id *id;
    must(channel);
    must(soft_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    int rc = soft_resolve_addrinfo(id, "127.0.0.1", "4711", &hints);
    must(rc == 0 || errno == EINVAL);
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    must(poll(&fd, 1, rc == 0 ? -1 : 0) == (rc == 0));
    if (rc == 0) {
        struct rdma_cm_event *event;
        must(soft_get_cm_event(channel, &event) == 0);
        must((int)event->event == FABRIC_CM_ADDRINFO_RESOLVED);
        must(soft_ack_cm_event(event) == 0);
    }
    must(soft_query_addrinfo(id, &list) == rc && (list != NULL) == (rc == 0));
    soft_freeaddrinfo(list);
    must(soft_destroy_id(id) == 0);
    soft_destroy_event_channel(channel);
    return rc == 0;
}

/* A queue pair with an SRQ goes to ERR: whether the device says that it takes no more. */
static bool says_last_wqe(void) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.recvs = 4));
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = soft_create_srq(e.pd, &srq_attr);
    must(srq);
    struct ibv_qp_init_attr init = {.send_cq = e.scq,
                                    .recv_cq = e.rcq,
                                    .srq = srq,
                                    .cap = {.max_send_wr = 4, .max_send_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_qp *own = e.qp;
    e.qp = soft_create_qp(e.pd, &init);
    must(e.qp);
    must(sv_to_init(&e) == 0 && sv_to(&e, IBV_QPS_ERR) == 0);
    struct pollfd fd = {.fd = e.ctx->async_fd, .events = POLLIN};
    bool said = false;
    if (soft_profile()->last_wqe_event || poll(&fd, 1, 0) > 0) {
        struct ibv_async_event event;
        must(poll(&fd, 1, -1) == 1 && soft_get_async_event(e.ctx, &event) == 0);
        said = event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED;
        soft_ack_async_event(&event);
    }
    must(soft_destroy_qp(e.qp) == 0);
    must(soft_destroy_srq(srq) == 0);
    e.qp = own;
    sv_close(&e);
    return said;
}

static int make_inline(uint32_t bytes, uint32_t *got) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.recvs = 4));
    struct ibv_qp_init_attr init = {
        .send_cq = e.scq,
        .recv_cq = e.rcq,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    init.cap.max_inline_data = bytes;
    struct ibv_qp *qp = soft_create_qp(e.pd, &init);
    int error = qp ? 0 : errno;
    *got = init.cap.max_inline_data;
    must(!qp || soft_destroy_qp(qp) == 0);
    sv_close(&e);
    return error;
}

/* ---- none ------------------------------------------------------------------------------------ */

static void plain(void) {
    struct ibv_device_attr attr;
    struct fabric_traits traits;
    uint32_t got;
    look(&attr, &traits);
    must(attr.vendor_id == 0xffffff && attr.vendor_part_id == SOFT_PART_PLAIN);
    must(traits.drains_shared && traits.exact_windows && fabric_profile(&fabric_soft) == NULL);
    must(user_events() && names() && says_last_wqe());
    must(make_inline(100, &got) == 0 && got >= 100);
}

TEST(without_a_profile_it_is_itself) {
    in_a_process(NULL, plain);
    in_a_process("", plain);
}

/* ---- nic, rxe -------------------------------------------------------------------------------- */

static void nic(void) {
    struct ibv_device_attr attr;
    struct fabric_traits traits;
    uint32_t got;
    look(&attr, &traits);
    must(attr.vendor_part_id != SOFT_PART_PLAIN);
    must(traits.drains_shared && traits.exact_windows);
    must(strcmp(fabric_profile(&fabric_soft), "nic") == 0);
    must(user_events() && names() && says_last_wqe());
    must(make_inline(65, &got) == EINVAL);
    must(make_inline(0, &got) == 0 && got == 64);
}

static void open_to_writes(struct sv_end *e, uint32_t dest) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_INIT, 0);
    attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    must(soft_modify_qp(e->qp, &attr, SV_INIT_MASK) == 0);
    must(sv_to_rtr(e, dest) == 0 && sv_to_rts(e) == 0);
}

/* Into memory that the writer has mapped, where a WRITE is a store: what a slot would hold is still too much. */
static void write_inline(void) {
    static uint8_t data[128];
    struct sv_end a, b;
    sv_open(&a, SV_OPTIONS(.recvs = 4));
    sv_open(&b, SV_OPTIONS(.mapped = true));
    struct ibv_mr *mr =
        soft_reg_mr(b.pd, b.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must(mr);
    open_to_writes(&b, a.qp->qp_num);
    open_to_writes(&a, b.qp->qp_num);
    sv_wait_linked(&a);
    sv_wait_mapped(&b);
    for (uint32_t bytes = 60; bytes <= 112; bytes++) {
        struct ibv_sge sge = {(uintptr_t)data, bytes, 0};
        struct ibv_send_wr wr = {.sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_RDMA_WRITE,
                                 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
                                 .wr.rdma = {(uintptr_t)b.buf, mr->rkey}},
                           *bad = NULL;
        memset(data, (int)bytes, sizeof data);
        must(ibv_post_send(a.qp, &wr, &bad) == (bytes <= 64 ? 0 : EINVAL));
        must(bytes <= 64 ? sv_poll(a.scq).status == IBV_WC_SUCCESS : bad == &wr);
        must(b.buf[0] == (bytes <= 64 ? bytes : 64) && b.buf[64] == 0);
    }
    must(soft_dereg_mr(mr) == 0);
    sv_unpair(&a, &b);
}

static void rxe(void) {
    struct ibv_device_attr attr;
    struct fabric_traits traits;
    look(&attr, &traits);
    must(attr.vendor_id == 0xffffff && attr.vendor_part_id != SOFT_PART_PLAIN);
    must(!traits.drains_shared && !traits.exact_windows);
    must(strcmp(fabric_profile(&fabric_soft), "rxe") == 0);
    must(!user_events() && !names() && !says_last_wqe());
}

/* Of memory that the peer has mapped: 28 pieces are described in one message of the ring, and more are not. */
static void many_pieces(void) {
    enum { SIZE = 400, MOST = 32 };
    struct sv_end a, b;
    struct sv_options o = SV_OPTIONS(.send_sge = MOST, .mapped = true);
    sv_pair(&a, o, &b, o);
    sv_wait_mapped(&a);
    for (unsigned n = 26; n <= MOST; n++) {
        struct ibv_sge sge[MOST];
        sv_fill(a.buf, n * SIZE, n);
        for (unsigned i = 0; i < n; i++)
            sge[i] = (struct ibv_sge){(uintptr_t)a.buf + i * SIZE, SIZE, a.mr->lkey};
        struct ibv_send_wr wr = {.wr_id = n,
                                 .sg_list = sge,
                                 .num_sge = (int)n,
                                 .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_SIGNALED},
                           *bad;
        must(sv_recv(&b, n, 0, MOST * SIZE) == 0);
        must(ibv_post_send(a.qp, &wr, &bad) == 0);
        struct ibv_wc wc = sv_poll(b.rcq);
        must(wc.status == IBV_WC_SUCCESS && wc.byte_len == n * SIZE);
        must(sv_poll(a.scq).status == IBV_WC_SUCCESS);
        sv_check(b.buf, n * SIZE, n);
    }
    sv_unpair(&a, &b);
}

static void rxe7(void) {
    struct ibv_device_attr attr;
    struct fabric_traits traits;
    look(&attr, &traits);
    must(attr.vendor_id == 0xffffff && attr.vendor_part_id != SOFT_PART_PLAIN);
    must(!traits.drains_shared && !traits.exact_windows);
    must(strcmp(fabric_profile(&fabric_soft), "rxe7") == 0);
    must(user_events() && names() && says_last_wqe());
}

/* ---- iwarp ----------------------------------------------------------------------------------- */

static void iwarp(void) {
    struct ibv_device_attr attr;
    struct fabric_traits traits;
    struct ibv_mw *window;
    uint32_t got;
    look(&attr, &traits);
    must(attr.vendor_id == 0x626d74 && attr.vendor_part_id != SOFT_PART_PLAIN);
    must(attr.max_mw == 0 && attr.atomic_cap == IBV_ATOMIC_NONE && attr.max_sge == 6);
    must(attr.max_sge_rd == 1 && attr.max_qp_rd_atom == 128 && attr.max_qp_init_rd_atom == 128);
    must(!traits.drains_shared && !traits.exact_windows);
    must(strcmp(fabric_profile(&fabric_soft), "iwarp") == 0);
    must(user_events() && names() && !says_last_wqe());
    must(make_inline(81, &got) == EINVAL);
    must(make_inline(0, &got) == 0 && got == 0 && make_inline(80, &got) == 0 && got == 80);
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.recvs = 4));
    must(e.ctx->device->transport_type == IBV_TRANSPORT_IWARP);
    must(e.ctx->device->node_type == IBV_NODE_RNIC);
    errno = 0;
    window = soft_alloc_mw(e.pd, IBV_MW_TYPE_2);
    must(!window && errno == EOPNOTSUPP);
    struct ibv_qp_init_attr init = {.send_cq = e.scq, .recv_cq = e.rcq, .qp_type = IBV_QPT_UD};
    errno = 0;
    must(!soft_create_qp(e.pd, &init) && errno == EOPNOTSUPP);
    init.qp_type = IBV_QPT_RC;
    init.cap.max_send_sge = 7;
    must(!soft_create_qp(e.pd, &init) && errno == EINVAL);
    sv_close(&e);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void unknown(void) {
    int ends[2];
    char text[256];
    must(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    struct ibv_device **list = soft_get_device_list(NULL);
    must(list && list[0]);
    for (int i = 0; i < 2; i++) {
        errno = 0;
        must(!soft_open_device(list[0]) && errno == EINVAL);
    }
    soft_free_device_list(list);
    close(ends[1]);
    close(STDERR_FILENO);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    if (n <= 0)
        _exit(3);
    text[n] = 0;
    if (strcmp(text, "sluice: SLUICE_SOFT_PROFILE: no profile \"toaster\"; there is: nic, rxe, "
                     "rxe7, iwarp\n") != 0)
        _exit(4);
}

/* ---- in a plan of faults ---------------------------------------------------------------------- */

static void by_plan(void) {
    struct ibv_device_attr attr;
    struct fabric_traits traits;
    setenv("SLUICE_SOFT_FAULTS", "profile=rxe\ncall=create_srq errno=ENOMEM", 1);
    look(&attr, &traits);
    must(strcmp(soft_profile()->name, "rxe") == 0);
    must(!traits.drains_shared);
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.recvs = 4));
    struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 4, .max_sge = 1}};
    must(!soft_create_srq(e.pd, &srq_attr) && errno == ENOMEM); /* and its rules hold */
    sv_close(&e);
}

/* The environment's own word is stronger, and a plan for another device is none for this one. */
static void against_the_plan(void) {
    struct ibv_device_attr attr;
    struct fabric_traits traits;
    setenv("SLUICE_SOFT_FAULTS", "profile=rxe\ncall=create_srq errno=ENOMEM", 1);
    must(freopen("/dev/null", "w", stderr));
    look(&attr, &traits);
    must(strcmp(soft_profile()->name, "nic") == 0);
    must(!soft_fault_active());
    struct soft_plan_error error;
    struct soft_plan *plan = soft_plan_parse("profile=iwarp", &error);
    must(plan && !soft_fault_fits(plan, &error) && strstr(error.reason, "another profile"));
    free(plan);
    plan = soft_plan_parse("profile=nic\ncall=create_srq errno=ENOMEM", &error);
    must(plan && soft_fault_fits(plan, &error));
    free(plan);
}

struct process {
    const char *profile;
    void (*run)(void);
};

static void a_process(void **state) {
    const struct process *row = *state;
    in_a_process(row->profile, row->run);
}

TEST_CASES(ROW(a_nic_is_trusted_and_refuses_much_inline_data, a_process, process, "nic", nic),
           ROW(a_nic_refuses_much_inline_data_of_a_write, a_process, process, "nic", write_inline),
           ROW(soft_roce_has_no_user_events_no_names_and_does_not_say_last_wqe, a_process, process,
               "rxe", rxe),
           ROW(iwarp_has_connections_alone_and_neither_windows_nor_atomics, a_process, process,
               "iwarp", iwarp),
           ROW(soft_roce_of_later_kernels_has_them, a_process, process, "rxe7", rxe7),
           ROW(soft_roce_sends_as_many_pieces_as_it_says, a_process, process, "rxe", many_pieces),
           ROW(a_word_that_names_no_profile_is_refused_and_told_once, a_process, process, "toaster",
               unknown),
           ROW(a_plan_of_faults_may_say_it, a_process, process, NULL, by_plan),
           ROW(a_plan_for_another_device_is_refused, a_process, process, "nic", against_the_plan));
