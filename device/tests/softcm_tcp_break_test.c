/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_tcp_break_test.c - rdma_cm over TCP when something breaks: descriptors or ports are used up, the peer resets, ends half
 * way, or a byte changes on the way. Each has its true reason, and nothing is left behind.
 */
#include "support/softcm_tcp.h"

#include <sys/resource.h>

#include "soft/cm/port_range.h"
#include "soft/cm/tcp.h"
#include "soft/iwarp/ddp.h"
#include "support/iwarp.h"
#include "support/must.h"
#include "support/network.h"
#include "support/usage.h"
#include "support/skip.h"

static bool own_network;

/* ---- descriptors --------------------------------------------------------------------------------------------- */

static struct {
    struct rlimit before;
    int fd[256];
    unsigned count;
} files;

/* No more can be had. */
static void files_use_up(void) {
    struct rlimit few;
    int fd;
    must(getrlimit(RLIMIT_NOFILE, &files.before) == 0);
    few = files.before;
    few.rlim_cur = 200;
    must(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while ((fd = dup(0)) >= 0)
        files.fd[files.count++] = fd;
    must(errno == EMFILE);
}

static void files_give_back(void) {
    while (files.count > 0)
        close(files.fd[--files.count]);
    must(setrlimit(RLIMIT_NOFILE, &files.before) == 0);
}

static int resolve(struct rdma_cm_id *id, uint16_t port) {
    struct sockaddr_in to = softcm_in("127.0.0.1", port);
    return soft_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000);
}

CT_WITH(ct_listening, without_a_descriptor_to_dial_from_the_address_says_so) {
    struct ct_pair *pair = *state;
    pair->active = ct_id(pair->active_channel);
    files_use_up();
    assert_int_equal(resolve(pair->active, pair->port), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ADDR_ERROR), -EMFILE);
    files_give_back();
    assert_int_equal(resolve(pair->active, pair->port), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
}

/* Who is connected by then is heard when there is one again, and nobody looks all the time. */
CT_WITH(ct_listening, without_a_descriptor_to_accept_with_a_dialer_waits) {
    struct ct_pair *pair = *state;
    uint8_t request[IWARP_HANDSHAKE_MAX];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in addr = softcm_in("127.0.0.1", pair->port);
    files_use_up();
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    plain_send(fd, request, plain_request(request, true), 0);
    uint64_t before = usage_processor_ns();
    assert_false(ct_readable(pair->passive_channel, 200));
    assert_in_range(usage_processor_ns() - before, 0, 100000000);
    files_give_back();
    pair->passive = ct_request(pair->passive_channel);
    close(fd);
}

/* A CQ's set of sockets is made with its first. The connection is as it was, and comes about when there is one again. */
TEST(without_a_descriptor_for_its_cq_a_queue_pair_is_not_moved) {
    struct softcm_tcp_pair p;
    softcm_tcp_request(&p);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
    int mask;
    assert_int_equal(soft_init_qp_attr(p.cm.passive, &attr, &mask), 0);
    assert_int_equal(soft_modify_qp(p.passive.qp, &attr, mask), 0);
    attr.qp_state = IBV_QPS_RTR;
    assert_int_equal(soft_init_qp_attr(p.cm.passive, &attr, &mask), 0);
    files_use_up();
    assert_int_equal(soft_modify_qp(p.passive.qp, &attr, mask), EMFILE);
    files_give_back();
    assert_int_equal(sv_to(&p.passive, IBV_QPS_RESET), 0);
    softcm_tcp_accept(&p);
    assert_int_equal(ct_take(p.cm.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    softcm_tcp_move(p.cm.active, &p.active);
    assert_int_equal(soft_establish(p.cm.active), 0);
    assert_int_equal(ct_take(p.cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    softcm_tcp_message(&p.active, &p.passive);
    softcm_tcp_free(&p);
}

/* ---- ports --------------------------------------------------------------------------------------------------- */

/* TCP would connect it to itself. */
TEST(a_dial_to_its_own_port_finds_nobody) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id = ct_id(channel);
    uint16_t port = 0;
    close(plain_listen(&port)); /* one that is free */
    struct sockaddr_in own = softcm_in("127.0.0.1", port);
    assert_int_equal(soft_bind_addr(id, (struct sockaddr *)&own), 0);
    ct_resolve(id, port);
    assert_int_equal(soft_get_src_port(id), htons(port));
    struct rdma_conn_param param = ct_param("me?", 3);
    assert_int_equal(soft_connect(id, &param), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_REJECTED), SOFT_CM_REJECT_NO_LISTENER);
    assert_int_equal(soft_destroy_id(id), 0);
    soft_destroy_event_channel(channel);
}

/* ---- streams that break -------------------------------------------------------------------------------------- */

static void reset_now(int fd) {
    struct linger now = {.l_onoff = 1};
    must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now) == 0);
    close(fd);
}

