/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* softcm.c - see softcm.h. */
#include "support/softcm.h"

void softcm_start(void) {
    setenv("SLUICE_SOFT_CM_TIMEOUT_MS", "600", 1);
    setenv("SLUICE_SOFT_CM_TRIES", "6", 1);
    setenv("SLUICE_SOFT_CM_WAIT_MS", "1500", 1);
    setenv("SLUICE_SOFT_TIMEWAIT_MS", "40", 1);
    setenv("SLUICE_SOFT_NET", "off", 0); /* the network of the machine has no part in it */
}

int softcm_setup(void **state) {
    (void)state;
    softcm_start();
    return 0;
}

bool softcm_readable(struct rdma_event_channel *channel, int ms) {
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    int ready;
    do
        ready = poll(&fd, 1, ms);
    while (ready < 0 && errno == EINTR);
    return ready == 1 && (fd.revents & POLLIN);
}

struct rdma_cm_event *softcm_expect(struct rdma_event_channel *channel, int type) {
    struct rdma_cm_event *event;
    if (!softcm_readable(channel, SOFTCM_WAIT_MS))
        fail_msg("no event, %s expected", soft_event_str((enum rdma_cm_event_type)type));
    assert_int_equal(soft_get_cm_event(channel, &event), 0);
    if ((int)event->event != type)
        fail_msg("%s (%d) instead of %s", soft_event_str(event->event), event->status,
                 soft_event_str((enum rdma_cm_event_type)type));
    return event;
}

int softcm_take(struct rdma_event_channel *channel, int type) {
    struct rdma_cm_event *event = softcm_expect(channel, type);
    int status = event->status;
    assert_int_equal(soft_ack_cm_event(event), 0);
    return status;
}

struct sockaddr_in softcm_in(const char *text, uint16_t port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    assert_int_equal(inet_pton(AF_INET, text, &addr.sin_addr), 1);
    return addr;
}

struct sockaddr_in6 softcm_in6(const char *text, uint16_t port) {
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    assert_int_equal(inet_pton(AF_INET6, text, &addr.sin6_addr), 1);
    return addr;
}

struct rdma_cm_id *softcm_id(struct rdma_event_channel *channel) {
    struct rdma_cm_id *id;
    assert_int_equal(soft_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    return id;
}

struct rdma_cm_id *softcm_ud_id(struct rdma_event_channel *channel) {
    struct rdma_cm_id *id;
    assert_int_equal(soft_create_id(channel, &id, NULL, RDMA_PS_UDP), 0);
    return id;
}

uint16_t softcm_listen(struct rdma_cm_id *id, int backlog) {
    struct sockaddr_in addr = softcm_in("127.0.0.1", 0);
    assert_int_equal(soft_bind_addr(id, (struct sockaddr *)&addr), 0);
    assert_int_equal(soft_listen(id, backlog), 0);
    return ntohs(soft_get_src_port(id));
}

void softcm_resolve(struct rdma_cm_id *id, uint16_t port) {
    struct sockaddr_in dst = softcm_in("127.0.0.1", port);
    assert_int_equal(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), 0);
    assert_int_equal(softcm_take(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    assert_int_equal(soft_resolve_route(id, 1000), 0);
    assert_int_equal(softcm_take(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
}

struct rdma_conn_param softcm_param(const void *data, uint8_t len) {
    return (struct rdma_conn_param){.private_data = data,
                                    .private_data_len = len,
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7,
                                    .qp_num = SOFTCM_QPN};
}

struct rdma_cm_id *softcm_connect(struct rdma_event_channel *channel, uint16_t port) {
    struct rdma_cm_id *id = softcm_id(channel);
    softcm_resolve(id, port);
    struct rdma_conn_param param = softcm_param(NULL, 0);
    assert_int_equal(soft_connect(id, &param), 0);
    return id;
}

struct rdma_cm_id *softcm_request(struct rdma_event_channel *channel) {
    struct rdma_cm_event *event = softcm_expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *id = event->id;
    assert_int_equal(soft_ack_cm_event(event), 0);
    return id;
}

void softcm_pair_listen(struct softcm_pair *pair) {
    memset(pair, 0, sizeof *pair);
    pair->passive_channel = soft_create_event_channel();
    pair->active_channel = soft_create_event_channel();
    assert_non_null(pair->passive_channel);
    assert_non_null(pair->active_channel);
    pair->listener = softcm_id(pair->passive_channel);
    pair->port = softcm_listen(pair->listener, 16);
}

void softcm_pair_request(struct softcm_pair *pair) {
    softcm_pair_listen(pair);
    pair->active = softcm_connect(pair->active_channel, pair->port);
    pair->passive = softcm_request(pair->passive_channel);
}

void softcm_pair_accept(struct softcm_pair *pair) {
    struct rdma_conn_param param = softcm_param(NULL, 0);
    assert_int_equal(soft_accept(pair->passive, &param), 0);
}

void softcm_pair_up(struct softcm_pair *pair) {
    softcm_pair_request(pair);
    softcm_pair_accept(pair);
    assert_int_equal(softcm_take(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    assert_int_equal(soft_establish(pair->active), 0);
    assert_int_equal(softcm_take(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

void softcm_pair_free(struct softcm_pair *pair) {
    if (pair->active)
        assert_int_equal(soft_destroy_id(pair->active), 0);
    if (pair->passive)
        assert_int_equal(soft_destroy_id(pair->passive), 0);
    if (pair->listener)
        assert_int_equal(soft_destroy_id(pair->listener), 0);
    soft_destroy_event_channel(pair->active_channel);
    soft_destroy_event_channel(pair->passive_channel);
}

static void *softcm_blocked_main(void *arg) {
    struct softcm_blocked *blocked = arg;
    blocked->result = blocked->call(blocked->arg);
    atomic_store(&blocked->done, true);
    return NULL;
}

void softcm_block(struct softcm_blocked *blocked, int (*call)(void *), void *arg) {
    memset(blocked, 0, sizeof *blocked);
    blocked->call = call;
    blocked->arg = arg;
    assert_int_equal(pthread_create(&blocked->thread, NULL, softcm_blocked_main, blocked), 0);
}

int softcm_join(struct softcm_blocked *blocked) {
    pthread_join(blocked->thread, NULL);
    return blocked->result;
}

int softcm_destroy_call(void *id) {
    return soft_destroy_id(id);
}

enum soft_cm_state softcm_state(struct rdma_cm_id *id) {
    soft_lock();
    enum soft_cm_state state = soft_cm_id_of(id)->state;
    soft_unlock();
    return state;
}

enum soft_cm_conn_state softcm_conn_state(struct rdma_cm_id *id) {
    soft_lock();
    enum soft_cm_conn_state state = soft_cm_id_of(id)->conn.state;
    soft_unlock();
    return state;
}

void softcm_assert_padded(const struct rdma_conn_param *conn, const char *data, size_t len,
                          size_t total) {
    static const uint8_t zero[256];
    assert_int_equal(conn->private_data_len, total);
    assert_non_null(conn->private_data);
    assert_memory_equal(conn->private_data, data, len);
    assert_memory_equal((const uint8_t *)conn->private_data + len, zero, total - len);
}
