/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* softverbs.c - see softverbs.h. */
#include "common/sanitize.h"
#include "soft/rc/stage.h"
#include "support/child.h"
#include "support/softverbs.h"
#include "support/usage.h"

/* ---- one end ----------------------------------------------------------------------------------- */

struct ibv_context *sv_context(void) {
    struct ibv_device **list = soft_get_device_list(NULL);
    must(list && list[0]);
    struct ibv_context *ctx = soft_open_device(list[0]);
    soft_free_device_list(list);
    must(ctx);
    return ctx;
}

struct ibv_qp *sv_qp(struct sv_end *e) {
    struct ibv_qp_init_attr init = {
        .qp_context = e,
        .send_cq = e->scq,
        .recv_cq = e->rcq,
        .cap = {.max_send_wr = e->o.sends,
                .max_recv_wr = e->o.recvs,
                .max_send_sge = e->o.send_sge,
                .max_recv_sge = e->o.recv_sge,
                .max_inline_data = e->o.inline_bytes},
        .qp_type = e->o.type ? e->o.type : IBV_QPT_RC,
        .sq_sig_all = e->o.sig_all,
    };
    struct ibv_qp *qp = soft_create_qp(e->pd, &init);
    must(qp);
    e->cap = init.cap;
    return qp;
}

static size_t sv_pages(size_t bytes) {
    return (bytes + 4095) & ~(size_t)4095;
}

void sv_open(struct sv_end *e, struct sv_options o) {
    memset(e, 0, sizeof *e);
    o.sends = o.sends ? o.sends : 64;
    o.recvs = o.recvs ? o.recvs : 64;
    o.send_sge = o.send_sge ? o.send_sge : 4;
    o.recv_sge = o.recv_sge ? o.recv_sge : 4;
    o.cqe = o.cqe ? o.cqe : 256;
    o.rnr_timer = o.rnr_timer ? o.rnr_timer : 1;
    o.timeout = o.timeout ? o.timeout : 14;
    o.retry_cnt = o.retry_cnt ? o.retry_cnt : 1;
    o.bytes = o.bytes ? o.bytes : 65536;
    e->o = o;
    e->ctx = sv_context();
    e->pd = soft_alloc_pd(e->ctx);
    must(e->pd);
    if (o.channel) {
        e->channel = soft_create_comp_channel(e->ctx);
        must(e->channel);
    }
    e->rcq = soft_create_cq(e->ctx, o.cqe, e, e->channel, 0);
    e->scq = o.one_cq ? e->rcq : soft_create_cq(e->ctx, o.cqe, e, e->channel, 0);
    must(e->rcq && e->scq);
    e->buf = o.mapped ? soft_mem_alloc(sv_pages(o.bytes)) : calloc(1, o.bytes);
    must(e->buf);
    e->mr = soft_reg_mr(e->pd, e->buf, o.bytes, IBV_ACCESS_LOCAL_WRITE);
    must(e->mr);
    e->qp = sv_qp(e);
}

void sv_close(struct sv_end *e) {
    if (e->qp)
        must(soft_destroy_qp(e->qp) == 0);
    must(soft_dereg_mr(e->mr) == 0);
    if (e->o.mapped)
        soft_mem_free(e->buf, sv_pages(e->o.bytes));
    else
        free(e->buf);
    must(soft_destroy_cq(e->rcq) == 0);
    if (e->scq != e->rcq)
        must(soft_destroy_cq(e->scq) == 0);
    if (e->channel)
        must(soft_destroy_comp_channel(e->channel) == 0);
    must(soft_dealloc_pd(e->pd) == 0);
    must(soft_close_device(e->ctx) == 0);
}

/* ---- states ------------------------------------------------------------------------------------ */

