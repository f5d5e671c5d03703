/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* softcm_tcp.c - see softcm_tcp.h. */
#include "support/softcm_tcp.h"

#include <netinet/tcp.h>

int softcm_tcp_setup(void **state) {
    softcm_setup(state);
    setenv("SLUICE_SOFT_NET", "require", 1);
    return 0;
}

/* ---- ends ---------------------------------------------------------------------------------------------------- */

void softcm_tcp_open(struct sv_end *e) {
    sv_open(e, SV_OPTIONS(.recvs = 8, .sends = 8));
}

static void move_to(struct rdma_cm_id *id, struct sv_end *e, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    int mask;
    assert_int_equal(soft_init_qp_attr(id, &attr, &mask), 0);
    assert_int_equal(soft_modify_qp(e->qp, &attr, mask), 0);
}

void softcm_tcp_move(struct rdma_cm_id *id, struct sv_end *e) {
    move_to(id, e, IBV_QPS_INIT);
    for (uint64_t i = 0; i < TCP_RECEIVES; i++)
        assert_int_equal(sv_recv(e, i, i * 64, 64), 0);
    move_to(id, e, IBV_QPS_RTR);
    move_to(id, e, IBV_QPS_RTS);
}

void softcm_tcp_request(struct softcm_tcp_pair *p) {
    ct_pair_listen(&p->cm);
    softcm_tcp_open(&p->active);
    softcm_tcp_open(&p->passive);
    p->cm.active = ct_id(p->cm.active_channel);
    ct_resolve(p->cm.active, p->cm.port);
    struct rdma_conn_param param = ct_param("ask", 3);
    assert_int_equal(soft_connect(p->cm.active, &param), 0);
    p->cm.passive = ct_request(p->cm.passive_channel);
}

void softcm_tcp_accept(struct softcm_tcp_pair *p) {
    softcm_tcp_move(p->cm.passive, &p->passive);
    struct rdma_conn_param param = ct_param("yes", 3);
    param.qp_num = p->passive.qp->qp_num;
    assert_int_equal(soft_accept(p->cm.passive, &param), 0);
}

void softcm_tcp_up(struct softcm_tcp_pair *p) {
    softcm_tcp_request(p);
    softcm_tcp_accept(p);
    assert_int_equal(ct_take(p->cm.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    softcm_tcp_move(p->cm.active, &p->active);
    assert_int_equal(soft_establish(p->cm.active), 0);
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

void softcm_tcp_free(struct softcm_tcp_pair *p) {
    ct_pair_free(&p->cm);
    sv_close(&p->active);
    sv_close(&p->passive);
}

void softcm_tcp_message(struct sv_end *from, struct sv_end *to) {
    static unsigned seed;
    seed++;
    sv_fill(from->buf + 4096, 40, seed);
    assert_int_equal(sv_send(from, 9, 4096, 40, IBV_SEND_SIGNALED), 0);
    struct ibv_wc wc = sv_poll(to->rcq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    assert_int_equal(wc.byte_len, 40);
    sv_check(to->buf + wc.wr_id * 64, 40, seed);
    wc = sv_poll(from->scq);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* ---- plain sockets ------------------------------------------------------------------------------------------- */

static int made(void) {
    struct timeval patience = {.tv_sec = 20};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), 0);
    return fd;
}

int plain_dial_from(const char *from, uint16_t port) {
    struct sockaddr_in own = softcm_in(from, 0), addr = softcm_in("127.0.0.1", port);
    int fd = made();
    assert_int_equal(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    return fd;
}

int plain_dial(uint16_t port) {
    return plain_dial_from("127.0.0.1", port);
}

int plain_listen(uint16_t *port) {
    struct sockaddr_in addr = softcm_in("127.0.0.1", *port);
    socklen_t bytes = sizeof addr;
    int fd = made();
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &bytes), 0);
    *port = ntohs(addr.sin_port);
    return fd;
}

int plain_accept(int listener) {
    struct timeval patience = {.tv_sec = 20};
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    return fd;
}

void plain_send(int fd, const void *data, size_t bytes, size_t piece) {
    const uint8_t *at = data;
    while (bytes > 0) {
        size_t n = piece && piece < bytes ? piece : bytes;
        assert_int_equal(send(fd, at, n, MSG_NOSIGNAL), n);
        at += n;
        bytes -= n;
    }
}

size_t plain_receive(int fd, void *data, size_t bytes, int *error) {
    size_t have = 0;
    *error = 0;
    while (have < bytes) {
        ssize_t n = recv(fd, (uint8_t *)data + have, bytes - have, 0);
        if (n <= 0) {
            *error = n < 0 ? errno : 0;
            break;
        }
        have += (size_t)n;
    }
    return have;
}

void plain_expect_end(int fd) {
    uint8_t byte;
    int error;
    assert_int_equal(plain_receive(fd, &byte, 1, &error), 0);
    if (error != 0)
        assert_int_equal(error, ECONNRESET);
}

size_t plain_request(uint8_t out[IWARP_HANDSHAKE_MAX], bool peer_to_peer) {
    struct iwarp_offer own = {.crc = true, .peer_to_peer = peer_to_peer, .ird = 4, .ord = 4};
    struct iwarp_handshake request = iwarp_handshake_request(&own, "hand", 4);
    return iwarp_handshake_put(out, &request);
}

struct iwarp_handshake plain_handshake(int fd, bool reply, struct iwarp_handshake_parser *p) {
    struct iwarp_handshake handshake;
    enum iwarp_parsed parsed = IWARP_PARSED_MORE;
    iwarp_handshake_expect(p, reply);
    while (parsed == IWARP_PARSED_MORE) {
        uint8_t bytes[IWARP_HANDSHAKE_MAX];
        size_t taken, wants = iwarp_handshake_wants(p);
        int error;
        assert_true(wants <= sizeof bytes);
        assert_int_equal(plain_receive(fd, bytes, wants, &error), wants);
        parsed = iwarp_handshake_take(p, bytes, wants, &taken, &handshake);
    }
    assert_int_equal(parsed, IWARP_PARSED_DONE);
    return handshake;
}