/* Anywhere in its request, by a reset or by its end: nobody hears of it, and no descriptor is left. */
TEST(a_request_that_breaks_off_leaves_nothing) {
    struct ct_pair pair;
    uint8_t request[IWARP_HANDSHAKE_MAX];
    size_t bytes = plain_request(request, true);
    ct_pair_listen(&pair);
    unsigned before = usage_entries("/proc/self/fd");
    for (size_t at = 0; at < bytes; at += 3)
        for (unsigned reset = 0; reset < 2; reset++) {
            int fd = plain_dial(pair.port);
            plain_send(fd, request, at, 0);
            if (reset)
                reset_now(fd);
            else
                close(fd);
        }
    softcm_until(usage_entries("/proc/self/fd") == before);
    assert_false(ct_readable(pair.passive_channel, 0));
    ct_pair_free(&pair);
}

/* A listener that breaks off in its reply has said nothing that counts: not that its application refuses. */
TEST(a_reply_that_breaks_off_is_a_refusal_by_the_stack) {
    struct iwarp_handshake_parser parser;
    uint8_t bytes[IWARP_HANDSHAKE_MAX];
    struct iwarp_handshake reply = {.reply = true,
                                    .revision = 2,
                                    .crc = true,
                                    .enhanced = true,
                                    .data = (const uint8_t *)"yes",
                                    .bytes = 3};
    size_t whole = iwarp_handshake_put(bytes, &reply);
    unsigned left = 0; /* behind the first, what the device keeps */
    for (unsigned row = 0; row < 6; row++) {
        uint16_t port = 0;
        int listener = plain_listen(&port);
        struct rdma_event_channel *channel = soft_create_event_channel();
        struct rdma_cm_id *id = ct_connect(channel, port);
        int fd = plain_accept(listener);
        (void)plain_handshake(fd, false, &parser);
        plain_send(fd, bytes, row / 2 * (whole - 1) / 2, 0);
        if (row % 2)
            reset_now(fd);
        else
            close(fd);
        assert_int_equal(ct_take(channel, RDMA_CM_EVENT_REJECTED), SOFT_CM_REJECT_TIMEOUT);
        assert_int_equal(soft_destroy_id(id), 0);
        close(listener);
        soft_destroy_event_channel(channel);
        left = row == 0 ? usage_entries("/proc/self/fd") : left;
        assert_int_equal(usage_entries("/proc/self/fd"), left);
    }
}

/* ---- once it is up ------------------------------------------------------------------------------------------- */

struct breaks {
    bool reset;
    size_t flip; /* a byte of the frame that is another one; 0: it breaks off there */
};

