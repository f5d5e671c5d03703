/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* softverbs_tcp_peer.c - see softverbs_tcp_peer.h. */
#include "support/softverbs_tcp_peer.h"

#include <poll.h>

#include "support/iwarp.h"

void tcp_peer_open(struct tcp_peer *p, const struct tcp_options *o) {
    struct tcp_options with = *o;
    int fd[2], atomic = o->extended ? IBV_ACCESS_REMOTE_ATOMIC : 0;
    with.crc = true;
    with.o.bytes = 4 * 65536;
    tcp_sockets(fd, o->buffer);
    p->fd = fd[1];
    sv_open(&p->e, with.o);
    tcp_connect(&p->e, fd[0], &with);
    p->open = soft_reg_mr(p->e.pd, p->e.buf + TCP_PEER_TARGET, 65536,
                          IBV_ACCESS_LOCAL_WRITE | TCP_REMOTE | IBV_ACCESS_MW_BIND | atomic);
    must(p->open);
    for (unsigned i = 0; i < TCP_PEER_RECEIVES; i++)
        must(sv_recv(&p->e, i, 0, TCP_PEER_LARGE) == 0);
    sv_fill(p->payload, TCP_PEER_LARGE, 1);
}

void tcp_peer_close(struct tcp_peer *p) {
    if (p->e.qp)
        must(soft_destroy_qp(p->e.qp) == 0);
    p->e.qp = NULL;
    if (p->open)
        must(soft_dereg_mr(p->open) == 0);
    sv_close(&p->e);
    close(p->fd);
}

void tcp_peer_say(struct tcp_peer *p, const uint8_t *from, size_t bytes) {
    assert_int_equal(send(p->fd, from, bytes, MSG_NOSIGNAL), bytes);
}

struct iwarp_ddp tcp_peer_message(const struct tcp_peer *p, uint8_t opcode) {
    bool tagged = iwarp_opcode_tagged(opcode);
    struct iwarp_ddp ddp = {.opcode = opcode, .last = true};
    if (!tagged) {
        ddp.queue = iwarp_opcode_queue(opcode);
        ddp.msn = 1;
        return ddp;
    }
    ddp.stag = p->open->rkey;
    ddp.offset = (uintptr_t)p->open->addr;
    return ddp;
}

static uint8_t placed(struct tcp_peer *p, const uint8_t *at) {
    struct soft_qp *qp = soft_qp_of(p->e.qp);
    spin_lock(&qp->lock);
    uint8_t value = *at;
    spin_unlock(&qp->lock);
    return value;
}

void tcp_peer_wait_taken(struct tcp_peer *p, const uint8_t *last, uint8_t value) {
    sv_until(placed(p, last) == value);
}

size_t tcp_peer_say_most(struct tcp_peer *p, uint8_t opcode, const uint8_t *place) {
    const size_t come = TCP_PEER_LARGE - 11000;
    struct iwarp_ddp ddp = tcp_peer_message(p, opcode);
    size_t bytes = iwarp_frame(p->frame, &ddp, p->payload, TCP_PEER_LARGE);
    tcp_peer_say(p, p->frame, bytes - 10000);
    tcp_peer_wait_taken(p, place + come, sv_byte(come, 1));
    return bytes - 10000;
}

void tcp_peer_say_read(struct tcp_peer *p, uint32_t msn, uint32_t bytes) {
    tcp_peer_say_read_of(p, msn, p->open->rkey, bytes);
}

void tcp_peer_say_read_of(struct tcp_peer *p, uint32_t msn, uint32_t key, uint32_t bytes) {
    struct iwarp_read read = {
        .bytes = bytes, .source_stag = key, .source_offset = (uintptr_t)p->open->addr};
    struct iwarp_ddp ddp = tcp_peer_message(p, IWARP_READ_REQUEST);
    uint8_t request[IWARP_READ_BYTES];
    ddp.msn = msn;
    iwarp_read_put(request, &read);
    tcp_peer_say(p, p->frame, iwarp_frame(p->frame, &ddp, request, sizeof request));
}

void tcp_peer_expect_end(struct tcp_peer *p, unsigned refusal) {
    struct iwarp_end *end = iwarp_end(0, true, true);
    uint8_t bytes[4096];
    char what[64];
    for (;;) {
        struct pollfd fd = {.fd = p->fd, .events = POLLIN};
        assert_int_equal(poll(&fd, 1, 20000), 1);
        ssize_t n = recv(p->fd, bytes, sizeof bytes, 0);
        if (n <= 0)
            break;
        iwarp_end_feed(end, bytes, (size_t)n, (size_t)n, 0, false);
    }
    snprintf(what, sizeof what, "terminated %x,", refusal);
    if (refusal ? !strstr(end->log, what) : strstr(end->log, "terminated") != NULL)
        fail_msg("expected %x, it said: %s", refusal, end->log);
    free(end);
}

void tcp_peer_flushed_from(struct tcp_peer *p, unsigned first) {
    for (unsigned i = first; i < TCP_PEER_RECEIVES; i++)
        tcp_expect(p->e.rcq, i, IBV_WC_WR_FLUSH_ERR);
    tcp_wait_down(&p->e);
}

void tcp_peer_reset(struct tcp_peer *p) {
    struct linger now = {.l_onoff = 1};
    assert_int_equal(setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    close(p->fd);
    p->fd = -1;
}
