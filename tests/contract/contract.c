/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * contract.c - what the programs of the suite share: start, threads, events, ids in a known state.
 * Every wait is bounded; a call that hangs is ended by the watchdog, which names the program's limit.
 */
#include "contract/contract.h"

#include <signal.h>
#include <time.h>

/* ---- a program ------------------------------------------------------------------------------------- */

static void watchdog(int number) {
    static const char text[] = "contract: a call has not come back within the program's limit\n";
    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(124);
}

void ct_start(void) {
    facts_choose();
    facts_tell();
    setenv("SLUICE_SOFT_CM_TIMEOUT_MS", "600", 1);
    setenv("SLUICE_SOFT_CM_TRIES", "6", 1);
    setenv("SLUICE_SOFT_CM_WAIT_MS", "1500", 1);
    setenv("SLUICE_SOFT_TIMEWAIT_MS", "40", 1);
    setenv("SLUICE_SOFT_MPA_MS", "1500", 1);
    unsetenv("SLUICE_SOFT_FAULTS");
    signal(SIGALRM, watchdog);
    alarm(facts.limit_s);
    int devices = 0;
    struct ibv_device **list = ibv_get_device_list(&devices);
    if (!list || !devices) {
        print_message("no RDMA device: nothing to test\n");
        exit(77);
    }
    ibv_free_device_list(list);
}

uint64_t ct_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void ct_pause(void) {
    struct timespec pause = {.tv_nsec = 20000};
    nanosleep(&pause, NULL);
}

void ct_fail(struct ct_where at, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    print_error("%s\n", text);
    _fail(at.file, at.line);
}

static void *thread_main(void *arg) {
    struct ct_thread *thread = arg;
    thread->result = thread->call(thread->arg);
    thread->error = errno;
    atomic_store(&thread->done, true);
    return NULL;
}

void ct_thread_start(struct ct_thread *thread, int (*call)(void *), void *arg) {
    memset(thread, 0, sizeof *thread);
    thread->call = call;
    thread->arg = arg;
    assert_int_equal(pthread_create(&thread->thread, NULL, thread_main, thread), 0);
}

int ct_thread_join(struct ct_thread *thread) {
    pthread_join(thread->thread, NULL);
    errno = thread->error;
    return thread->result;
}

bool ct_thread_stays(struct ct_thread *thread) {
    uint64_t end = ct_now_ms() + (uint64_t)facts.silence_ms;
    while (!atomic_load(&thread->done) && ct_now_ms() < end)
        poll(NULL, 0, 1);
    return !atomic_load(&thread->done);
}

/* ---- addresses -------------------------------------------------------------------------------------- */

/* The guest of the kernel tests names its addresses in variables of its own. */
static struct sockaddr_in address_of(const char *variable, const char *guests, const char *fallback,
                                     uint16_t port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    const char *text = getenv(variable) ? getenv(variable) : getenv(guests);
    assert_int_equal(inet_pton(AF_INET, text ? text : fallback, &addr.sin_addr), 1);
    return addr;
}

struct sockaddr_in ct_address(uint16_t port) {
    return address_of("CONTRACT_ADDRESS", "SLUICE_TEST_HOST", "127.0.0.1", port);
}

struct sockaddr_in ct_other_address(uint16_t port) {
    return address_of("CONTRACT_OTHER_ADDRESS", "SLUICE_TEST_HOST_2", "127.0.0.2", port);
}

struct sockaddr_in ct_any(uint16_t port) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
}

/* ---- events ---------------------------------------------------------------------------------------- */

struct rdma_event_channel *ct_channel(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    assert_non_null(channel);
    return channel;
}

bool ct_readable(struct rdma_event_channel *channel, int ms) {
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    int ready;
    do
        ready = poll(&fd, 1, ms);
    while (ready < 0 && errno == EINTR);
    return ready == 1 && (fd.revents & POLLIN);
}