static void up_with_a_plain_dialer(struct softcm_tcp_pair *p, int *fd) {
    struct iwarp_handshake_parser parser;
    struct iwarp_ddp begin = {.opcode = IWARP_WRITE, .last = true};
    uint8_t bytes[IWARP_HANDSHAKE_MAX];
    ct_pair_listen(&p->cm);
    softcm_tcp_open(&p->active);
    softcm_tcp_open(&p->passive);
    *fd = plain_dial(p->cm.port);
    plain_send(*fd, bytes, plain_request(bytes, true), 0);
    p->cm.passive = ct_request(p->cm.passive_channel);
    softcm_tcp_accept(p);
    (void)plain_handshake(*fd, true, &parser);
    plain_send(*fd, bytes, iwarp_frame(bytes, &begin, NULL, 0), 0);
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

/* Of a message nothing is delivered, its receive is flushed, and the connection has ended. */
TEST(a_message_that_breaks_ends_the_connection) {
    static const struct breaks rows[] = {{false, 0}, {true, 0}, {false, 20}, {false, 40}};
    unsigned left = 0; /* behind the first, what the device keeps */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct softcm_tcp_pair p = {0};
        struct iwarp_ddp send = {.opcode = IWARP_SEND, .last = true, .msn = 1};
        uint8_t frame[256], payload[64];
        int fd;
        up_with_a_plain_dialer(&p, &fd);
        memset(payload, 0x5a, sizeof payload);
        memset(p.passive.buf, 0, sizeof payload);
        size_t bytes = iwarp_frame(frame, &send, payload, sizeof payload);
        frame[rows[i].flip] ^= rows[i].flip != 0;
        plain_send(fd, frame, rows[i].flip ? bytes : bytes / 2, 0);
        if (rows[i].reset)
            reset_now(fd);
        else if (rows[i].flip == 0)
            shutdown(fd, SHUT_WR);
        assert_int_equal(ct_take(p.cm.passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
        for (unsigned r = 0; r < TCP_RECEIVES; r++)
            assert_int_equal(sv_poll(p.passive.rcq).status, IBV_WC_WR_FLUSH_ERR);
        if (rows[i].flip)
            assert_int_equal(p.passive.buf[0], 0); /* it was at hand as a whole */
        if (!rows[i].reset)
            close(fd);
        softcm_tcp_free(&p);
        left = i == 0 ? usage_entries("/proc/self/fd") : left;
        assert_int_equal(usage_entries("/proc/self/fd"), left);
    }
}

/* ---- no port is left ----------------------------------------------------------------------------------------- */

#define PORT_RANGE 51 /* IP_LOCAL_PORT_RANGE */
#define FIRST_PORT 40000
#define PORTS (40 * 64) /* more than are looked at one by one */

static void leave_ports(unsigned first, unsigned count) {
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
    must(file && fprintf(file, "%u %u", first, first + count - 1) > 0);
    must(fclose(file) == 0);
}

static void allow_files(void) {
    struct rlimit limit;
    must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* The other tests take none of the last one's ports. */
static int setup(void **state) {
    own_network = network_separate();
    if (own_network)
        leave_ports(FIRST_PORT + PORTS, 10000);
    return softcm_tcp_setup(state);
}

/* Also where nearly all ports are taken, as by thousands of connections that have just ended. */
CT_WITH(ct_listening, a_port_is_looked_for_among_few) {
    struct ct_pair *pair = *state;
    uint32_t range = 0;
    socklen_t bytes = sizeof range;
    pair->active = ct_id(pair->active_channel);
    assert_int_equal(resolve(pair->active, pair->port), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    int fd = soft_cm_id_of(pair->active)->conn.tcp->watch.fd;
    if (getsockopt(fd, IPPROTO_IP, PORT_RANGE, &range, &bytes) != 0)
        skip_with("needs Linux 6.3");
    assert_int_equal((range >> 16) - (range & 0xffff), 63);
    assert_in_range(ntohs(soft_get_src_port(pair->active)), range & 0xffff, range >> 16);
}

/*
 * "In use" is what TCP says; but no port was asked for that could be. The test is the last, because few ports are left
 * after it.
 */
TEST(without_a_port_to_dial_from_the_address_says_so) {
    static int taken[PORTS];
    if (!own_network)
        skip_with("needs root for a network namespace of its own");
    struct ct_pair pair;
    ct_pair_listen(&pair);
    leave_ports(FIRST_PORT, PORTS);
    soft_cm_port_range_read();
    allow_files();
    for (unsigned i = 0; i < PORTS; i++) {
        struct sockaddr_in addr = softcm_in("127.0.0.1", (uint16_t)(FIRST_PORT + i));
        taken[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(taken[i], (struct sockaddr *)&addr, sizeof addr), 0);
    }
    pair.active = ct_id(pair.active_channel);
    assert_int_equal(resolve(pair.active, pair.port), 0);
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_ADDR_ERROR), -EADDRNOTAVAIL);
    close(taken[1]);
    assert_int_equal(resolve(pair.active, pair.port), 0);
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    assert_int_equal(soft_get_src_port(pair.active), htons(FIRST_PORT + 1));
    for (unsigned i = 0; i < PORTS; i++)
        if (i != 1)
            close(taken[i]);
    ct_pair_free(&pair);
}

int main(void) {
    return tests_run(setup, NULL);
}
