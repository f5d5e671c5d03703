/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * flood_peer - asks a listener for connections as fast as it can and never establishes one.
 * links: static (records by hand, the device below the library)
 *
 *   flood_peer PORT COUNT
 *
 * Keeps COUNT ids under way: each sends a proper request and then leaves the answer lying; one that
 * is refused or ended is replaced at once. Says "flooding" when COUNT requests were sent. "count":
 * says "counted answered=N", those of its requests that were let in to finish so far. "stop":
 * nothing new is begun and nothing that is there is touched; says "stopped requests=N ended=N".
 * Its input's end is its own. One thread.
 */
#include "support/side.h"

#include <arpa/inet.h>

#include "core/wire/private_data.h"
#include "fabric/fabric.h"

static const struct fabric_ops *fabric;
static struct rdma_event_channel *channel;
static struct sockaddr_in address;
static struct ibv_qp *qp; /* its number is in every request; it never leaves RESET */
static unsigned requests, ended, answered;

static void begin(void) {
    struct rdma_cm_id *id;
    must(fabric->create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    must(fabric->resolve_addr(id, NULL, (struct sockaddr *)&address, 3000) == 0);
}

static void make_qp(struct ibv_context *verbs) {
    struct ibv_pd *pd = fabric->alloc_pd(verbs);
    struct ibv_cq *cq = fabric->create_cq(verbs, 16, NULL, NULL, 0);
    must(pd && cq);
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    qp = fabric->create_qp(pd, &init);
    must(qp);
}

static void ask(struct rdma_cm_id *id) {
    uint8_t data[PRIVATE_DATA_REQ_BYTES];
    struct private_data_req req = {.version_min = 1,
                                   .version_max = 1,
                                   .eager_log2 = 10,
                                   .message_log2 = 20,
                                   .credits = 4,
                                   .session_id = {(uint8_t)requests, (uint8_t)(requests >> 8)}};
    private_data_req_encode(&req, data);
    if (!qp)
        make_qp(id->verbs);
    struct rdma_conn_param param = {.private_data = data,
                                    .private_data_len = sizeof data,
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7,
                                    .qp_num = qp->qp_num};
    must(fabric->connect(id, &param) == 0);
    requests++;
}

/* True: the id is over. */
static bool take(enum rdma_cm_event_type type, struct rdma_cm_id *id) {
    if (type == RDMA_CM_EVENT_ADDR_RESOLVED)
        must(fabric->resolve_route(id, 3000) == 0);
    else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED)
        ask(id);
    else if (type == RDMA_CM_EVENT_CONNECT_RESPONSE)
        answered++;
    else {
        must(fabric->destroy_id(id) == 0);
        return true;
    }
    return false;
}

int main(int argc, char **argv) {
    must_end_process = true;
    must(argc == 3);
    unsigned count = (unsigned)atoi(argv[2]);
    fabric = it_soft() ? &fabric_soft : &fabric_system;
    channel = fabric->create_event_channel();
    must(channel);
    address = (struct sockaddr_in){.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)atoi(argv[1])),
                                   .sin_addr.s_addr = inet_addr(it_host())};
    bool said = false;
    char line[16];
    for (unsigned i = 0; i < count; i++)
        begin();
    for (;;) {
        struct pollfd fds[2] = {{.fd = channel->fd, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        struct rdma_cm_event *event;
        must(poll(fds, 2, -1) > 0);
        if (fds[1].revents) {
            must(fgets(line, sizeof line, stdin));
            if (strcmp(line, "count\n") != 0)
                break;
            printf("counted answered=%u\n", answered);
            fflush(stdout);
            continue;
        }
        must(fabric->get_cm_event(channel, &event) == 0);
        enum rdma_cm_event_type type = event->event;
        struct rdma_cm_id *id = event->id;
        fabric->ack_cm_event(event);
        if (take(type, id)) {
            ended++;
            begin();
        }
        if (!said && requests >= count) {
            said = true;
            puts("flooding");
            fflush(stdout);
        }
    }
    printf("stopped requests=%u ended=%u\n", requests, ended);
    fflush(stdout);
    (void)!fgets(line, sizeof line, stdin); /* nothing: it waits for the end */
    return 0;
}