struct rdma_cm_event *ct_expect_at(struct rdma_event_channel *channel, int type,
                                   struct ct_where at) {
    struct rdma_cm_event *event;
    if (!ct_readable(channel, facts.wait_ms))
        ct_fail(at, "no event, %s expected", rdma_event_str((enum rdma_cm_event_type)type));
    assert_int_equal(rdma_get_cm_event(channel, &event), 0);
    if ((int)event->event != type)
        ct_fail(at, "%s (%d) instead of %s", rdma_event_str(event->event), event->status,
                rdma_event_str((enum rdma_cm_event_type)type));
    return event;
}

int ct_take_at(struct rdma_event_channel *channel, int type, struct ct_where at) {
    struct rdma_cm_event *event = ct_expect_at(channel, type, at);
    int status = event->status;
    assert_int_equal(rdma_ack_cm_event(event), 0);
    return status;
}

void ct_silent_at(struct rdma_event_channel *channel, struct ct_where at) {
    struct rdma_cm_event *event;
    if (!ct_readable(channel, facts.silence_ms))
        return;
    assert_int_equal(rdma_get_cm_event(channel, &event), 0);
    ct_fail(at, "%s (%d), nothing expected", rdma_event_str(event->event), event->status);
}

/* ---- ids -------------------------------------------------------------------------------------------- */

struct rdma_cm_id *ct_id(struct rdma_event_channel *channel) {
    struct rdma_cm_id *id = NULL;
    assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_non_null(id);
    return id;
}

struct rdma_cm_id *ct_ud_id(struct rdma_event_channel *channel) {
    struct rdma_cm_id *id = NULL;
    assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), 0);
    assert_non_null(id);
    return id;
}

void ct_bind(struct rdma_cm_id *id, uint16_t port) {
    struct sockaddr_in addr = ct_address(port);
    assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&addr), 0);
}

uint16_t ct_listen(struct rdma_cm_id *id, int backlog) {
    ct_bind(id, 0);
    assert_int_equal(rdma_listen(id, backlog), 0);
    return ntohs(rdma_get_src_port(id));
}

