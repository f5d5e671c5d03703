/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * soft_cancel_test.c - a call of the device is not left halfway by a thread that is cancelled: each is made by one that is to be
 * cancelled from before it on, and does what it is to do, so that what follows finds everything in order. Those that wait
 * for events are asked by contract/cancel_test.c.
 */
#include "support/softcm.h"

#include "support/must.h"

/* ---- what the calls leave for each other ------------------------------------------------------------ */

static struct scene {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_mr *mr;
    struct ibv_comp_channel *completions;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mw *mw;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener, *id, *other;
    uint8_t memory[4096];
} s;

static struct ibv_qp_init_attr qp_attr(void) {
    return (struct ibv_qp_init_attr){
        .send_cq = s.cq, .recv_cq = s.cq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
}

#define CALL(name, ...)                                                                            \
    static void name(void) {                                                                       \
        __VA_ARGS__;                                                                               \
    }

static void open_device(void) {
    int n;
    struct ibv_device **list = soft_get_device_list(&n);
    must(n == 1 && (s.context = soft_open_device(list[0])));
    soft_free_device_list(list);
}
static void query(void) {
    struct ibv_device_attr attr;
    struct ibv_port_attr port;
    union ibv_gid gid;
    must(soft_query_device(s.context, &attr) == 0 && soft_query_port(s.context, 1, &port) == 0);
    must(soft_query_gid(s.context, 1, 0, &gid) == 0);
}
CALL(alloc_pd, must((s.pd = soft_alloc_pd(s.context))))
static void reg_mr(void) {
    s.mr = soft_reg_mr(s.pd, s.memory, sizeof s.memory, IBV_ACCESS_LOCAL_WRITE);
    must(s.mr && soft_rereg_mr(s.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == 0);
}
CALL(alloc_mw, must((s.mw = ibv_alloc_mw(s.pd, IBV_MW_TYPE_2))))
CALL(create_channel, must((s.completions = soft_create_comp_channel(s.context))))
static void create_cq(void) {
    must((s.cq = soft_create_cq(s.context, 16, NULL, s.completions, 0)));
    must(soft_resize_cq(s.cq, 32) == 0 && ibv_req_notify_cq(s.cq, 0) == 0);
}
static void create_srq(void) {
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};
    must((s.srq = soft_create_srq(s.pd, &attr)) && soft_query_srq(s.srq, &attr.attr) == 0);
    must(soft_modify_srq(s.srq, &attr.attr, IBV_SRQ_LIMIT) == 0);
}
static void create_qp(void) {
    struct ibv_qp_init_attr init = qp_attr();
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    must((s.qp = soft_create_qp(s.pd, &init)) && soft_modify_qp(s.qp, &attr, mask) == 0);
    must(soft_query_qp(s.qp, &attr, IBV_QP_STATE, &init) == 0);
}
/* A flushed receive: an event on the channel, by the thread that polls or by this one. */
static void flush(void) {
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_wc wc;
    must(ibv_post_recv(s.qp, &wr, &bad) == 0 && soft_modify_qp(s.qp, &attr, IBV_QP_STATE) == 0);
    while (ibv_poll_cq(s.cq, 1, &wc) == 0)
        ;
    must(wc.status == IBV_WC_WR_FLUSH_ERR);
}
CALL(destroy_qp, must(soft_destroy_qp(s.qp) == 0))
CALL(destroy_srq, must(soft_destroy_srq(s.srq) == 0))
CALL(destroy_cq, must(soft_destroy_cq(s.cq) == 0))
CALL(destroy_channel, must(soft_destroy_comp_channel(s.completions) == 0))
CALL(dealloc_mw, must(ibv_dealloc_mw(s.mw) == 0))
CALL(dereg_mr, must(soft_dereg_mr(s.mr) == 0))
CALL(dealloc_pd, must(soft_dealloc_pd(s.pd) == 0))
CALL(close_device, must(soft_close_device(s.context) == 0))
CALL(allocate, soft_mem_free(soft_mem_alloc(4096), 4096))

/* ---- connections ------------------------------------------------------------------------------------- */

CALL(open_events, must((s.channel = soft_create_event_channel())))
static void listen_at(void) {
    struct sockaddr_in any = ct_any(0);
    must(soft_create_id(s.channel, &s.listener, NULL, RDMA_PS_TCP) == 0);
    must(soft_bind_addr(s.listener, (struct sockaddr *)&any) == 0);
    must(soft_listen(s.listener, 4) == 0);
}
static void resolve(void) {
    struct sockaddr_in to = ct_address(ntohs(soft_get_src_port(s.listener)));
    must(soft_create_id(s.channel, &s.id, NULL, RDMA_PS_TCP) == 0);
    must(soft_resolve_addr(s.id, NULL, (struct sockaddr *)&to, 2000) == 0);
}
static void resolve_route(void) {
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    must(soft_resolve_route(s.id, 2000) == 0 && soft_cm_create_qp(s.id, NULL, &attr) == 0);
}
CALL(connect_it, must(soft_connect(s.id, &(struct rdma_conn_param){0}) == 0))
static void accept_it(void) {
    struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    must(soft_cm_create_qp(s.other, NULL, &attr) == 0);
    must(soft_accept(s.other, &(struct rdma_conn_param){0}) == 0);
}
static void send_it(void) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
    struct ibv_wc wc;
    must(ibv_post_recv(s.other->qp, &receive, &bad_receive) == 0);
    must(ibv_req_notify_cq(s.other->recv_cq, 0) == 0);
    must(ibv_post_send(s.id->qp, &wr, &bad) == 0);
    while (ibv_poll_cq(s.other->recv_cq, 1, &wc) == 0)
        ;
    must(wc.status == IBV_WC_SUCCESS);
}
CALL(disconnect, must(soft_disconnect(s.id) == 0))
static void destroy(struct rdma_cm_id *id) {
    if (id->qp)
        soft_cm_destroy_qp(id);
    must(soft_destroy_id(id) == 0);
}
CALL(destroy_id, destroy(s.id))
CALL(destroy_other, destroy(s.other))
CALL(destroy_listener, destroy(s.listener))
CALL(close_events, soft_destroy_event_channel(s.channel))
static void look_up(void) {
    struct rdma_addrinfo *list;
    must(soft_getaddrinfo("127.0.0.1", "4711", &(struct rdma_addrinfo){0}, &list) == 0);
    soft_freeaddrinfo(list);
}

