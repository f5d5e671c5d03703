/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_agreed_test.c - two users connect by rdma_cm while a third one has all names of queue pair numbers: what they
 * agreed on over a socket needs none of them. Needs root to become other users, and a network namespace of its own,
 * because names that are taken away here would be missing elsewhere.
 */
#define _GNU_SOURCE
#include "support/softcm.h"
#include "support/softverbs.h"
#include "support/network.h"
#include "support/rows.h"
#include "support/skip.h"
#include "support/squatter.h"

#include <sys/mman.h>

#include "soft/object/ring.h"
#include "soft/rc/pending_ring.h"

#define STRANGER_UID 65534
#define LISTENER_UID 65533

static bool own_namespace;

struct agreed_row {
    bool by_hand; /* the application makes and moves its queue pairs itself */
    bool listens; /* the stranger does */
};
static const struct agreed_row *row;

/* ---- one end: `must` only, since it is a forked child's, too ----------------------------------------- */

struct end {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
};

static struct rdma_cm_id *next_event(struct end *end, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event;
    must(soft_get_cm_event(end->channel, &event) == 0);
    must(event->event == type);
    struct rdma_cm_id *id = event->id;
    must(soft_ack_cm_event(event) == 0);
    return id;
}

static void move_by_hand(struct end *end, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask;
    must(soft_init_qp_attr(end->id, &attr, &mask) == 0);
    must(soft_modify_qp(end->qp, &attr, mask) == 0);
}

static void make_qp(struct end *end) {
    end->pd = soft_alloc_pd(end->id->verbs);
    end->cq = soft_create_cq(end->id->verbs, 8, NULL, NULL, 0);
    must(end->pd && end->cq);
    struct ibv_qp_init_attr attr = {.send_cq = end->cq,
                                    .recv_cq = end->cq,
                                    .cap = {.max_send_wr = 4, .max_recv_wr = 4},
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = 1};
    if (!row->by_hand) {
        must(soft_cm_create_qp(end->id, end->pd, &attr) == 0);
        end->qp = end->id->qp;
        return;
    }
    end->qp = soft_create_qp(end->pd, &attr);
    must(end->qp);
    move_by_hand(end, IBV_QPS_INIT);
}

static struct rdma_conn_param param_of(const struct end *end) {
    return (struct rdma_conn_param){.responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 1,
                                    .rnr_retry_count = 7,
                                    .qp_num = end->qp->qp_num};
}

static void listen_at_any(struct end *end, struct rdma_cm_id **listener, uint16_t *port) {
    struct sockaddr_in any = {.sin_family = AF_INET};
    end->channel = soft_create_event_channel();
    must(end->channel);
    must(soft_create_id(end->channel, listener, NULL, RDMA_PS_TCP) == 0);
    must(soft_bind_addr(*listener, (struct sockaddr *)&any) == 0);
    must(soft_listen(*listener, 8) == 0);
    *port = ntohs(soft_get_src_port(*listener));
}

static void accept_one(struct end *end) {
    end->id = next_event(end, RDMA_CM_EVENT_CONNECT_REQUEST);
    make_qp(end);
    if (row->by_hand) {
        move_by_hand(end, IBV_QPS_RTR);
        move_by_hand(end, IBV_QPS_RTS);
    }
    struct rdma_conn_param param = param_of(end);
    must(soft_accept(end->id, &param) == 0);
    (void)next_event(end, RDMA_CM_EVENT_ESTABLISHED);
}

