/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_hostile_test.c - a peer that sends whatever it likes: nothing it says may touch an id that
 * is not connected with it, crash this process, or fill its memory.
 *
 * The peer is this process, connected to itself by name: what it sends arrives as from outside.
 */
#include "support/softcm.h"

#include "soft/cm/port_name.h"
#include "soft/cm/wire.h"
#include "soft/ipc/peer_queue.h"

static uint64_t seed = 0x9e3779b97f4a7c15u;

static uint64_t random64(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* A way into this process: its own peer, as any other process would get it. */
static struct soft_peer *way_in(struct ct_pair *pair) {
    struct soft_cm_port_name name = {.ps = RDMA_PS_TCP, .port = pair->port, .afonly = true};
    struct sockaddr_in addr = softcm_in("127.0.0.1", 0);
    memcpy(&name.addr, &addr, sizeof addr);
    char text[SOFT_CM_NAME_BYTES];
    soft_cm_port_name_format(&name, 0, text);
    struct soft_peer *peer = NULL;
    soft_lock();
    int error = soft_peer_by_name(text, &peer);
    soft_unlock();
    assert_int_equal(error, 0);
    return peer;
}

/* False: it was too fast for the other end and is cut off. */
static bool try_raw(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes) {
    soft_lock();
    int error = soft_peer_send(peer, type, data, bytes, -1);
    soft_unlock();
    return error == 0;
}

static void send_raw(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes) {
    assert_true(try_raw(peer, type, data, bytes));
}

static void release(struct soft_peer *peer) {
    soft_lock();
    soft_peer_release(peer);
    soft_unlock();
}

/* Who was cut off comes back. */
static void send_again(struct ct_pair *pair, struct soft_peer **peer, uint32_t type,
                       const void *data, size_t bytes) {
    while (!try_raw(*peer, type, data, bytes)) {
        release(*peer);
        *peer = way_in(pair);
    }
}

static struct soft_cm_wire_req good_req(struct ct_pair *pair, uint64_t from) {
    struct soft_cm_wire_req req = {.head.from = from, .ps = RDMA_PS_TCP, .qp_num = 1};
    struct sockaddr_in src = softcm_in("127.0.0.1", 1), dst = softcm_in("127.0.0.1", pair->port);
    soft_cm_wire_addr_set(&req.src, (struct sockaddr *)&src);
    soft_cm_wire_addr_set(&req.dst, (struct sockaddr *)&dst);
    return req;
}

/*
 * Fetches and destroys what the listener was told. True: the barrier's request was among it. Other
 * events are counted.
 */
static bool drain(struct rdma_event_channel *channel, int *others) {
    bool seen = false;
    while (ct_readable(channel, 0)) {
        struct rdma_cm_event *event;
        assert_int_equal(soft_get_cm_event(channel, &event), 0);
        struct rdma_cm_id *id = NULL;
        bool ours = false;
        if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
            id = event->id;
            ours = !memcmp(event->param.conn.private_data, "barrier", 8);
        }
        seen |= ours;
        *others += !ours;
        soft_ack_cm_event(event);
        if (id)
            soft_destroy_id(id);
    }
    return seen;
}

/*
 * Everything sent before it has been looked at once its request is there. It is sent again, because
 * the backlog may be full of what came before. Returns how many other events there were.
 */
static int barrier(struct ct_pair *pair, struct soft_peer **peer) {
    int others = 0;
    struct soft_cm_wire_req req = good_req(pair, random64() | 1);
    memcpy(req.data, "barrier", 8);
    do {
        req.head.from += 2;
        send_again(pair, peer, SOFT_CM_WIRE_REQ, &req, sizeof req);
        ct_readable(pair->passive_channel, 100);
    } while (!drain(pair->passive_channel, &others));
    return others;
}

