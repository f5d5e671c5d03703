/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_object_test.c - life of the objects: what refuses to die while it is used, limits,
 * numbers, the device's answers, and that everything taken is given back.
 */
#include "support/softverbs.h"

#include "support/emulated.h"
#include "soft/object/cq.h"
#include "soft/rc/progress.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>

/* ---- references -------------------------------------------------------------------------------- */

TEST(used_objects_refuse_to_die) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.channel = true));
    assert_int_equal(soft_close_device(e.ctx), EBUSY);
    assert_int_equal(soft_dealloc_pd(e.pd), EBUSY);
    assert_int_equal(soft_destroy_cq(e.rcq), EBUSY);
    assert_int_equal(soft_destroy_cq(e.scq), EBUSY);
    assert_int_equal(soft_destroy_comp_channel(e.channel), EBUSY);
    assert_int_equal(soft_destroy_qp(e.qp), 0);
    assert_int_equal(soft_dealloc_pd(e.pd), EBUSY); /* its MR */
    assert_int_equal(soft_close_device(e.ctx), EBUSY);
    assert_int_equal(soft_dereg_mr(e.mr), 0);
    assert_int_equal(soft_destroy_comp_channel(e.channel), EBUSY); /* its CQs */
    assert_int_equal(soft_destroy_cq(e.rcq), 0);
    assert_int_equal(soft_destroy_comp_channel(e.channel), EBUSY);
    assert_int_equal(soft_destroy_cq(e.scq), 0);
    assert_int_equal(soft_close_device(e.ctx), EBUSY); /* PD and channel */
    assert_int_equal(soft_dealloc_pd(e.pd), 0);
    assert_int_equal(soft_close_device(e.ctx), EBUSY);
    assert_int_equal(soft_destroy_comp_channel(e.channel), 0);
    assert_int_equal(soft_close_device(e.ctx), 0);
    free(e.buf);
}

TEST(a_queue_pair_that_could_not_be_made_leaves_nothing) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    struct ibv_qp_init_attr good = {.send_cq = e.scq,
                                    .recv_cq = e.rcq,
                                    .cap = {.max_send_wr = 1, .max_recv_wr = 1},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_device_attr dev;
    assert_int_equal(soft_query_device(e.ctx, &dev), 0);
    for (unsigned row = 0; row < 8; row++) {
        struct ibv_qp_init_attr init = good;
        switch (row) {
        case 0:
            init.cap.max_send_wr = (uint32_t)dev.max_qp_wr + 1;
            break;
        case 1:
            init.cap.max_recv_wr = (uint32_t)dev.max_qp_wr + 1;
            break;
        case 2:
            init.cap.max_send_sge = (uint32_t)dev.max_sge + 1;
            break;
        case 3:
            init.cap.max_recv_sge = (uint32_t)dev.max_sge + 1;
            break;
        case 4:
            init.cap.max_inline_data = 1u << 20;
            break;
        case 5:
            init.send_cq = NULL;
            break;
        case 6:
            init.recv_cq = NULL;
            break;
        case 7:
            init.qp_type = (enum ibv_qp_type)77;
            break;
        }
        errno = 0;
        assert_null(soft_create_qp(e.pd, &init));
        assert_int_equal(errno, EINVAL);
    }
    struct ibv_qp_init_attr init = good;
    struct ibv_qp *qp = soft_create_qp(e.pd, &init);
    assert_non_null(qp); /* the caps that come back are at least those asked for */
    assert_true(init.cap.max_send_wr >= 1 && init.cap.max_recv_wr >= 1);
    assert_int_equal(soft_destroy_qp(qp), 0);
    sv_close(&e); /* EBUSY if one of the rows had left a reference */
}

TEST(a_kind_of_queue_pair_that_is_not_here_is_not_supported) {
    static const struct {
        int type, error;
    } known[] = {{IBV_QPT_RAW_PACKET, EOPNOTSUPP},
                 {IBV_QPT_XRC_SEND, EOPNOTSUPP},
                 {IBV_QPT_XRC_RECV, EOPNOTSUPP},
                 {IBV_QPT_DRIVER, EOPNOTSUPP},
                 {77, EINVAL}};
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    for (unsigned i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct ibv_qp_init_attr attr = {.send_cq = e.scq,
                                        .recv_cq = e.rcq,
                                        .cap = {1, 1, 1, 1, 0},
                                        .qp_type = (enum ibv_qp_type)known[i].type};
        errno = 0;
        assert_null(soft_create_qp(e.pd, &attr));
        assert_int_equal(errno, known[i].error);
    }
    sv_close(&e);
}

