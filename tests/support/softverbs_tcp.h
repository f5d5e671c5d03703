/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_tcp.h - what the tests of queue pairs over TCP share: two ends in this process, each with a socket of
 * a connected pair within this host; or one end, and a socket that a test plays the peer on.
 */
#ifndef TESTS_SUPPORT_SOFTVERBS_TCP_H
#define TESTS_SUPPORT_SOFTVERBS_TCP_H

#include "support/softverbs.h"

#define TCP_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

struct tcp_options {
    struct sv_options o; /* of both ends */
    bool crc;
    bool extended; /* immediate data and atomics are agreed on, and may be used */
    uint8_t depth; /* of READs; 0: 4 */
    int buffer;    /* of both sockets; 0: as they are */
};

struct tcp_pair {
    struct sv_end a, b;
    struct ibv_mr *open; /* b's memory, for the peer */
};

/* Connected and of this host; -1s never. */
void tcp_sockets(int fd[2], int buffer);
/* RESET to RTS over this socket. */
void tcp_connect(struct sv_end *e, int fd, const struct tcp_options *o);
void tcp_open(struct tcp_pair *p, const struct tcp_options *o);
void tcp_close(struct tcp_pair *p);
/* Posts to a's queue pair; the status. pieces: so many of about the same size, beside each other. */
int tcp_post(struct tcp_pair *p, struct ibv_send_wr wr, size_t local, size_t bytes,
             unsigned pieces);
/* Posts a receive of b's in so many pieces. */
void tcp_recv(struct tcp_pair *p, uint64_t wr_id, size_t offset, size_t bytes, unsigned pieces);
/* The next completion of that CQ is this. */
void tcp_expect(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status);
/* It is in ERR, at the latest soon. */
void tcp_wait_down(struct sv_end *e);

#endif