CT_WITH(ct_listening, wrong_sizes_and_types_are_ignored) {
    struct ct_pair *pair = *state;
    struct soft_peer *peer = way_in(pair);
    uint8_t bytes[SOFT_MSG_BYTES_MAX] = {0};
    struct soft_cm_wire_req req = good_req(pair, 77);
    memcpy(bytes, &req, sizeof req);
    for (uint32_t type = SOFT_MSG_CM_FIRST; type <= SOFT_MSG_CM_LAST; type++)
        for (size_t len = 0; len <= 300; len += 13)
            send_raw(peer, type, bytes, len);
    send_raw(peer, SOFT_CM_WIRE_REQ, bytes, sizeof req - 1);
    send_raw(peer, SOFT_CM_WIRE_REQ, bytes, sizeof req + 1);
    struct soft_cm_wire_req bad = req;
    bad.src.family = 9;
    send_raw(peer, SOFT_CM_WIRE_REQ, &bad, sizeof bad);
    bad = req;
    bad.dst.family = 6;
    send_raw(peer, SOFT_CM_WIRE_REQ, &bad, sizeof bad);
    bad = req;
    bad.qp_num = 1u << 24;
    send_raw(peer, SOFT_CM_WIRE_REQ, &bad, sizeof bad);
    bad = req;
    bad.psn = UINT32_MAX;
    send_raw(peer, SOFT_CM_WIRE_REQ, &bad, sizeof bad);
    bad = req;
    bad.retry_count = 8;
    send_raw(peer, SOFT_CM_WIRE_REQ, &bad, sizeof bad);
    bad = req;
    bad.head.from = 0;
    send_raw(peer, SOFT_CM_WIRE_REQ, &bad, sizeof bad);
    assert_int_equal(barrier(pair, &peer), 0);
    release(peer);
}

/* Real numbers of real ids, from somebody they are not connected with. */
CT_WITH(ct_connected, foreign_messages_do_not_touch_a_connection) {
    struct ct_pair *pair = *state;
    struct soft_peer *peer = way_in(pair);
    struct soft_cm_id *ends[2] = {soft_cm_id_of(pair->active), soft_cm_id_of(pair->passive)};
    for (int i = 0; i < 2; i++) {
        union soft_cm_wire_any msg;
        memset(&msg, 0, sizeof msg);
        msg.head.to = ends[i]->number;
        /*
         * What we send arrives at the other end of our peer. For the id connected through our own end
         * that is somebody else, even with the right number; for the other one the number is wrong.
         */
        soft_lock();
        bool elsewhere = ends[i]->conn.peer == peer;
        soft_unlock();
        msg.head.from = ends[1 - i]->number + !elsewhere;
        msg.rej.reason = 28;
        send_raw(peer, SOFT_CM_WIRE_DREQ, &msg, sizeof msg.head);
        send_raw(peer, SOFT_CM_WIRE_DREP, &msg, sizeof msg.head);
        send_raw(peer, SOFT_CM_WIRE_REJ, &msg, sizeof msg.rej);
        send_raw(peer, SOFT_CM_WIRE_REP, &msg, sizeof msg.rep);
        send_raw(peer, SOFT_CM_WIRE_RTU, &msg, sizeof msg.head);
        send_raw(peer, SOFT_CM_WIRE_MRA, &msg, sizeof msg.head);
        msg.head.to += 1ull << 32; /* a former or future user of the place */
        msg.head.from = ends[1 - i]->number;
        send_raw(peer, SOFT_CM_WIRE_DREQ, &msg, sizeof msg.head);
        msg.head.to = 0;
        send_raw(peer, SOFT_CM_WIRE_DREQ, &msg, sizeof msg.head);
    }
    assert_int_equal(barrier(pair, &peer), 0);
    assert_false(ct_readable(pair->active_channel, 0));
    assert_int_equal(softcm_conn_state(pair->active), SOFT_CM_CONN_UP);
    assert_int_equal(softcm_conn_state(pair->passive), SOFT_CM_CONN_UP);
    release(peer);
}

CT_WITH(ct_listening, stale_numbers_find_nothing) {
    struct ct_pair *pair = *state;
    struct rdma_cm_id *id = ct_id(pair->active_channel);
    uint64_t number = soft_cm_id_of(id)->number;
    soft_destroy_id(id);
    id = ct_id(pair->active_channel); /* the same place in the table */
    assert_int_equal((uint32_t)soft_cm_id_of(id)->number, (uint32_t)number);
    soft_lock();
    assert_null(soft_cm_id_find(number));
    assert_null(soft_cm_id_find(0));
    assert_null(soft_cm_id_find(UINT64_MAX));
    assert_ptr_equal(soft_cm_id_find(soft_cm_id_of(id)->number), soft_cm_id_of(id));
    soft_unlock();
    soft_destroy_id(id);
}

