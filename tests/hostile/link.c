/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* link.c - see link.h. What the library would do on a queue pair is done here, one call at a time. */
#include "support/side.h"

#include <arpa/inet.h>

#include "hostile/link.h"

#define BUFFER 8192u
#define DEPTH 64
#define RECEIVES 16u
#define BUFFERS 256u /* more than can be on their way */
#define ONE_SIDED 1u /* wr_id of what is no frame */
#define RECEIVE 2u   /* and of the first receive */

static const struct fabric_ops *fabric;
static struct rdma_event_channel *channel;
static struct rdma_cm_id *listener;
static struct {
    struct rdma_cm_id *id;
    uint8_t session_id[16];
} requests[256]; /* not looked at yet */
static unsigned rpc_client_count;
static const struct rdma_cm_id *news_of; /* whose the last event was */
static unsigned last_step;               /* 0: none */

void link_dies_at(unsigned step) {
    last_step = step;
}

void link_step(unsigned step) {
    if (step == last_step)
        raise(SIGKILL);
}

/* ---- events ---------------------------------------------------------------------------------------- */

void link_start(void) {
    fabric = it_soft() ? &fabric_soft : &fabric_system;
    channel = fabric->create_event_channel();
    must(channel);
}

void link_stop(void) {
    fabric->destroy_event_channel(channel);
}