TEST(the_command_descriptor_can_be_duplicated_and_polled) {
    unsigned fds = sv_fds();
    struct ibv_context *ctx = sv_context();
    int copy = dup(ctx->cmd_fd);
    assert_true(copy >= 0);
    struct pollfd both[] = {{.fd = ctx->cmd_fd, .events = POLLIN}, {.fd = copy, .events = POLLIN}};
    assert_int_equal(poll(both, 2, 0), 0); /* there, and nothing to be read */
    assert_int_equal(fcntl(ctx->cmd_fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    close(copy);
    assert_int_equal(soft_close_device(ctx), 0);
    assert_int_equal(sv_fds(), fds);
}

TEST(completion_queues_have_limits) {
    struct ibv_context *ctx = sv_context();
    struct ibv_device_attr dev;
    assert_int_equal(soft_query_device(ctx, &dev), 0);
    const int bad[] = {0, -1, dev.max_cqe + 1};
    for (unsigned i = 0; i < 3; i++) {
        errno = 0;
        assert_null(soft_create_cq(ctx, bad[i], NULL, NULL, 0));
        assert_int_equal(errno, EINVAL);
    }
    assert_null(soft_create_cq(ctx, 1, NULL, NULL, ctx->num_comp_vectors));
    assert_int_equal(errno, EINVAL);
    struct ibv_cq *cq = soft_create_cq(ctx, 100, ctx, NULL, 0);
    assert_non_null(cq);
    assert_true(cq->cqe >= 100);
    assert_ptr_equal(cq->cq_context, ctx);
    assert_int_equal(soft_destroy_cq(cq), 0);
    assert_int_equal(soft_close_device(ctx), 0);
}

/* ---- memory ------------------------------------------------------------------------------------ */

TEST(registration_checks_its_arguments) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    assert_null(soft_reg_mr(e.pd, e.buf, 64, IBV_ACCESS_REMOTE_WRITE));
    assert_int_equal(errno, EINVAL); /* remote without local write */
    assert_null(soft_reg_mr(e.pd, e.buf, 64, IBV_ACCESS_REMOTE_ATOMIC));
    assert_int_equal(errno, EINVAL);
    assert_null(soft_reg_mr(e.pd, e.buf, SIZE_MAX - 1, 0)); /* around the end of the world */
    assert_int_equal(errno, EINVAL);
    assert_null(soft_reg_mr(e.pd, e.buf, 64, 1 << 18));
    struct ibv_mr *mr = soft_reg_mr(e.pd, e.buf, 64, IBV_ACCESS_RELAXED_ORDERING);
    assert_non_null(mr); /* optional bits are ignored */
    assert_ptr_equal(mr->addr, e.buf);
    assert_int_equal(mr->length, 64);
    assert_ptr_equal(mr->pd, e.pd);
    assert_ptr_equal(mr->context, e.ctx);
    assert_int_equal(soft_dereg_mr(mr), 0);
    sv_close(&e);
}

TEST(memory_for_peers_is_zeroed_aligned_and_more_than_the_table_holds) {
    enum { N = SOFT_MAX_REGIONS + 8 };
    uint8_t *mem[N];
    unsigned fds = sv_fds();
    for (unsigned i = 0; i < N; i++) {
        mem[i] = soft_mem_alloc(8192);
        assert_non_null(mem[i]);
        assert_int_equal((uintptr_t)mem[i] % 4096, 0);
        assert_int_equal(mem[i][0], 0);
        assert_int_equal(mem[i][8191], 0);
        memset(mem[i], 0xff, 8192);
    }
    for (unsigned i = 0; i < N; i++)
        soft_mem_free(mem[i], 8192);
    assert_uint_in_range(sv_fds(), 0, fds + 1); /* the board stays for the life of the process */
}

/* ---- many -------------------------------------------------------------------------------------- */

enum { MANY = 200 };

TEST(two_hundred_pairs_share_one_completion_queue) {
    static struct sv_end a, b;
    static struct ibv_qp *qa[MANY], *qb[MANY];
    sv_open(&a, SV_OPTIONS(.one_cq = true, .cqe = 4096, .sends = 8, .recvs = 8));
    sv_open(&b, SV_OPTIONS(.one_cq = true, .cqe = 4096, .sends = 8, .recvs = 8));
    for (unsigned i = 0; i < MANY; i++) {
        qa[i] = i ? sv_qp(&a) : a.qp;
        qb[i] = i ? sv_qp(&b) : b.qp;
    }
    for (unsigned i = 0; i < MANY; i++) {
        a.qp = qa[i];
        b.qp = qb[i];
        sv_connect(&a, b.qp->qp_num);
        sv_connect(&b, a.qp->qp_num);
        for (unsigned k = 0; k < 4; k++)
            assert_int_equal(sv_recv(&b, i * 10 + k, (i * 4 + k) * 64, 64), 0);
    }
    for (unsigned k = 0; k < 4; k++) /* all of them, backwards, then again */
        for (unsigned n = MANY; n-- > 0;) {
            a.qp = qa[n];
            uint8_t *data = a.buf + (n * 4 + k) * 64;
            sv_fill(data, 64, n * 4 + k);
            assert_int_equal(sv_send(&a, n * 10 + k, (n * 4 + k) * 64, 64, IBV_SEND_SIGNALED), 0);
        }
    unsigned next_recv[MANY] = {0}, next_send[MANY] = {0}, n = 0;
    while (n < 2 * 4 * MANY) {
        struct ibv_wc wc = sv_poll(n % 2 ? a.scq : b.rcq);
        unsigned i = (unsigned)wc.wr_id / 10, k = (unsigned)wc.wr_id % 10;
        assert_int_equal(wc.status, IBV_WC_SUCCESS);
        assert_int_equal(wc.qp_num, (n % 2 ? qa : qb)[i]->qp_num);
        assert_int_equal(k, (n % 2 ? next_send : next_recv)[i]++);
        if (n % 2 == 0)
            sv_check(b.buf + (i * 4 + k) * 64, 64, i * 4 + k);
        n++;
    }
    for (unsigned i = 0; i < MANY; i++) { /* all numbers differ */
        for (unsigned k = 0; k < i; k++)
            assert_true(qa[i]->qp_num != qa[k]->qp_num && qa[i]->qp_num != qb[k]->qp_num);
        assert_uint_in_range(qa[i]->qp_num, 2, 0xffffff);
    }
    for (unsigned i = 1; i < MANY; i++) {
        assert_int_equal(soft_destroy_qp(qa[i]), 0);
        assert_int_equal(soft_destroy_qp(qb[i]), 0);
    }
    a.qp = qa[0];
    b.qp = qb[0];
    sv_unpair(&a, &b);
}

TEST(more_pairs_than_one_block_of_numbers) {
    enum { N = 2100 };
    static struct ibv_qp *qps[N];
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.sends = 1, .recvs = 1));
    for (unsigned i = 0; i < N; i++)
        qps[i] = sv_qp(&e);
    for (unsigned i = 0; i < N; i++)
        for (unsigned k = i + 1; k < N; k++)
            assert_true(qps[i]->qp_num != qps[k]->qp_num);
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(soft_destroy_qp(qps[i]), 0);
    sv_close(&e);
}

