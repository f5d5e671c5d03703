/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fault_test.c - faults of queue pairs and calls on demand, seen through the verbs.
 */
#include "support/fault.h"

#include "support/emulated.h"

/* One message from a to b, both completions good. */
static void exchange(struct sv_end *a, struct sv_end *b, uint64_t wr_id) {
    must(sv_recv(b, wr_id, 0, 64) == 0);
    must(sv_send(a, wr_id, 0, 32, IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc = sv_poll(b->rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    must_data_equal(wc.wr_id, wr_id);
    wc = sv_poll(a->scq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    must_data_equal(wc.wr_id, wr_id);
}

static struct sv_end a, b;

static int both_open(void **state) {
    (void)state;
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(0));
    return 0;
}

static int both_closed(void **state) {
    (void)state;
    sv_unpair(&a, &b);
    return 0;
}

#define PAIRED(name) TEST_WITH(both_open, both_closed, name)

PAIRED(a_chosen_send_ends_with_the_chosen_status) {
    fault_plan("qp=1 send=3 status=REM_OP_ERR");
    exchange(&a, &b, 1);
    exchange(&a, &b, 2);
    must(sv_recv(&b, 3, 0, 64) == 0);
    must(sv_send(&a, 3, 0, 32, 0) == 0); /* not even signalled */
    must(sv_send(&a, 4, 0, 32, IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc = sv_poll(a.scq);
    assert_int_equal(wc.status, IBV_WC_REM_OP_ERR);
    must_data_equal(wc.wr_id, 3);
    wc = sv_poll(a.scq);
    assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
    must_data_equal(wc.wr_id, 4);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    must(soft_query_qp(a.qp, &attr, IBV_QP_STATE, &init) == 0);
    assert_int_equal(attr.qp_state, IBV_QPS_ERR);
    sv_stays_empty(b.rcq, NULL); /* it never arrived */
    fault_log_is("qp#1 send 3: status REM_OP_ERR (line 1)\n");
}

PAIRED(a_queue_pair_can_be_named_by_its_number) {
    char plan[64];
    snprintf(plan, sizeof plan, "qp=0x%x send=1 status=FATAL_ERR", b.qp->qp_num);
    fault_plan(plan);
    exchange(&a, &b, 1);
    must(sv_send(&b, 2, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(b.scq).status, IBV_WC_FATAL_ERR);
}

PAIRED(a_delayed_send_arrives_late_and_in_order) {
    sv_wait_linked(&a);
    fault_plan("qp=1 send=2 delay=30ms");
    for (uint64_t i = 1; i <= 3; i++)
        must(sv_recv(&b, i, 0, 64) == 0);
    uint64_t start = soft_now_ns();
    for (uint64_t i = 1; i <= 3; i++)
        must(sv_send(&a, i, 0, 32, IBV_SEND_SIGNALED) == 0);
    for (uint64_t i = 1; i <= 3; i++) {
        must_data_equal(sv_poll(a.scq).wr_id, i);
        assert_true(i == 1 || soft_now_ns() - start >= 30000000);
    }
    for (uint64_t i = 1; i <= 3; i++)
        must_data_equal(sv_poll(b.rcq).wr_id, i);
}

/* No thread polls: the sender sleeps on its channel. */
TEST(a_delayed_send_goes_out_while_the_sender_sleeps) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(.channel = true, .one_cq = true), &b, SV_OPTIONS(0));
    sv_wait_linked(&a);
    fault_plan("qp=1 send=1 delay=20ms");
    must(sv_recv(&b, 1, 0, 64) == 0);
    must(ibv_req_notify_cq(a.scq, 0) == 0);
    must(sv_send(&a, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    sv_cq_event(a.channel);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    sv_unpair(&a, &b);
}

TEST(a_lost_send_exhausts_its_retries_after_timeout_times_retries) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(.timeout = 11, .retry_cnt = 3), &b, SV_OPTIONS(0)); /* 8 ms, 4 times */
    sv_wait_linked(&a);
    fault_plan("qp=1 send=2 loss");
    exchange(&a, &b, 1);
    uint64_t start = soft_now_ns();
    must(sv_recv(&b, 2, 0, 64) == 0);
    must(sv_send(&a, 2, 0, 32, IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc = sv_poll(a.scq);
    assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
    must_data_equal(wc.wr_id, 2);
    assert_true(soft_now_ns() - start >= 4 * (4096ull << 11));
    sv_unpair(&a, &b);
}

TEST(fewer_losses_than_retries_only_cost_time) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(.timeout = 11, .retry_cnt = 3), &b, SV_OPTIONS(0));
    sv_wait_linked(&a);
    fault_plan("qp=1 send=1 loss=3");
    uint64_t start = soft_now_ns();
    exchange(&a, &b, 1);
    assert_true(soft_now_ns() - start >= 3 * (4096ull << 11));
    sv_unpair(&a, &b);
}

TEST(an_rnr_burst_ends_a_sender_with_fewer_retries) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(.finite_rnr = true, .rnr_retry = 2), &b,
            SV_OPTIONS(.rnr_timer = 18)); /* 4 ms */
    sv_wait_linked(&a);
    fault_plan("qp=2 recv=2 rnr=500");
    exchange(&a, &b, 1);
    must(sv_recv(&b, 2, 0, 64) == 0);
    must(sv_send(&a, 2, 0, 32, IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc;
    unsigned turns = 0;
    uint64_t since = soft_now_ns();
    while (ibv_poll_cq(a.scq, 1, &wc) == 0) {
        struct ibv_wc none;
        must(ibv_poll_cq(b.rcq, 1, &none) == 0);
        sv_pause(&turns, since, "no completion", __FILE__, __LINE__);
    }
    assert_int_equal(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
    fault_log_is("qp#2 recv 2: rnr 500 (line 1)\n");
    sv_unpair(&a, &b);
}

TEST(an_rnr_burst_shorter_than_the_retries_passes) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(.rnr_timer = 14)); /* 1 ms; retries for ever */
    sv_wait_linked(&a);
    fault_plan("qp=2 recv=1 rnr=20");
    uint64_t start = soft_now_ns();
    exchange(&a, &b, 1);
    assert_true(soft_now_ns() - start >= 20 * 1000000ull);
    sv_unpair(&a, &b);
}

PAIRED(a_chosen_receive_ends_with_the_chosen_status) {
    fault_plan("qp=2 recv=2 status=LOC_PROT_ERR");
    exchange(&a, &b, 1);
    must(sv_recv(&b, 2, 0, 64) == 0);
    must(sv_send(&a, 2, 0, 32, IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc = sv_poll(b.rcq);
    assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
    must_data_equal(wc.wr_id, 2);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_REM_OP_ERR);
}

TEST(a_delayed_receive_wakes_a_sleeping_receiver) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(.channel = true, .one_cq = true));
    sv_wait_linked(&a);
    fault_plan("qp=2 recv=1 delay=20ms");
    must(sv_recv(&b, 1, 0, 64) == 0);
    must(ibv_req_notify_cq(b.rcq, 0) == 0);
    must(sv_send(&a, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    sv_cq_event(b.channel);
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    sv_unpair(&a, &b);
}

PAIRED(one_sided_operations_count_as_sends) {
    fault_plan("qp=1 send=1 status=REM_ACCESS_ERR");
    struct ibv_sge sge = sv_sge(&a, 0, 8);
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .wr.rdma = {.remote_addr = (uintptr_t)b.buf, .rkey = b.mr->rkey}},
                       *bad;
    must(ibv_post_send(a.qp, &wr, &bad) == 0);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_REM_ACCESS_ERR);
}

PAIRED(clearing_the_plan_lets_go_what_it_held) {
    sv_wait_linked(&a);
    fault_plan("qp=1 send=1 delay=60s");
    must(sv_recv(&b, 1, 0, 64) == 0);
    must(sv_send(&a, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    sv_stays_empty(a.scq, b.rcq);
    fault_clear();
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    fault_log_is("qp#1 send 1: delay 60000000us (line 1)\n"); /* the log outlives it */
}

static void one_run(char *log, size_t size) {
    struct sv_end a, b;
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(0));
    fault_plan("qp=1 send=2..4 delay=1ms\nqp=* recv=3 delay=1ms\nqp=2 send=* delay=100us\n"
               "qp=* send=9 status=GENERAL_ERR\ncall=reg_mr n=2 errno=ENOMEM");
    for (uint64_t i = 1; i <= 8; i++) {
        exchange(&a, &b, i);
        exchange(&b, &a, i);
    }
    for (int i = 0; i < 3; i++) {
        struct ibv_mr *mr = soft_reg_mr(a.pd, a.buf, 64, 0);
        if (mr)
            soft_dereg_mr(mr);
    }
    must(sv_send(&a, 9, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_GENERAL_ERR);
    fault_log(log, size);
    sv_unpair(&a, &b);
}

TEST(the_same_plan_makes_the_same_decisions_again) {
    static char first[16384], second[16384];
    one_run(first, sizeof first);
    one_run(second, sizeof second);
    assert_string_equal(first, second);
    assert_non_null(strstr(first, "qp#1 send 2: delay 1000us (line 1)\nqp#1 send 3:"));
    assert_non_null(strstr(first, "qp#2 recv 3: delay 1000us (line 2)\n"));
    assert_non_null(strstr(first, "qp#1 send 9: status GENERAL_ERR (line 4)\n"));
    assert_non_null(strstr(first, "call reg_mr 2: errno ENOMEM (line 5)\n"));
}

TEST(each_call_fails_at_its_chosen_turn) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(0));
    struct ibv_device **list = soft_get_device_list(NULL);
    fault_plan(
        "call=open_device n=1 errno=EMFILE; call=alloc_pd errno=ENOMEM\n"
        "call=reg_mr errno=ENOMEM; call=create_comp_channel errno=EMFILE\n"
        "call=create_cq errno=ENOMEM; call=create_qp errno=ENOSPC; call=create_srq errno=ENOMEM\n"
        "call=modify_qp n=2 errno=EAGAIN; call=mem_alloc errno=ENOMEM\n"
        "call=create_event_channel errno=ENFILE; call=create_id errno=ENOMEM");
    struct ibv_qp_init_attr init = {.send_cq = e.scq, .recv_cq = e.rcq, .qp_type = IBV_QPT_RC};
    struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct rdma_cm_id *id;
#define FAILS(call, error)                                                                         \
    do {                                                                                           \
        errno = 0;                                                                                 \
        assert_true(call);                                                                         \
        assert_int_equal(errno, error);                                                            \
    } while (0)
    FAILS(!soft_open_device(list[0]), EMFILE);
    FAILS(!soft_alloc_pd(e.ctx), ENOMEM);
    FAILS(!soft_reg_mr(e.pd, e.buf, 64, 0), ENOMEM);
    FAILS(!soft_create_comp_channel(e.ctx), EMFILE);
    FAILS(!soft_create_cq(e.ctx, 4, NULL, NULL, 0), ENOMEM);
    FAILS(!soft_create_qp(e.pd, &init), ENOSPC);
    FAILS(!soft_create_srq(e.pd, &srq), ENOMEM);
    FAILS(!soft_mem_alloc(4096), ENOMEM);
    FAILS(!soft_create_event_channel(), ENFILE);
    FAILS(soft_create_id(NULL, &id, NULL, RDMA_PS_TCP) == -1, ENOMEM);
    assert_int_equal(sv_to_init(&e), 0);
    assert_int_equal(sv_to(&e, IBV_QPS_ERR), EAGAIN);
    assert_int_equal(sv_to(&e, IBV_QPS_ERR), 0);
    struct ibv_context *ctx = soft_open_device(list[0]); /* the second one works */
    must(ctx && soft_close_device(ctx) == 0);
    soft_free_device_list(list);
    sv_close(&e);
}

TEST(a_plan_ends_with_the_device) {
    struct sv_end a, b;
    sv_open(&a, SV_OPTIONS(0));
    fault_plan("qp=* send=* status=GENERAL_ERR");
    sv_close(&a);
    assert_false(soft_fault_active());
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(0));
    exchange(&a, &b, 1);
    sv_unpair(&a, &b);
}

TEST(the_environment_brings_a_plan) {
    struct sv_end a, b;
    setenv("SLUICE_SOFT_FAULTS", "qp=1 send=1 status=LOC_LEN_ERR", 1);
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(0));
    must(sv_send(&a, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_LOC_LEN_ERR);
    sv_unpair(&a, &b);
    char path[] = "/tmp/sluice-plan.XXXXXX", text[64];
    int fd = mkstemp(path);
    must(fd >= 0 && write(fd, "qp=2 send=1 status=FATAL_ERR\n", 29) == 29);
    close(fd);
    snprintf(text, sizeof text, "@%s", path);
    setenv("SLUICE_SOFT_FAULTS", text, 1);
    sv_pair(&a, SV_OPTIONS(0), &b, SV_OPTIONS(0));
    unlink(path);
    must(sv_send(&b, 1, 0, 32, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(b.scq).status, IBV_WC_FATAL_ERR);
    sv_unpair(&a, &b);
    unsetenv("SLUICE_SOFT_FAULTS");
}

/* Said once, by a child whose standard error is read. */
static void bad_environment(int fd) {
    must(dup2(fd, 2) == 2);
    setenv("SLUICE_SOFT_FAULTS", "qp=* send=1 los", 1);
    for (int i = 0; i < 3; i++) {
        errno = 0;
        must(!soft_get_device_list(NULL) && errno == EINVAL);
        errno = 0;
        must(!soft_create_event_channel() && errno == EINVAL);
    }
}

TEST(a_bad_plan_in_the_environment_is_reported_once_and_refused) {
    FAULT_NO_FORK();
    struct sv_child child = sv_fork(bad_environment);
    char text[1024];
    size_t at = 0;
    ssize_t got;
    while ((got = read(child.fd, text + at, sizeof text - 1 - at)) > 0)
        at += (size_t)got;
    text[at] = '\0';
    assert_int_equal(sv_join(&child), 0);
    assert_string_equal(text, "sluice: SLUICE_SOFT_FAULTS is refused: line 1, column 13: "
                              "'los' means nothing here\n");
}

/* The last one: of all those before it nothing goes on. */
TEST(no_thread_is_left_behind) {
    skip_emulated("HAS THREADS OF ITS OWN");
#ifdef SANITIZE_THREAD
    skip(); /* which has a thread of its own */
#endif
    assert_int_equal(sv_threads(), 1);
}