int link_event(uint64_t wait_ns) {
    struct pollfd fds[2] = {{.fd = channel->fd, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    struct rdma_cm_event *event;
    must(poll(fds, 2, (int)(wait_ns / MS)) >= 0);
    if (fds[1].revents) /* nobody wants us any more */
        _exit(0);
    if (!fds[0].revents)
        return -1;
    must(fabric->get_cm_event(channel, &event) == 0);
    int type = (int)event->event;
    news_of = event->id;
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        struct private_data_req req;
        must(rpc_client_count < sizeof requests / sizeof requests[0]);
        must(private_data_req_decode(&req, event->param.conn.private_data,
                                     event->param.conn.private_data_len) == SLUICE_REASON_NONE);
        memcpy(requests[rpc_client_count].session_id, req.session_id, sizeof req.session_id);
        requests[rpc_client_count++].id = event->id;
    }
    fabric->ack_cm_event(event);
    return type;
}

/* The next event of this one; others may have ended meanwhile. */
static int event_of(const struct link *l) {
    int type;
    do
        type = link_event(LINK_STEP_NS);
    while (type >= 0 && news_of != l->id);
    return type;
}

void link_wait_for_the_end(uint64_t wait_ns) {
    for (int type = 0; type >= 0 && type != RDMA_CM_EVENT_DISCONNECTED &&
                       type != RDMA_CM_EVENT_REJECTED && type != RDMA_CM_EVENT_UNREACHABLE;)
        type = link_event(wait_ns);
}

bool link_has_news(void) {
    struct pollfd event = {.fd = channel->fd, .events = POLLIN};
    return poll(&event, 1, 0) != 0;
}

/* ---- verbs ----------------------------------------------------------------------------------------- */

static bool modify(struct link *l, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask;
    return fabric->init_qp_attr(l->id, &attr, &mask) == 0 &&
           fabric->modify_qp(l->qp, &attr, mask) == 0;
}

static void post_receive(struct link *l, unsigned i) {
    struct ibv_sge sge = {(uintptr_t)l->buffer + (BUFFERS + i) * BUFFER, BUFFER, l->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = RECEIVE + i, .sg_list = &sge, .num_sge = 1}, *bad;
    (void)ibv_post_recv(l->qp, &wr, &bad); /* it may have ended */
}

/* False: the other side of the id is gone already. */
static bool link_open(struct link *l, const struct link_terms *terms) {
    const size_t bytes = (BUFFERS + RECEIVES) * BUFFER;
    l->pd = fabric->alloc_pd(l->id->verbs);
    l->cq = fabric->create_cq(l->id->verbs, 4 * DEPTH, NULL, NULL, 0);
    must(l->pd && l->cq);
    l->buffer = calloc(1, bytes);
    l->mr = fabric->reg_mr(l->pd, l->buffer, bytes, IBV_ACCESS_LOCAL_WRITE);
    must(l->mr);
    struct ibv_qp_init_attr init = {
        .send_cq = l->cq,
        .recv_cq = l->cq,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    l->qp = fabric->create_qp(l->pd, &init);
    must(l->qp);
    if (!modify(l, IBV_QPS_INIT))
        return false;
    for (unsigned i = 0; i < RECEIVES && !terms->deaf; i++)
        post_receive(l, i);
    return true;
}

void link_close(struct link *l) {
    if (l->qp)
        must(fabric->destroy_qp(l->qp) == 0);
    if (l->mr)
        must(fabric->dereg_mr(l->mr) == 0);
    if (l->cq)
        must(fabric->destroy_cq(l->cq) == 0);
    if (l->pd)
        must(fabric->dealloc_pd(l->pd) == 0);
    if (l->id)
        must(fabric->destroy_id(l->id) == 0);
    free(l->buffer);
    *l = (struct link){0};
}

bool link_ended(struct link *l) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    return fabric->query_qp(l->qp, &attr, IBV_QP_STATE, &init) != 0 ||
           attr.qp_state == IBV_QPS_ERR || link_has_news();
}

/* ---- saying ----------------------------------------------------------------------------------------- */

uint8_t *link_place(struct link *l) {
    return l->buffer + l->next % BUFFERS * BUFFER;
}

bool link_post(struct link *l, const struct frame *f, size_t bytes, enum ibv_wr_opcode opcode) {
    uint8_t *at = link_place(l);
    struct ibv_sge sge = {(uintptr_t)at, (uint32_t)bytes, l->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    frame_put(at, f);
    link_poll(l);
    if (ibv_post_send(l->qp, &wr, &bad) != 0)
        return false;
    l->next++;
    return true;
}

bool link_say(struct link *l, struct frame f, const void *payload) {
    l->sequence += FRAME_NUMBERED >> f.type & 1;
    f.sequence = l->sequence;
    if (f.length > 0)
        memcpy(link_place(l) + FRAME_BYTES, payload, f.length);
    return link_post(l, &f, FRAME_BYTES + f.length, IBV_WR_SEND);
}

bool link_write_nothing(struct link *l, uint32_t immediate) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                             .imm_data = htobe32(immediate),
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    link_poll(l);
    return ibv_post_send(l->qp, &wr, &bad) == 0;
}

bool link_reach(struct link *l, enum ibv_wr_opcode opcode, uint64_t address, uint32_t rkey) {
    struct ibv_sge sge = {(uintptr_t)link_place(l), 8, l->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = ONE_SIDED,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = address;
        wr.wr.atomic.rkey = rkey;
        wr.wr.atomic.compare_add = 1;
    } else {
        wr.wr.rdma.remote_addr = address;
        wr.wr.rdma.rkey = rkey;
    }
    link_poll(l);
    return ibv_post_send(l->qp, &wr, &bad) == 0;
}

/* ---- hearing ---------------------------------------------------------------------------------------- */

static void heard(struct link *l, unsigned i, uint32_t bytes) {
    const uint8_t *at = l->buffer + (BUFFERS + i) * BUFFER;
    if (bytes >= FRAME_BYTES) {
        struct frame f = frame_get(at);
        if (f.type < FRAME_TYPES) {
            l->heard[f.type].count++;
            l->heard[f.type].frame = f;
            memcpy(l->heard[f.type].word, at + FRAME_BYTES, sizeof l->heard[f.type].word);
        }
    }
    post_receive(l, i);
}

void link_poll(struct link *l) {
    struct ibv_wc wc;
    while (ibv_poll_cq(l->cq, 1, &wc) == 1) {
        if (wc.wr_id == ONE_SIDED) {
            l->done++;
            l->status = wc.status;
        } else if (wc.wr_id >= RECEIVE && wc.status == IBV_WC_SUCCESS) {
            heard(l, (unsigned)wc.wr_id - RECEIVE, wc.byte_len);
        }
    }
}

bool link_hear(struct link *l, enum frame_type type) {
    uint64_t until = sluice_now() + LINK_STEP_NS;
    while (l->heard[type].count == 0 && sluice_now() < until) {
        link_poll(l);
        sched_yield();
    }
    return l->heard[type].count > 0;
}

/* ---- records ---------------------------------------------------------------------------------------- */

static struct rdma_conn_param parameters(const void *data, uint8_t bytes, uint32_t qp_num) {
    return (struct rdma_conn_param){.private_data = bytes ? data : NULL,
                                    .private_data_len = bytes,
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7,
                                    .qp_num = qp_num};
}

static uint8_t request(const struct link_terms *terms, uint8_t data[PRIVATE_DATA_REQ_BYTES]) {
    static uint8_t count;
    struct private_data_req req = {.version_min = 1,
                                   .version_max = 1,
                                   .features = terms->features,
                                   .eager_log2 = 12,
                                   .message_log2 = 20,
                                   .depth_in = 1,
                                   .depth_out = 1,
                                   .credits = 16,
                                   .session_id = {1, 2, 3, ++count}};
    uint8_t bytes = PRIVATE_DATA_REQ_BYTES;
    private_data_req_encode(&req, data);
    if (terms->tamper)
        terms->tamper(data, &bytes, PRIVATE_DATA_REQ_BYTES);
    return bytes;
}

/* Within what any node of the tests proposes. */
static uint8_t answer(const struct link *l, const struct link_terms *terms,
                      uint8_t data[PRIVATE_DATA_REP_BYTES]) {
    struct private_data_rep rep = {.version = 1,
                                   .features = terms->features,
                                   .eager_log2 = 12,
                                   .message_log2 = 20,
                                   .depth_in = 1,
                                   .depth_out = 1,
                                   .credits = 16};
    uint8_t bytes = PRIVATE_DATA_REP_BYTES;
    memcpy(rep.session_id, l->session_id, sizeof rep.session_id);
    private_data_rep_encode(&rep, data);
    if (terms->tamper)
        terms->tamper(data, &bytes, PRIVATE_DATA_REP_BYTES);
    return bytes;
}

/* ---- both roles ---------------------------------------------------------------------------------------- */

bool link_dial(struct link *l, unsigned port, const struct link_terms *terms) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = inet_addr(it_host())};
    uint8_t data[PRIVATE_DATA_REQ_BYTES];
    *l = (struct link){0};
    must(fabric->create_id(channel, &l->id, NULL, RDMA_PS_TCP) == 0);
    must(fabric->resolve_addr(l->id, NULL, (struct sockaddr *)&address, 3000) == 0);
    must(event_of(l) == RDMA_CM_EVENT_ADDR_RESOLVED);
    must(fabric->resolve_route(l->id, 3000) == 0);
    must(event_of(l) == RDMA_CM_EVENT_ROUTE_RESOLVED);
    link_step(1);
    must(link_open(l, terms));
    uint8_t bytes = request(terms, data);
    struct rdma_conn_param param = parameters(data, bytes, l->qp->qp_num);
    must(fabric->connect(l->id, &param) == 0);
    link_step(2);
    bool answered = event_of(l) == RDMA_CM_EVENT_CONNECT_RESPONSE;
    link_step(3);
    return answered;
}