/* ---- the test ----------------------------------------------------------------------------------------- */

static const struct call {
    const char *name;
    void (*make)(void);
    int events
        [2]; /* that come of it, one after the other; RDMA_CM_EVENT_ADDR_RESOLVED is 0, so each is one more */
} calls[] = {
#define DO(name, ...)                                                                              \
    {                                                                                              \
#name, name, {                                                                             \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define EV(name) (1 + (int)RDMA_CM_EVENT_##name)
    DO(open_device),
    DO(query),
    DO(alloc_pd),
    DO(reg_mr),
    DO(alloc_mw),
    DO(create_channel),
    DO(create_cq),
    DO(create_srq),
    DO(create_qp),
    DO(flush),
    DO(destroy_qp),
    DO(destroy_srq),
    DO(destroy_cq),
    DO(destroy_channel),
    DO(dealloc_mw),
    DO(dereg_mr),
    DO(dealloc_pd),
    DO(close_device),
    DO(allocate),
    DO(look_up),
    DO(open_events),
    DO(listen_at),
    DO(resolve, EV(ADDR_RESOLVED)),
    DO(resolve_route, EV(ROUTE_RESOLVED)),
    DO(connect_it, EV(CONNECT_REQUEST)),
    DO(accept_it, EV(ESTABLISHED), EV(ESTABLISHED)),
    DO(send_it),
    DO(disconnect, EV(DISCONNECTED), EV(DISCONNECTED)),
    DO(destroy_id),
    DO(destroy_other),
    DO(destroy_listener),
    DO(close_events),
};

static void *make(void *arg) {
    const struct call *call = arg;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    call->make();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    return arg;
}

static void take(int type) {
    struct rdma_cm_event *event;
    must(soft_get_cm_event(s.channel, &event) == 0);
    must(event->event == (enum rdma_cm_event_type)type);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
        s.other = event->id;
    must(soft_ack_cm_event(event) == 0);
}

TEST(no_call_of_the_device_is_left_halfway) {
    for (unsigned round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            pthread_t thread;
            void *result;
            must(pthread_create(&thread, NULL, make, (void *)(uintptr_t)&calls[i]) == 0);
            must(pthread_join(thread, &result) == 0);
            if (result == PTHREAD_CANCELED)
                fail_msg("cancelled in %s", calls[i].name);
            for (unsigned k = 0; k < 2 && calls[i].events[k]; k++)
                take(calls[i].events[k] - 1);
        }
}

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