/* A number is not used again at once: a late message for the dead pair must find nobody. */
TEST(numbers_are_not_reused_at_once) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    uint32_t last = e.qp->qp_num;
    for (unsigned i = 0; i < 500; i++) {
        assert_int_equal(soft_destroy_qp(e.qp), 0);
        e.qp = sv_qp(&e);
        assert_true(e.qp->qp_num != last);
        last = e.qp->qp_num;
    }
    sv_close(&e);
}

TEST(destroying_a_pair_takes_its_completions_along) {
    struct sv_end a, b;
    sv_open(&a, SV_OPTIONS());
    struct ibv_qp *first = a.qp, *second = sv_qp(&a);
    struct ibv_qp *both[] = {first, second};
    for (unsigned i = 0; i < 2; i++) {
        a.qp = both[i];
        assert_int_equal(sv_to_init(&a), 0);
        assert_int_equal(sv_recv(&a, i, 0, 64), 0);
        assert_int_equal(sv_to(&a, IBV_QPS_ERR), 0); /* its flush lies in the CQ */
    }
    assert_int_equal(soft_destroy_qp(first), 0);
    struct ibv_wc wc = sv_poll(a.rcq);
    assert_int_equal(wc.wr_id, 1);
    assert_int_equal(wc.qp_num, second->qp_num);
    sv_stays_empty(a.rcq, a.scq);
    a.qp = second;
    sv_open(&b, SV_OPTIONS());
    sv_close(&b);
    sv_close(&a);
}