TEST(flood_of_requests_is_bounded_by_the_backlog) {
    struct ct_pair pair;
    ct_pair_listen(&pair); /* backlog 16 */
    struct soft_peer *peer = way_in(&pair);
    for (uint64_t i = 1; i <= 400; i++) {
        struct soft_cm_wire_req req = good_req(&pair, i);
        send_raw(peer, SOFT_CM_WIRE_REQ, &req, sizeof req);
    }
    struct rdma_cm_id *other = ct_id(pair.active_channel);
    uint16_t port = ct_listen(other, 1);
    struct soft_cm_wire_req last = good_req(&pair, 1000);
    last.dst.port = port;
    send_raw(peer, SOFT_CM_WIRE_REQ, &last, sizeof last);
    pair.passive = ct_request(pair.active_channel); /* in order: the others have been seen */
    for (int i = 0; i < 16; i++)
        soft_destroy_id(ct_request(pair.passive_channel));
    assert_false(ct_readable(pair.passive_channel, 0));
    release(peer);
    soft_destroy_id(other);
    ct_pair_free(&pair);
}

static size_t random_message(struct ct_pair *pair, uint32_t kind, uint64_t *words) {
    static const size_t sizes[] = {
        sizeof(struct soft_cm_wire_req),     sizeof(struct soft_cm_wire_head),
        sizeof(struct soft_cm_wire_rep),     sizeof(struct soft_cm_wire_head),
        sizeof(struct soft_cm_wire_rej),     sizeof(struct soft_cm_wire_head),
        sizeof(struct soft_cm_wire_head),    sizeof(struct soft_cm_wire_sidr_req),
        sizeof(struct soft_cm_wire_sidr_rep)};
    for (size_t k = 0; k < sizes[kind] / 8; k++)
        words[k] = random64() & (random64() % 3 ? UINT64_MAX : 0xff);
    if (kind == 0 && random64() % 2) { /* a request that reaches the listener */
        struct soft_cm_wire_req req = good_req(pair, random64());
        memcpy(words, &req, sizeof req);
    }
    if (random64() % 2) { /* numbers that may well exist */
        words[0] = (random64() % 4) << 32 | random64() % 8;
        words[1] = (random64() % 4) << 32 | random64() % 8;
    }
    return sizes[kind];
}

CT_WITH(ct_connected, random_messages) {
    struct ct_pair *pair = *state;
    struct soft_peer *peer = way_in(pair);
    int others = 0;
    for (int i = 0; i < 20000; i++) {
        uint64_t words[SOFT_MSG_BYTES_MAX / 8];
        uint32_t kind = (uint32_t)(random64() % 9);
        size_t bytes = random_message(pair, kind, words);
        send_again(pair, &peer, SOFT_MSG_CM_FIRST + kind, words, bytes);
        if (i % 64 == 0)
            drain(pair->passive_channel, &others);
    }
    barrier(pair, &peer);
    release(peer);
    /* Everything works as before. */
    drain(pair->active_channel, &others);
    soft_destroy_id(pair->listener);
    pair->listener = ct_id(pair->active_channel);
    pair->port = ct_listen(pair->listener, 4);
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id = ct_connect(channel, pair->port), *request = NULL;
    while (!request) {
        assert_true(ct_readable(pair->active_channel, SOFTCM_WAIT_MS));
        struct rdma_cm_event *event;
        assert_int_equal(soft_get_cm_event(pair->active_channel, &event), 0);
        if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
            request = event->id;
        soft_ack_cm_event(event);
    }
    assert_int_equal(soft_reject(request, NULL, 0), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_REJECTED), 28);
    soft_destroy_id(request);
    soft_destroy_id(id);
    soft_destroy_event_channel(channel);
}

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