void ct_resolve_addr(struct rdma_cm_id *id, uint16_t port) {
    struct sockaddr_in dst = ct_address(port);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&dst, 2000), 0);
    assert_int_equal(ct_take(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
}

void ct_resolve(struct rdma_cm_id *id, uint16_t port) {
    ct_resolve_addr(id, port);
    assert_int_equal(rdma_resolve_route(id, 2000), 0);
    assert_int_equal(ct_take(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
}

void ct_destroy(struct rdma_cm_id *id) {
    if (id->qp)
        rdma_destroy_qp(id);
    assert_int_equal(rdma_destroy_id(id), 0);
}

static uint32_t next_qp_num(void) {
    static uint32_t next;
    if (!next) /* apart from programs that ran just before */
        next = (uint32_t)getpid() * 4096u + (uint32_t)ct_now_ms();
    return (next++ & 0x7fffff) | 0x800000; /* above every real QP of these devices */
}

struct rdma_conn_param ct_param(const void *data, uint8_t len) {
    return (struct rdma_conn_param){.private_data = data,
                                    .private_data_len = len,
                                    .responder_resources = 1,
                                    .initiator_depth = 1,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7,
                                    .qp_num = next_qp_num()};
}

struct ibv_qp *ct_qp(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1};
    if (rdma_create_qp(id, NULL, &attr) != 0)
        fail_msg("no queue pair: %s", strerror(errno));
    assert_non_null(id->qp);
    return id->qp;
}

void ct_qp_for_device(struct rdma_cm_id *id) {
    if (facts.device_connects && !id->qp)
        ct_qp(id);
}

struct rdma_cm_id *ct_connect(struct rdma_event_channel *channel, uint16_t port) {
    struct rdma_cm_id *id = ct_id(channel);
    ct_resolve(id, port);
    ct_qp_for_device(id);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_int_equal(rdma_connect(id, &param), 0);
    return id;
}

struct rdma_cm_id *ct_request(struct rdma_event_channel *channel) {
    struct rdma_cm_event *event = ct_expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *id = event->id;
    assert_int_equal(rdma_ack_cm_event(event), 0);
    return id;
}

enum ibv_qp_state ct_state(struct ibv_qp *qp) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

void ct_assert_padded(const struct rdma_conn_param *conn, const char *data, size_t len,
                      size_t total) {
    static const uint8_t zero[256];
    assert_int_equal(conn->private_data_len, total);
    assert_non_null(conn->private_data);
    assert_memory_equal(conn->private_data, data, len);
    assert_memory_equal((const uint8_t *)conn->private_data + len, zero, total - len);
}

/* ---- both ends ---------------------------------------------------------------------------------------- */

void ct_pair_listen(struct ct_pair *pair) {
    memset(pair, 0, sizeof *pair);
    pair->passive_channel = ct_channel();
    pair->active_channel = ct_channel();
    pair->listener = ct_id(pair->passive_channel);
    pair->port = ct_listen(pair->listener, 16);
}

void ct_pair_resolve(struct ct_pair *pair) {
    ct_pair_listen(pair);
    pair->active = ct_id(pair->active_channel);
    ct_resolve(pair->active, pair->port);
}

void ct_pair_request(struct ct_pair *pair) {
    ct_pair_listen(pair);
    pair->active = ct_connect(pair->active_channel, pair->port);
    pair->passive = ct_request(pair->passive_channel);
}

void ct_pair_accept(struct ct_pair *pair) {
    struct rdma_conn_param param = ct_param(NULL, 0);
    ct_qp_for_device(pair->passive);
    assert_int_equal(rdma_accept(pair->passive, &param), 0);
}

void ct_confirm(struct rdma_cm_id *active, struct rdma_event_channel *passive_channel) {
    if (facts.device_connects) {
        assert_int_equal(ct_take(active->channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    } else {
        assert_int_equal(ct_take(active->channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
        assert_int_equal(rdma_establish(active), 0);
    }
    assert_int_equal(ct_take(passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

void ct_pair_up(struct ct_pair *pair) {
    ct_pair_request(pair);
    ct_pair_accept(pair);
    ct_confirm(pair->active, pair->passive_channel);
}

void ct_pair_up_qp(struct ct_pair *pair) {
    ct_pair_resolve(pair);
    ct_qp(pair->active);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_int_equal(rdma_connect(pair->active, &param), 0);
    pair->passive = ct_request(pair->passive_channel);
    ct_qp(pair->passive);
    assert_int_equal(rdma_accept(pair->passive, &param), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

void ct_pair_free(struct ct_pair *pair) {
    if (pair->active)
        ct_destroy(pair->active);
    if (pair->passive)
        ct_destroy(pair->passive);
    if (pair->listener)
        ct_destroy(pair->listener);
    rdma_destroy_event_channel(pair->active_channel);
    rdma_destroy_event_channel(pair->passive_channel);
}

/* ---- as the set-up of a test ------------------------------------------------------------------------- */

static struct ct_pair pair_of_test;

int ct_listening(void **state) {
    *state = &pair_of_test;
    ct_pair_listen(*state);
    return 0;
}

int ct_resolved(void **state) {
    *state = &pair_of_test;
    ct_pair_resolve(*state);
    return 0;
}

int ct_requested(void **state) {
    *state = &pair_of_test;
    ct_pair_request(*state);
    return 0;
}

int ct_connected(void **state) {
    *state = &pair_of_test;
    ct_pair_up(*state);
    return 0;
}

int ct_connected_qps(void **state) {
    *state = &pair_of_test;
    ct_pair_up_qp(*state);
    return 0;
}

int ct_freed(void **state) {
    ct_pair_free(*state);
    return 0;
}