/* Another thread polls the send queue's CQ all the while, and so makes the pair's progress. */
static _Atomic bool stop;

static void *poll_other(void *cq) {
    struct ibv_wc wc[4];
    while (!atomic_load(&stop))
        if (ibv_poll_cq(cq, 4, wc) < 0)
            return cq;
    return NULL;
}

TEST(a_pair_leaves_no_completion_behind_while_others_poll) {
    struct sv_end e;
    struct ibv_wc wc;
    pthread_t thread;
    void *result;
    sv_open(&e, SV_OPTIONS());
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, poll_other, e.scq), 0);
    for (unsigned i = 0; i < 2000; i++) {
        if (!e.qp)
            e.qp = sv_qp(&e);
        assert_int_equal(sv_to_init(&e), 0);
        for (unsigned k = 0; k < 16; k++)
            assert_int_equal(sv_recv(&e, k, 0, 64), 0);
        if (i % 2) {
            assert_int_equal(sv_to(&e, IBV_QPS_RESET), 0);
        } else {
            assert_int_equal(soft_destroy_qp(e.qp), 0);
            e.qp = NULL;
        }
        assert_int_equal(ibv_poll_cq(e.rcq, 1, &wc), 0);
    }
    atomic_store(&stop, true);
    pthread_join(thread, &result);
    assert_null(result);
    sv_close(&e);
}

/*
 * In the worst moment: the pair has left the one CQ, and a poller of the other, which still has it, completes what was
 * posted into the first.
 */
static void *leave(void *arg) {
    struct sv_end *e = arg;
    if (e->o.sig_all) /* stands for: destroy it */
        must(soft_destroy_qp(e->qp) == 0);
    else
        must(sv_to(e, IBV_QPS_RESET) == 0);
    return NULL;
}

static bool has_left(struct soft_cq *cq) {
    spin_lock(&cq->poll_lock);
    bool yes = cq->qp_count == 0;
    spin_unlock(&cq->poll_lock);
    return yes;
}

TEST(a_flush_in_the_middle_of_leaving_goes_along) {
    for (int destroy = 0; destroy < 2; destroy++) {
        struct sv_end e;
        struct ibv_wc wc[4];
        pthread_t thread;
        sv_open(&e, SV_OPTIONS(.sig_all = destroy));
        struct soft_cq *scq = soft_cq_of(e.scq), *rcq = soft_cq_of(e.rcq);
        assert_int_equal(sv_to_init(&e), 0);
        for (unsigned i = 0; i < 16; i++)
            assert_int_equal(sv_recv(&e, i, 0, 64), 0);
        spin_lock(&scq->poll_lock); /* we are that poller */
        assert_int_equal(pthread_create(&thread, NULL, leave, &e), 0);
        sv_until(has_left(rcq));
        soft_qp_progress(soft_qp_of(e.qp));
        spin_unlock(&scq->poll_lock);
        pthread_join(thread, NULL);
        assert_int_equal(ibv_poll_cq(e.rcq, 4, wc), 0);
        if (destroy)
            e.qp = NULL;
        sv_close(&e);
    }
}

/* ---- device ------------------------------------------------------------------------------------ */

