/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hostile_peer - speaks the protocol as far as it serves its purpose, then breaks it. links: static
 * (records and frames by hand, the device below the library)
 *
 *   hostile_peer dial:PORT|listen MODE ROUNDS
 *
 * Modes: records   private data that was tampered with, in requests or in answers
 *        frames    a proper session, then frames whose headers make no sense
 *        flood     a proper session, then more frames than it has credits for
 *        mute      a proper session that takes nothing and gives nothing
 *        half      never completes the handshake
 *        vanish    destroys everything as soon as the session is made
 *        scribble  a proper session, then noise over the shared ring (software device only)
 *
 * Says "port N" when listening and "done" at the end. One thread; ends when its input does.
 */
#include "util.h"

#include <arpa/inet.h>

#include "core/wire/frame.h"
#include "core/wire/private_data.h"
#include "fabric/fabric.h"
#include "soft/verbs/object.h"

#define STEP_NS (3000 * MS)
#define END_NS (600 * MS) /* longer than the other side is patient */
#define BUFFER 8192u
#define DEPTH 64
#define BUFFERS 256u /* more than can be on their way */

static const struct fabric_ops *fabric;
static struct rdma_event_channel *channel;
static const char *mode;
static uint64_t seed = 88172645463325252u;

static uint32_t random32(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static bool mode_is(const char *name) {
    return strcmp(mode, name) == 0;
}

struct link {
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *buffer;
    unsigned next; /* of the buffers */
};

/* ---- events ---------------------------------------------------------------------------------------- */

static struct rdma_cm_id *requests[256]; /* not looked at yet */
static unsigned request_count;

/* The next event within wait_ns: its type, or -1. */
static int next_event_within(uint64_t wait_ns) {
    struct pollfd fds[2] = {{.fd = channel->fd, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    struct rdma_cm_event *event;
    must(poll(fds, 2, (int)(wait_ns / MS)) >= 0);
    if (fds[1].revents) /* nobody wants us any more */
        _exit(0);
    if (!fds[0].revents)
        return -1;
    must(fabric->get_cm_event(channel, &event) == 0);
    int type = (int)event->event;
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        must(request_count < sizeof requests / sizeof requests[0]);
        requests[request_count++] = event->id;
    }
    fabric->ack_cm_event(event);
    return type;
}

static int next_event(void) {
    return next_event_within(STEP_NS);
}

/* Waits until the other side ends it, for a bounded time. */
static void wait_for_the_end(void) {
    for (int type = 0; type >= 0 && type != RDMA_CM_EVENT_DISCONNECTED &&
                       type != RDMA_CM_EVENT_REJECTED && type != RDMA_CM_EVENT_UNREACHABLE;)
        type = next_event_within(END_NS);
}

/* ---- verbs ----------------------------------------------------------------------------------------- */

static bool modify(struct link *l, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask;
    return fabric->init_qp_attr(l->id, &attr, &mask) == 0 &&
           fabric->modify_qp(l->qp, &attr, mask) == 0;
}

/* False: the other side of the id is gone already. */
static bool link_open(struct link *l) {
    l->pd = fabric->alloc_pd(l->id->verbs);
    l->cq = fabric->create_cq(l->id->verbs, 4 * DEPTH, NULL, NULL, 0);
    must(l->pd && l->cq);
    l->buffer = calloc(BUFFERS + 1, BUFFER);
    l->mr = fabric->reg_mr(l->pd, l->buffer, (BUFFERS + 1) * BUFFER, IBV_ACCESS_LOCAL_WRITE);
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
    struct ibv_sge sge = {(uintptr_t)l->buffer + BUFFERS * BUFFER, BUFFER, l->mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    for (unsigned i = 0; i < 16 && !mode_is("mute"); i++)
        must(ibv_post_recv(l->qp, &wr, &bad) == 0);
    return true;
}

static void link_close(struct link *l) {
    if (l->qp)
        must(fabric->destroy_qp(l->qp) == 0);
    if (l->mr)
        must(fabric->dereg_mr(l->mr) == 0);
    if (l->cq)
        must(fabric->destroy_cq(l->cq) == 0);
    if (l->pd)
        must(fabric->dealloc_pd(l->pd) == 0);
    must(fabric->destroy_id(l->id) == 0);
    free(l->buffer);
}

static bool post_frame(struct link *l, const struct frame *f, size_t bytes) {
    uint8_t *at = l->buffer + l->next % BUFFERS * BUFFER;
    struct ibv_sge sge = {(uintptr_t)at, (uint32_t)bytes, l->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = random32() % 16 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    frame_put(at, f);
    struct ibv_wc wc[8];
    (void)ibv_poll_cq(l->cq, 8, wc);
    if (ibv_post_send(l->qp, &wr, &bad) != 0)
        return false;
    l->next++;
    return true;
}

/* ---- records ---------------------------------------------------------------------------------------- */

static void tamper(uint8_t *data, uint8_t *bytes, unsigned most) {
    if (!mode_is("records"))
        return;
    unsigned kind = random32() % 8;
    for (unsigned i = random32() % 5 + (kind < 6); i > 0; i--)
        data[random32() % most] = (uint8_t)random32();
    if (kind == 0)
        *bytes = (uint8_t)(random32() % (most + 1));
    if (kind == 1)
        for (unsigned i = 0; i < most; i++)
            data[i] = (uint8_t)random32();
}

static struct rdma_conn_param parameters(const void *data, uint8_t bytes, uint32_t qp_num) {
    return (struct rdma_conn_param){.private_data = bytes ? data : NULL,
                                    .private_data_len = bytes,
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7,
                                    .qp_num = qp_num};
}

static uint8_t request(uint8_t data[PRIVATE_DATA_REQ_BYTES]) {
    struct private_data_req req = {.version_min = 1,
                                   .version_max = 1,
                                   .eager_log2 = 12,
                                   .message_log2 = 20,
                                   .credits = 16,
                                   .session_id = {1, 2, 3, (uint8_t)random32()}};
    uint8_t bytes = PRIVATE_DATA_REQ_BYTES;
    private_data_req_encode(&req, data);
    tamper(data, &bytes, PRIVATE_DATA_REQ_BYTES);
    return bytes;
}

static uint8_t answer(uint8_t data[PRIVATE_DATA_REP_BYTES]) {
    struct private_data_rep rep = {
        .version = 1, .eager_log2 = 12, .message_log2 = 20, .credits = 16, .session_id = {1}};
    uint8_t bytes = PRIVATE_DATA_REP_BYTES;
    private_data_rep_encode(&rep, data);
    tamper(data, &bytes, PRIVATE_DATA_REP_BYTES);
    return bytes;
}

/* ---- what is done with a session --------------------------------------------------------------------- */

static void frames(struct link *l) {
    uint32_t sequence = 1;
    for (unsigned i = 0; i < 14; i++) { /* within its credits */
        struct frame f = {.type = (uint8_t)(1 + random32() % 4), .sequence = sequence};
        size_t bytes = FRAME_BYTES + random32() % 4000;
        f.length = (uint32_t)(bytes - FRAME_BYTES);
        if (f.type == FRAME_FRAG) {
            f.flags = (uint8_t)(random32() % 5);
            f.total = random32() % 3 ? random32() % 20000 : UINT64_MAX - random32() % 3;
        }
        switch (random32() % 12) {
        case 0:
            f.sequence = random32();
            break;
        case 1:
            f.ack = random32() % 8;
            break;
        case 2:
            f.credits = (uint16_t)(random32() % 2000);
            break;
        case 3:
            f.length = random32() % 2 ? UINT32_MAX : random32() % 5000;
            break;
        case 4:
            f.type = (uint8_t)random32();
            break;
        case 5:
            bytes = random32() % FRAME_BYTES;
            break;
        case 6:
            for (unsigned k = 0; k < FRAME_BYTES; k++)
                ((uint8_t *)&f)[k] = (uint8_t)random32();
            break;
        default: /* in order, and believed */
            sequence += f.type == FRAME_DATA || f.type == FRAME_FRAG;
            break;
        }
        if (!post_frame(l, &f, bytes))
            break;
    }
}

static void flood(struct link *l) {
    uint64_t until = sluice_now() + STEP_NS;
    for (uint32_t i = 1; sluice_now() < until;) {
        struct frame f = {.type = FRAME_DATA, .sequence = i, .length = 100};
        if (post_frame(l, &f, FRAME_BYTES + 100))
            i++;
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        struct pollfd event = {.fd = channel->fd, .events = POLLIN};
        if (fabric->query_qp(l->qp, &attr, IBV_QP_STATE, &init) != 0 ||
            attr.qp_state == IBV_QPS_ERR || poll(&event, 1, 0) != 0)
            break; /* the other side has had enough */
    }
}

static void scribble(struct link *l) {
    struct soft_qp *qp = soft_qp_of(l->qp);
    uint64_t until = sluice_now() + STEP_NS;
    while (!atomic_load(&qp->tx) && sluice_now() < until)
        ;
    spin_lock(&qp->lock);
    struct soft_ring *rings[2] = {atomic_load(&qp->tx), atomic_load(&qp->rx)};
    for (unsigned r = 0; r < 2 && rings[r]; r++)
        for (unsigned i = 0; i < SOFT_RING_BYTES / 4; i++)
            __atomic_store_n((uint32_t *)(void *)rings[r] + i,
                             random32() % 3 ? random32() % 70 : random32(), __ATOMIC_RELAXED);
    spin_unlock(&qp->lock);
}

static void abuse(struct link *l) {
    if (mode_is("frames"))
        frames(l);
    else if (mode_is("flood"))
        flood(l);
    else if (mode_is("scribble"))
        scribble(l);
    if (!mode_is("vanish"))
        wait_for_the_end();
}

/* ---- both roles ---------------------------------------------------------------------------------------- */

static void dial(unsigned port) {
    struct link l = {0};
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = inet_addr(it_host())};
    uint8_t data[PRIVATE_DATA_REQ_BYTES];
    must(fabric->create_id(channel, &l.id, NULL, RDMA_PS_TCP) == 0);
    must(fabric->resolve_addr(l.id, NULL, (struct sockaddr *)&address, 3000) == 0);
    must(next_event() == RDMA_CM_EVENT_ADDR_RESOLVED);
    must(fabric->resolve_route(l.id, 3000) == 0);
    must(next_event() == RDMA_CM_EVENT_ROUTE_RESOLVED);
    must(link_open(&l));
    uint8_t bytes = request(data);
    struct rdma_conn_param param = parameters(data, bytes, l.qp->qp_num);
    must(fabric->connect(l.id, &param) == 0);
    int type = next_event();
    if (type == RDMA_CM_EVENT_CONNECT_RESPONSE) {
        if (mode_is("half"))
            wait_for_the_end();
        else if (modify(&l, IBV_QPS_RTR) && modify(&l, IBV_QPS_RTS) && fabric->establish(l.id) == 0)
            abuse(&l);
    }
    link_close(&l);
}

static void serve(void) {
    struct link l = {0};
    uint8_t data[256];
    while (request_count == 0)
        next_event();
    l.id = requests[0];
    memmove(requests, requests + 1, --request_count * sizeof requests[0]);
    if (!link_open(&l)) {
        link_close(&l);
        return;
    }
    bool refuses = mode_is("records") && random32() % 3 == 0;
    uint8_t bytes = answer(data);
    if (refuses)
        bytes = bytes > 148 ? 148 : bytes;
    struct rdma_conn_param param = parameters(data, bytes, l.qp->qp_num);
    if (mode_is("half")) {
        wait_for_the_end(); /* never answers */
    } else if (refuses) {
        must(fabric->reject(l.id, bytes ? data : NULL, bytes) == 0);
    } else if (modify(&l, IBV_QPS_RTR) && modify(&l, IBV_QPS_RTS) &&
               fabric->accept(l.id, &param) == 0) {
        abuse(&l);
    }
    link_close(&l);
}

int main(int argc, char **argv) {
    it_no_cmocka = true;
    must(argc == 4);
    mode = argv[2];
    fabric = it_soft() ? &fabric_soft : &fabric_system;
    must(it_soft() || !mode_is("scribble"));
    channel = fabric->create_event_channel();
    must(channel);
    struct rdma_cm_id *listener = NULL;
    if (strcmp(argv[1], "listen") == 0) {
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(it_host())};
        must(fabric->create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
        must(fabric->bind_addr(listener, (struct sockaddr *)&any) == 0);
        must(fabric->listen(listener, 16) == 0);
        printf("port %u\n", ntohs(fabric->get_src_port(listener)));
        fflush(stdout);
    }
    for (unsigned rounds = (unsigned)atoi(argv[3]); rounds > 0; rounds--)
        if (listener)
            serve();
        else
            dial((unsigned)atoi(strchr(argv[1], ':') + 1));
    if (listener)
        must(fabric->destroy_id(listener) == 0);
    fabric->destroy_event_channel(channel);
    puts("done");
    return 0;
}