struct ibv_qp_attr sv_attr(const struct sv_end *e, enum ibv_qp_state state, uint32_t dest) {
    return (struct ibv_qp_attr){
        .qp_state = state,
        .path_mtu = IBV_MTU_4096,
        .dest_qp_num = dest,
        .port_num = 1,
        .ah_attr = {.is_global = 1, .port_num = 1},
        .max_rd_atomic = 1,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = e->o.rnr_timer,
        .timeout = e->o.timeout,
        .retry_cnt = e->o.retry_cnt,
        .rnr_retry = e->o.finite_rnr ? e->o.rnr_retry : 7,
    };
}

int sv_to_init(struct sv_end *e) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_INIT, 0);
    return soft_modify_qp(e->qp, &attr, SV_INIT_MASK);
}

int sv_to_rtr(struct sv_end *e, uint32_t dest) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_RTR, dest);
    return soft_modify_qp(e->qp, &attr, SV_RTR_MASK);
}

int sv_to_rts(struct sv_end *e) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_RTS, 0);
    return soft_modify_qp(e->qp, &attr, SV_RTS_MASK);
}

int sv_to(struct sv_end *e, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    return soft_modify_qp(e->qp, &attr, IBV_QP_STATE);
}

void sv_take_down(struct sv_end *e, enum sv_down how) {
    switch (how) {
    case SV_TO_ERR:
        must(sv_to(e, IBV_QPS_ERR) == 0);
        break;
    case SV_TO_RESET:
        must(sv_to(e, IBV_QPS_RESET) == 0);
        break;
    case SV_DESTROYED:
    case SV_DOWNS:
        must(soft_destroy_qp(e->qp) == 0);
        e->qp = NULL;
        break;
    }
}

void sv_connect(struct sv_end *e, uint32_t dest) {
    must(sv_to_init(e) == 0);
    must(sv_to_rtr(e, dest) == 0);
    must(sv_to_rts(e) == 0);
}

void sv_connect_qp(struct sv_end *e, struct ibv_qp *qp, uint32_t dest) {
    struct ibv_qp *own = e->qp;
    e->qp = qp;
    sv_connect(e, dest);
    e->qp = own;
}

enum ibv_qp_state sv_state(struct sv_end *e) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    must(soft_query_qp(e->qp, &attr, IBV_QP_STATE, &init) == 0);
    return attr.qp_state;
}

void sv_pair(struct sv_end *a, struct sv_options oa, struct sv_end *b, struct sv_options ob) {
    sv_open(a, oa);
    sv_open(b, ob);
    sv_connect(a, b->qp->qp_num);
    sv_connect(b, a->qp->qp_num);
}

void sv_unpair(struct sv_end *a, struct sv_end *b) {
    sv_close(a);
    sv_close(b);
}

/* ---- waiting ----------------------------------------------------------------------------------- */

void sv_pause(unsigned *turns, uint64_t since, const char *what, const char *file, int line) {
    if (++*turns % 256 == 0) {
        sched_yield();
        if (soft_now_ns() - since > SV_DEADLINE_NS)
            must_fail(file, line, what);
    }
}

struct ibv_wc sv_poll_at(struct ibv_cq *cq, const char *file, int line) {
    struct ibv_wc wc;
    memset(&wc, 0x5a, sizeof wc); /* what the device leaves out shows */
    unsigned turns = 0;
    uint64_t since = soft_now_ns();
    for (int n = 0; n == 0; sv_pause(&turns, since, "no completion", file, line)) {
        n = ibv_poll_cq(cq, 1, &wc);
        must(n >= 0);
        if (n == 1)
            break;
    }
    return wc;
}

void sv_stays_empty(struct ibv_cq *cq, struct ibv_cq *other) {
    struct ibv_wc wc;
    uint64_t until = soft_now_ns() + 5000000;
    while (soft_now_ns() < until) {
        must(ibv_poll_cq(cq, 1, &wc) == 0);
        if (other)
            must(ibv_poll_cq(other, 1, &wc) == 0);
    }
}

void sv_wait_linked(struct sv_end *e) {
    sv_until(atomic_load(&soft_qp_of(e->qp)->tx) != NULL);
}