TEST(the_device_says_what_it_is) {
    int num = 0;
    struct ibv_device **list = soft_get_device_list(&num);
    assert_non_null(list);
    assert_int_equal(num, 1);
    assert_null(list[1]);
    assert_non_null(strstr(soft_get_device_name(list[0]), "soft"));
    assert_string_equal(soft_get_device_name(list[0]), SOFT_DEVICE_NAME);
    struct ibv_context *ctx = soft_open_device(list[0]);
    assert_non_null(ctx);
    soft_free_device_list(list); /* the opened device outlives its list */
    assert_string_equal(soft_get_device_name(ctx->device), SOFT_DEVICE_NAME);
    struct ibv_device_attr dev;
    struct ibv_port_attr port;
    union ibv_gid gid;
    assert_int_equal(soft_query_device(ctx, &dev), 0);
    assert_int_equal(dev.phys_port_cnt, 1);
    assert_true(dev.node_guid != 0);
    assert_int_equal(soft_query_port(ctx, 1, &port), 0);
    assert_int_equal(port.state, IBV_PORT_ACTIVE);
    assert_int_equal(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    assert_int_equal(port.active_mtu, IBV_MTU_4096);
    assert_int_equal(port.lid, 0);
    assert_true(port.max_msg_sz >= 1u << 30);
    assert_true(port.gid_tbl_len >= 1 && port.gid_tbl_len <= 16);
    assert_int_equal(soft_query_port(ctx, 0, &port), EINVAL);
    assert_int_equal(soft_query_port(ctx, 2, &port), EINVAL);
    assert_int_equal(soft_query_gid(ctx, 1, 0, &gid), 0);
    assert_true(gid.global.interface_id != 0);
    assert_int_equal(soft_query_gid(ctx, 1, 16, &gid), -1);
    assert_int_equal(soft_query_gid(ctx, 1, -1, &gid), -1);
    assert_int_equal(soft_query_gid(ctx, 2, 0, &gid), -1);
    assert_int_equal(soft_close_device(ctx), 0);
    struct ibv_device stranger = {.node_type = IBV_NODE_CA};
    assert_null(soft_open_device(&stranger));
    assert_int_equal(errno, ENODEV);
}

static void a_pair_in_process(void) {
    struct sv_end a, b;
    struct sv_options o = SV_OPTIONS(.channel = true, .mapped = true);
    sv_pair(&a, o, &b, o);
    sv_wait_mapped(&a);
    assert_int_equal(sv_recv(&b, 1, 0, 65536), 0);
    assert_int_equal(ibv_req_notify_cq(b.rcq, 0), 0);
    assert_int_equal(sv_send(&a, 2, 0, 65536, IBV_SEND_SIGNALED), 0);
    assert_int_equal(sv_poll(b.rcq).status, IBV_WC_SUCCESS);
    assert_int_equal(sv_poll(a.scq).status, IBV_WC_SUCCESS);
    sv_cq_event(b.channel);
    sv_unpair(&a, &b);
}

static size_t rings_and_regions_mapped(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    must(maps);
    char line[512];
    size_t n = 0;
    while (fgets(line, sizeof line, maps))
        n += strstr(line, "sluice-ring") || strstr(line, "sluice-region");
    fclose(maps);
    return n;
}

TEST(descriptors_threads_and_mappings_are_given_back) {
    skip_emulated("HAS THREADS OF ITS OWN");
    a_pair_in_process(); /* what exists once per process comes into being */
    unsigned fds = sv_fds(), threads = sv_threads();
    for (unsigned i = 0; i < 30; i++) {
        a_pair_in_process();
        assert_int_equal(sv_fds(), fds);
        assert_int_equal(sv_threads(), threads);
        assert_int_equal(rings_and_regions_mapped(), 0);
    }
}

TEST(nothing_is_left_while_the_device_stays_open) {
    struct ibv_context *ctx = sv_context();
    a_pair_in_process();
    /* connections between processes stay; of what is mapped through them the peer is told */
    sv_until(rings_and_regions_mapped() == 0);
    unsigned fds = sv_fds();
    for (unsigned i = 0; i < 30; i++)
        a_pair_in_process();
    sv_until(rings_and_regions_mapped() == 0);
    sv_until(sv_fds() <= fds); /* the descriptor is closed behind the mapping */
    assert_int_equal(soft_close_device(ctx), 0);
}
