/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_tcp_peer.h - one queue pair over TCP, and a socket on which the test plays its peer by hand: frames, parts
 * of frames, nothing at all.
 */
#ifndef TESTS_SUPPORT_SOFTVERBS_TCP_PEER_H
#define TESTS_SUPPORT_SOFTVERBS_TCP_PEER_H

#include "soft/iwarp/ddp.h"
#include "support/softverbs_tcp.h"

#define TCP_PEER_LARGE 40000u
#define TCP_PEER_RECEIVES 2u   /* posted, for TCP_PEER_LARGE bytes at the beginning of the buffer */
#define TCP_PEER_TARGET 65536u /* where its memory for the peer begins, of as many bytes */

struct tcp_peer {
    struct sv_end e;
    struct ibv_mr *open;
    int fd; /* -1: the test closed it */
    uint8_t payload[TCP_PEER_LARGE], frame[65536];
};

/* Check values are agreed on. */
void tcp_peer_open(struct tcp_peer *p, const struct tcp_options *o);
void tcp_peer_close(struct tcp_peer *p);
void tcp_peer_say(struct tcp_peer *p, const uint8_t *from, size_t bytes);
/* The header of the first message of that kind, as a whole; a tagged one to the memory for the peer. */
struct iwarp_ddp tcp_peer_message(const struct tcp_peer *p, uint8_t opcode);
/* Says a message of that kind, LARGE, but for its last 10000 bytes, whose beginning is in place then. Returns how much. */
size_t tcp_peer_say_most(struct tcp_peer *p, uint8_t opcode, const uint8_t *place);
/* A READ of the memory for the peer. */
void tcp_peer_say_read(struct tcp_peer *p, uint32_t msn, uint32_t bytes);
/* A READ of what another key opens there. */
void tcp_peer_say_read_of(struct tcp_peer *p, uint32_t msn, uint32_t key, uint32_t bytes);
/* That byte of memory has come. */
void tcp_peer_wait_taken(struct tcp_peer *p, const uint8_t *last, uint8_t value);
/* The last that the queue pair says is this Terminate, 0: none; then it ends. */
void tcp_peer_expect_end(struct tcp_peer *p, unsigned refusal);
/* The receives from that one on are flushed, and it is in ERR. */
void tcp_peer_flushed_from(struct tcp_peer *p, unsigned first);
/* Resets the connection. */
void tcp_peer_reset(struct tcp_peer *p);

#endif
