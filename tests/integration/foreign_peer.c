/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * foreign_peer - an rdma_cm program of somebody else on the device of the tests, for tests of what
 * Sluice makes of it. links: static (the device is reached below the library)
 *
 *   foreign_peer reject|garbage|accept   listens, says where, answers every request in that way:
 *                                        without private data, with some of its own, by accepting
 *   foreign_peer dial PORT               asks to connect with private data of its own; prints the
 *                                        event that answers; status 0 if that is a refusal
 *
 * One thread; ends when killed, dial by itself.
 */
#include "support/side.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "fabric/fabric.h"

static const struct fabric_ops *fabric;
static const char greeting[] = "GET / HTTP/1.1\r\nHost: example\r\n\r\n";
#define QP_NUM 77 /* belongs to nobody: no data will flow */
#define STEP_MS 5000

static int die(const char *what) {
    perror(what);
    return 1;
}

static struct sockaddr_in address_of(unsigned port) {
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = inet_addr(it_host())};
}

static struct rdma_conn_param parameters(void) {
    return (struct rdma_conn_param){.private_data = greeting,
                                    .private_data_len = sizeof greeting,
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7,
                                    .qp_num = QP_NUM};
}

/* The number for rdma_cm; an iWARP device wants a queue pair behind it, for as long as we live. */
static uint32_t queue_pair(struct ibv_context *verbs) {
    if (verbs->device->transport_type != IBV_TRANSPORT_IWARP)
        return QP_NUM;
    struct ibv_pd *pd = fabric->alloc_pd(verbs);
    struct ibv_cq *cq = pd ? fabric->create_cq(verbs, 4, NULL, NULL, 0) : NULL;
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = cq ? fabric->create_qp(pd, &init) : NULL;
    if (!qp)
        exit(die("queue pair"));
    return qp->qp_num;
}

static int serve(struct rdma_event_channel *channel, struct rdma_cm_id *id, const char *mode) {
    struct sockaddr_in address = address_of(0);
    if (fabric->bind_addr(id, (struct sockaddr *)&address) != 0)
        return die("bind");
    if (fabric->listen(id, 8) != 0)
        return die("listen");
    fprintf(stderr, "listening on %s\n", it_address(ntohs(fabric->get_src_port(id))));
    struct rdma_cm_event *event;
    while (fabric->get_cm_event(channel, &event) == 0) {
        struct rdma_cm_id *peer = event->id;
        bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
        bool over = !request && peer != id && event->event != RDMA_CM_EVENT_ESTABLISHED;
        fabric->ack_cm_event(event);
        struct rdma_conn_param accept = parameters();
        if (request && strcmp(mode, "accept") == 0) {
            accept.qp_num = queue_pair(peer->verbs);
            if (fabric->accept(peer, &accept) != 0)
                return die("accept");
        } else if (request) {
            uint8_t bytes = strcmp(mode, "garbage") == 0 ? sizeof greeting : 0;
            if (fabric->reject(peer, bytes != 0 ? greeting : NULL, bytes) != 0)
                return die("reject");
            over = true;
        }
        if (over)
            fabric->destroy_id(peer);
    }
    return die("get_cm_event");
}

/* The next event's type; it must be the expected one where one is expected. */
static int next_event(struct rdma_event_channel *channel, int expected) {
    struct rdma_cm_event *event;
    if (fabric->get_cm_event(channel, &event) != 0)
        exit(die("get_cm_event"));
    int type = (int)event->event;
    int status = event->status;
    fabric->ack_cm_event(event);
    if (expected >= 0 && type != expected) {
        fprintf(stderr, "event %d with status %d instead of %d\n", type, status, expected);
        exit(1);
    }
    return type;
}

static int dial(struct rdma_event_channel *channel, struct rdma_cm_id *id, unsigned port) {
    struct sockaddr_in address = address_of(port);
    struct rdma_conn_param connect = parameters();
    if (fabric->resolve_addr(id, NULL, (struct sockaddr *)&address, STEP_MS) != 0)
        return die("resolve_addr");
    next_event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (fabric->resolve_route(id, STEP_MS) != 0)
        return die("resolve_route");
    next_event(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    connect.qp_num = queue_pair(id->verbs);
    if (fabric->connect(id, &connect) != 0)
        return die("connect");
    int type = next_event(channel, -1);
    printf("event %d\n", type);
    return type == RDMA_CM_EVENT_REJECTED ? 0 : 1;
}

int main(int argc, char **argv) {
    bool dials = argc == 3 && strcmp(argv[1], "dial") == 0;
    if (argc != 2 && !dials)
        return fprintf(stderr, "usage: foreign_peer reject|garbage|accept, or dial PORT\n"), 2;
    must_end_process = true;
    fabric = it_soft() ? &fabric_soft : &fabric_system;
    struct rdma_event_channel *channel = fabric->create_event_channel();
    struct rdma_cm_id *id;
    if (channel == NULL || fabric->create_id(channel, &id, NULL, RDMA_PS_TCP) != 0)
        return die("create_id");
    int rc = dials ? dial(channel, id, (unsigned)atoi(argv[2])) : serve(channel, id, argv[1]);
    fabric->destroy_id(id);
    fabric->destroy_event_channel(channel);
    return rc;
}