void sv_wait_mapped(struct sv_end *e) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    int region = soft_mr_of(e->mr)->region;
    must(region >= 0);
    sv_until(atomic_load(&qp->peer->region_sent[region]) == REGION_READY);
}

static bool is_staged(struct soft_qp *qp) {
    spin_lock(&qp->lock);
    int block = soft_stage_take(qp);
    if (block >= 0)
        soft_stage_give_back(qp, block);
    spin_unlock(&qp->lock);
    return block >= 0;
}

void sv_wait_staged(struct sv_end *e) {
    sv_until(is_staged(soft_qp_of(e->qp)));
}

void sv_only_ring(struct sv_end *e) {
    atomic_store(&soft_qp_of(e->qp)->peer->staged, SOFT_STAGE_PEER);
}

uint32_t sv_slots_written(struct sv_end *e) {
    struct soft_qp *qp = soft_qp_of(e->qp);
    spin_lock(&qp->lock);
    uint32_t pos = qp->tx_pos;
    spin_unlock(&qp->lock);
    return pos;
}

/* ---- posting ----------------------------------------------------------------------------------- */

struct ibv_sge sv_sge(const struct sv_end *e, size_t offset, size_t bytes) {
    return (struct ibv_sge){(uintptr_t)e->buf + offset, (uint32_t)bytes, e->mr->lkey};
}

int sv_recv(struct sv_end *e, uint64_t wr_id, size_t offset, size_t bytes) {
    struct ibv_sge sge = sv_sge(e, offset, bytes);
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
    int rc = ibv_post_recv(e->qp, &wr, &bad);
    must(rc == 0 || bad == &wr);
    return rc;
}

int sv_send(struct sv_end *e, uint64_t wr_id, size_t offset, size_t bytes, unsigned flags) {
    struct ibv_sge sge = sv_sge(e, offset, bytes);
    struct ibv_send_wr wr = {.wr_id = wr_id,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = flags},
                       *bad = NULL;
    int rc = ibv_post_send(e->qp, &wr, &bad);
    must(rc == 0 || bad == &wr);
    return rc;
}

int sv_bind(struct ibv_qp *qp, struct ibv_mw *mw, uint32_t rkey, struct ibv_mw_bind_info info) {
    struct ibv_send_wr wr = {.wr_id = 5,
                             .opcode = IBV_WR_BIND_MW,
                             .send_flags = IBV_SEND_SIGNALED,
                             .bind_mw = {.mw = mw, .rkey = rkey, .bind_info = info}},
                       *bad;
    return ibv_post_send(qp, &wr, &bad);
}

int sv_invalidate(struct ibv_qp *qp, uint32_t rkey) {
    struct ibv_send_wr wr = {.wr_id = 6,
                             .opcode = IBV_WR_LOCAL_INV,
                             .send_flags = IBV_SEND_SIGNALED,
                             .invalidate_rkey = rkey},
                       *bad;
    return ibv_post_send(qp, &wr, &bad);
}

/* ---- events ------------------------------------------------------------------------------------ */

void sv_async(struct ibv_context *ctx, enum ibv_event_type type, const void *element) {
    struct ibv_async_event event;
    must(soft_get_async_event(ctx, &event) == 0);
    must(event.event_type == type);
    must(!element || event.element.qp == element); /* a pointer in a union */
    soft_ack_async_event(&event);
}

struct ibv_cq *sv_cq_event(struct ibv_comp_channel *channel) {
    struct ibv_cq *cq;
    void *context;
    must(soft_get_cq_event(channel, &cq, &context) == 0);
    soft_ack_cq_events(cq, 1);
    return cq;
}

/* ---- patterns ---------------------------------------------------------------------------------- */

void sv_fill(uint8_t *p, size_t bytes, uint32_t seed) {
    pattern_fill(p, 0, bytes, seed);
}

