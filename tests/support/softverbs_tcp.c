/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* softverbs_tcp.c - see softverbs_tcp.h. */
#include "support/softverbs_tcp.h"

#include <arpa/inet.h>

#include "soft/iwarp/handshake.h"
#include "soft/iwarp/qp_tcp.h"

void tcp_sockets(int fd[2], int buffer) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof addr;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(listener >= 0);
    if (buffer)
        must(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer) == 0);
    must(bind(listener, (struct sockaddr *)&addr, sizeof addr) == 0);
    must(listen(listener, 1) == 0);
    must(getsockname(listener, (struct sockaddr *)&addr, &bytes) == 0);
    fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (buffer)
        must(setsockopt(fd[0], SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer) == 0);
    must(connect(fd[0], (struct sockaddr *)&addr, sizeof addr) == 0);
    fd[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    must(fd[1] >= 0);
    for (unsigned i = 0; buffer && i < 2; i++)
        must(setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer) == 0);
    close(listener);
}

void tcp_connect(struct sv_end *e, int fd, const struct tcp_options *o) {
    uint8_t depth = o->depth ? o->depth : 4;
    struct iwarp_terms terms = {.crc = o->crc, .extended = o->extended, .ird = depth, .ord = depth};
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_INIT, 0);
    attr.qp_access_flags = TCP_REMOTE | (o->extended ? IBV_ACCESS_REMOTE_ATOMIC : 0);
    must(soft_modify_qp(e->qp, &attr, SV_INIT_MASK) == 0);
    soft_lock();
    int rc = soft_tcp_attach(soft_qp_of(e->qp), fd, &terms);
    soft_unlock();
    must(rc == 0);
    attr = sv_attr(e, IBV_QPS_RTR, 1);
    attr.max_dest_rd_atomic = depth;
    must(soft_modify_qp(e->qp, &attr, SV_RTR_MASK) == 0);
    attr = sv_attr(e, IBV_QPS_RTS, 0);
    attr.max_rd_atomic = depth;
    must(soft_modify_qp(e->qp, &attr, SV_RTS_MASK) == 0);
}

void tcp_open(struct tcp_pair *p, const struct tcp_options *o) {
    int fd[2];
    tcp_sockets(fd, o->buffer);
    sv_open(&p->a, o->o);
    sv_open(&p->b, o->o);
    tcp_connect(&p->a, fd[0], o);
    tcp_connect(&p->b, fd[1], o);
    int atomic = o->extended ? IBV_ACCESS_REMOTE_ATOMIC : 0;
    p->open = soft_reg_mr(p->b.pd, p->b.buf, p->b.o.bytes,
                          IBV_ACCESS_LOCAL_WRITE | TCP_REMOTE | IBV_ACCESS_MW_BIND | atomic);
    must(p->open);
}

void tcp_close(struct tcp_pair *p) {
    if (p->b.qp)
        must(soft_destroy_qp(p->b.qp) == 0);
    p->b.qp = NULL;
    must(soft_dereg_mr(p->open) == 0);
    sv_unpair(&p->a, &p->b);
}

/* Returns how many pieces it came to: of fewer bytes there are fewer. */
static unsigned cut(const struct sv_end *e, size_t offset, size_t bytes, unsigned pieces,
                    struct ibv_sge *sge) {
    for (unsigned i = 0; i < pieces; i++) {
        size_t from = bytes * i / pieces, to = bytes * (i + 1) / pieces;
        sge[i] = sv_sge(e, offset + from, to - from);
    }
    return pieces;
}

int tcp_post(struct tcp_pair *p, struct ibv_send_wr wr, size_t local, size_t bytes,
             unsigned pieces) {
    struct ibv_sge sge[4];
    struct ibv_send_wr *bad;
    wr.sg_list = sge;
    wr.num_sge = (int)cut(&p->a, local, bytes, pieces, sge);
    return ibv_post_send(p->a.qp, &wr, &bad);
}

void tcp_recv(struct tcp_pair *p, uint64_t wr_id, size_t offset, size_t bytes, unsigned pieces) {
    struct ibv_sge sge[4];
    struct ibv_recv_wr *bad, wr = {.wr_id = wr_id, .sg_list = sge};
    wr.num_sge = (int)cut(&p->b, offset, bytes, pieces, sge);
    must(ibv_post_recv(p->b.qp, &wr, &bad) == 0);
}

void tcp_expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status) {
    struct ibv_wc wc = sv_poll(cq);
    assert_int_equal(wc.wr_id, wr_id);
    assert_int_equal(wc.status, status);
}

void tcp_wait_down(struct sv_end *e) {
    sv_until(sv_state(e) == IBV_QPS_ERR);
}