static void resolve(struct end *end, uint16_t port) {
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    end->channel = soft_create_event_channel();
    must(end->channel);
    must(soft_create_id(end->channel, &end->id, NULL, RDMA_PS_TCP) == 0);
    must(soft_resolve_addr(end->id, NULL, (struct sockaddr *)&to, 2000) == 0);
    (void)next_event(end, RDMA_CM_EVENT_ADDR_RESOLVED);
    must(soft_resolve_route(end->id, 2000) == 0);
    (void)next_event(end, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void dial(struct end *end, uint16_t port) {
    resolve(end, port);
    make_qp(end);
    struct rdma_conn_param param = param_of(end);
    must(soft_connect(end->id, &param) == 0);
    if (!row->by_hand) {
        (void)next_event(end, RDMA_CM_EVENT_ESTABLISHED);
        return;
    }
    (void)next_event(end, RDMA_CM_EVENT_CONNECT_RESPONSE);
    move_by_hand(end, IBV_QPS_RTR);
    move_by_hand(end, IBV_QPS_RTS);
    must(soft_establish(end->id) == 0);
}

/* An empty message in each direction. */
static void exchange(struct end *end) {
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 2, .opcode = IBV_WR_SEND}, *bad_send;
    must(ibv_post_recv(end->qp, &receive, &bad_receive) == 0);
    must(ibv_post_send(end->qp, &send, &bad_send) == 0);
    for (unsigned i = 0; i < 2; i++)
        must(sv_poll(end->cq).status == IBV_WC_SUCCESS);
}

static void free_end(struct end *end) {
    if (row->by_hand)
        must(soft_destroy_qp(end->qp) == 0);
    else
        soft_cm_destroy_qp(end->id);
    must(soft_destroy_cq(end->cq) == 0 && soft_dealloc_pd(end->pd) == 0);
    must(soft_destroy_id(end->id) == 0);
    soft_destroy_event_channel(end->channel);
}

/* ---- the other processes ---------------------------------------------------------------------------- */

static void stranger(int fd) {
    squatter_become(STRANGER_UID);
    squatter_take_blocks(1, row->listens);
    sv_tell(fd, 1);
    (void)sv_hear(fd);
}

static void listener(int fd) {
    struct rdma_cm_id *listening;
    struct end end;
    uint16_t port;
    squatter_become(LISTENER_UID);
    listen_at_any(&end, &listening, &port);
    sv_tell(fd, port);
    accept_one(&end);
    exchange(&end);
    sv_barrier(fd);
    must(soft_destroy_id(listening) == 0);
    free_end(&end);
}

static void needs_other_users(void) {
    if (!own_namespace)
        skip_with("needs root to be other users, and a network namespace of its own");
    if (!squatter_may_take_blocks())
        skip_with("a process may not open 20,000 files");
}

static void a_session_needs_no_name(void **state) {
    needs_other_users();
    row = *state;
    struct sv_child squatter = sv_fork(stranger);
    must(sv_hear(squatter.fd) == 1);
    struct sv_child child = sv_fork(listener);
    struct end end;
    dial(&end, (uint16_t)sv_hear(child.fd));
    exchange(&end);
    sv_barrier(child.fd);
    must(sv_join(&child) == 0);
    free_end(&end);
    must(kill(squatter.pid, SIGKILL) == 0);
    (void)sv_join(&squatter);
}

#define AGREED(name, ...) ROW(name, a_session_needs_no_name, agreed_row, __VA_ARGS__)
TEST_CASES(AGREED(a_session_needs_no_name_that_a_stranger_has, .listens = true),
           AGREED(a_session_needs_no_name_of_one_who_does_not_listen, .listens = false),
           AGREED(nor_do_queue_pairs_that_the_application_moves, .by_hand = true, .listens = true),
           AGREED(nor_do_these_if_he_does_not_listen, .by_hand = true, .listens = false));

/* ---- offers ----------------------------------------------------------------------------------------- */

#define OFFERS 8 /* that a queue pair keeps */

/* What comes before the answer does: as many offers of other users as a queue pair keeps put none of the peer's aside. */
TEST(who_is_asked_keeps_its_place_among_many_offers) {
    static const struct agreed_row own = {.by_hand = false};
    static struct soft_peer peers[1 + OFFERS];
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *listening = ct_id(channel);
    struct end end;
    row = &own;
    resolve(&end, ct_listen(listening, 8));
    make_qp(&end);
    struct rdma_conn_param param = param_of(&end);
    must(soft_connect(end.id, &param) == 0);
    struct soft_qp *qp = soft_qp_of(end.qp);
    memset(peers, 0, sizeof peers);
    soft_lock();
    must(soft_cm_id_of(end.id)->conn.peer);
    for (unsigned i = 0; i < 1 + OFFERS; i++) {
        const struct soft_peer *asked = soft_cm_id_of(end.id)->conn.peer;
        void *ring = mmap(NULL, SOFT_RING_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(ring != MAP_FAILED);
        peers[i].pid = i == 0 ? asked->pid : (pid_t)(100000 + i);
        peers[i].uid = peers[i].told_uid = i == 0 ? asked->uid : geteuid() + 1;
        atomic_init(&peers[i].refs, 1000);
        const struct soft_pending_ring offer = {
            .ring = ring, .peer = soft_peer_hold(&peers[i]), .qpn = i};
        must(soft_pending_ring_keep(qp, &offer));
    }
    const struct soft_pending_ring *one;
    unsigned count = 0, of_peer = 0;
    cds_list_for_each_entry(one, &qp->pending_rings, link) {
        count++;
        of_peer += one->peer == &peers[0];
    }
    soft_pending_ring_drop_all(qp);
    soft_unlock();
    assert_int_equal(count, OFFERS);
    assert_int_equal(of_peer, 1);
    free_end(&end);
    must(soft_destroy_id(listening) == 0);
    soft_destroy_event_channel(channel);
}

int main(void) {
    own_namespace = network_separate();
    softcm_start();
    return tests_run(NULL, NULL);
}