void sv_check(const uint8_t *p, size_t bytes, uint32_t seed) {
    uint8_t part[256];
    size_t i = 0;
    for (size_t n; i < bytes; i += n) {
        n = bytes - i < sizeof part ? bytes - i : sizeof part;
        pattern_fill(part, i, n, seed);
        if (memcmp(p + i, part, n) != 0)
            break;
    }
    while (i < bytes && p[i] == sv_byte(i, seed))
        i++;
    if (i != bytes)
        verdict_wrong_data("byte %zu of %zu differs (seed %u)", i, bytes, (unsigned)seed);
    must(i == bytes);
}

/* ---- counts ------------------------------------------------------------------------------------ */

unsigned sv_fds(void) {
    sv_until(soft_untrusted_fd_pending() == 0);
    return usage_entries("/proc/self/fd");
}

unsigned sv_closers(void) {
    return tasks_named(SV_CLOSER);
}

unsigned sv_threads(void) {
    soft_lock();
    unsigned n = tasks_not_named(SV_CLOSER);
    soft_unlock();
    return n;
}

/* ---- other processes --------------------------------------------------------------------------- */

/*
 * For a forked child that runs on without an exec: a fault ends it by its signal. It has inherited cmocka's
 * handlers, which would go on with the parent's next test, or, in a thread of the library, end it with an exit
 * status that looks like a failed check.
 */
static void faults_end_this_process(void) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS};
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++)
        signal(faults[i], SIG_DFL);
}

/*
 * The address sanitizer does not take the locks of its memory for a fork. The device's thread holds one now and then
 * while it begins, outside of all our locks: the child would wait for that one without end.
 */
#ifdef SANITIZE_ADDRESS
static _Atomic bool begun;

static void has_begun(struct soft_timer *timer) {
    (void)timer;
    begun = true;
}

static void wait_for_the_devices_thread(void) {
    struct soft_timer timer = {.due_ns = 0};
    if (tasks_named("sluice-soft") == 0)
        return;
    begun = false;
    soft_lock();
    soft_timer_arm(&timer, soft_now_ns(), has_begun);
    soft_unlock();
    sv_until(begun);
}
#else
static void wait_for_the_devices_thread(void) {
}
#endif

struct sv_child sv_fork(void (*fn)(int fd)) {
    int pair[2];
    wait_for_the_devices_thread();
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    fflush(NULL);
    pid_t pid = child_fork();
    must(pid >= 0);
    if (pid == 0) {
        faults_end_this_process();
        must_end_process = true;
        close(pair[0]);
        fn(pair[1]);
        _exit(0);
    }
    close(pair[1]);
    return (struct sv_child){.pid = pid, .fd = pair[0]};
}

int sv_join(struct sv_child *child) {
    int status;
    must(waitpid(child->pid, &status, 0) == child->pid);
    close(child->fd);
    return status;
}

void sv_tell(int fd, uint32_t value) {
    must(send(fd, &value, sizeof value, MSG_NOSIGNAL) == sizeof value);
}

uint32_t sv_hear(int fd) {
    uint32_t value = 0;
    must(recv(fd, &value, sizeof value, MSG_WAITALL) == sizeof value);
    return value;
}

void sv_barrier(int fd) {
    sv_tell(fd, 0xb0b0);
    must(sv_hear(fd) == 0xb0b0);
}

void sv_meet(struct sv_end *e, int fd) {
    sv_tell(fd, e->qp->qp_num);
    sv_connect(e, sv_hear(fd));
    sv_barrier(fd);
}

void sv_relay(const struct sv_child *left, const struct sv_child *right) {
    uint32_t from_left = sv_hear(left->fd), from_right = sv_hear(right->fd);
    sv_tell(left->fd, from_right);
    sv_tell(right->fd, from_left);
}

void sv_introduce(const struct sv_child *left, const struct sv_child *right) {
    sv_relay(left, right);
    sv_relay(left, right);
}
