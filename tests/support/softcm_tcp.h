/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_tcp.h - connections over TCP in one process, SLUICE_SOFT_NET=require; and a peer that is a plain socket, which a test
 * speaks by hand.
 */
#ifndef TESTS_SUPPORT_SOFTCM_TCP_H
#define TESTS_SUPPORT_SOFTCM_TCP_H

#include "support/softcm.h"
#include "support/softverbs.h"

#include "soft/iwarp/handshake.h"

#define TCP_RECEIVES 3

/* Over TCP, for the whole program; timers short. The setup of a group. */
int softcm_tcp_setup(void **state);

/* An end's queue pair moves to RTS as its id says, from INIT; receives are posted. */
void softcm_tcp_open(struct sv_end *e);
void softcm_tcp_move(struct rdma_cm_id *id, struct sv_end *e);

/* Two ends with queue pairs, connected: the listener's is `passive`. */
struct softcm_tcp_pair {
    struct ct_pair cm;
    struct sv_end active, passive;
};
void softcm_tcp_request(struct softcm_tcp_pair *p); /* the listener was asked */
void softcm_tcp_accept(struct softcm_tcp_pair *p);  /* moved its queue pair, and accepted */
void softcm_tcp_up(struct softcm_tcp_pair *p);
void softcm_tcp_free(struct softcm_tcp_pair *p);
/* A message arrives in the other end's oldest receive. */
void softcm_tcp_message(struct sv_end *from, struct sv_end *to);

/* A plain socket connected to that port of this host, also from another of its addresses; one that listens there (*port 0: any). */
int plain_dial(uint16_t port);
int plain_dial_from(const char *from, uint16_t port);
int plain_listen(uint16_t *port);
int plain_accept(int listener);
/* All of it, at once or in pieces. */
void plain_send(int fd, const void *data, size_t bytes, size_t piece);
/* Exactly so much; less where the stream ended, whose errno is *error, 0: by FIN. */
size_t plain_receive(int fd, void *data, size_t bytes, int *error);
/* The stream ends, and nothing more came. */
void plain_expect_end(int fd);
/* MPA's request of a dialer that wants the listener to be able to speak first, or does not. */
size_t plain_request(uint8_t out[IWARP_HANDSHAKE_MAX], bool peer_to_peer);
/* What the peer says, judged by the device's own parser. */
struct iwarp_handshake plain_handshake(int fd, bool reply, struct iwarp_handshake_parser *p);

#endif