bool link_establish(struct link *l) {
    if (!modify(l, IBV_QPS_RTR) || !modify(l, IBV_QPS_RTS))
        return false;
    link_step(4);
    bool established = fabric->establish(l->id) == 0;
    link_step(5);
    return established;
}

unsigned link_listen(void) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(it_host())};
    must(fabric->create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
    must(fabric->bind_addr(listener, (struct sockaddr *)&any) == 0);
    must(fabric->listen(listener, 16) == 0);
    return ntohs(fabric->get_src_port(listener));
}

void link_unlisten(void) {
    must(fabric->destroy_id(listener) == 0);
    listener = NULL;
}

bool link_asked(struct link *l, const struct link_terms *terms) {
    *l = (struct link){0};
    while (rpc_client_count == 0)
        link_event(LINK_STEP_NS);
    l->id = requests[0].id;
    memcpy(l->session_id, requests[0].session_id, sizeof l->session_id);
    memmove(requests, requests + 1, --rpc_client_count * sizeof requests[0]);
    return link_open(l, terms);
}

bool link_accept(struct link *l, const struct link_terms *terms) {
    uint8_t data[256], bytes = answer(l, terms, data);
    struct rdma_conn_param param = parameters(data, bytes, l->qp->qp_num);
    return modify(l, IBV_QPS_RTR) && modify(l, IBV_QPS_RTS) && fabric->accept(l->id, &param) == 0;
}

void link_refuse(struct link *l, const struct link_terms *terms) {
    uint8_t data[256], bytes = answer(l, terms, data);
    bytes = bytes > 148 ? 148 : bytes;
    must(fabric->reject(l->id, bytes ? data : NULL, bytes) == 0);
}
