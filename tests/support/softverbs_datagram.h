/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_datagram.h - what the tests of UD queue pairs share: starting one, sending, counting drops.
 */
#ifndef TESTS_SUPPORT_SOFTVERBS_DATAGRAM_H
#define TESTS_SUPPORT_SOFTVERBS_DATAGRAM_H

#include "support/softverbs.h"

#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"
#include "soft/rc/progress.h"
#include "soft/ud/ud.h"

#define UD_QKEY 0x11223344u
#define UD_OPTIONS(...) ((struct sv_options){.type = IBV_QPT_UD, .one_cq = false, __VA_ARGS__})

/* To a state, with what the mask names. */
void ud_to(struct sv_end *e, enum ibv_qp_state state, int mask, uint32_t qkey);

#define UD_INIT_MASK (IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)

/* To RTS. */
void ud_start(struct sv_end *e, uint32_t qkey);
/* An end with a UD queue pair in RTS. */
void ud_open(struct sv_end *e, struct sv_options o);
/* Attributes of an address handle to this host. */
struct ibv_ah_attr ud_ah_attr(struct sv_end *e);
/* To this host. */
struct ibv_ah *ud_ah(struct sv_end *e);
/* A SEND to that queue pair. */
struct ibv_send_wr ud_wr(struct ibv_ah *ah, uint32_t qpn, struct ibv_sge *sge, unsigned flags);
/* Posts it; the status. */
int ud_post(struct sv_end *e, struct ibv_send_wr *wr);
/* Sends bytes from offset and waits for the completion, which always succeeds. */
void ud_send(struct sv_end *e, struct ibv_ah *ah, uint32_t qpn, size_t offset, size_t bytes);
/* How many datagrams it dropped for that reason. */
uint32_t ud_drops(struct sv_end *e, enum soft_drop why);
/* Its poller has taken all that came so far: nobody else may be looking. */
bool ud_dropped(struct sv_end *e, enum soft_drop why, uint32_t count);
/* Rings it reads; rings it writes whose reader has said that it has them. */
unsigned ud_ins(struct sv_end *e);
/* Rings it writes whose reader has said that it has them. */
unsigned ud_ways(struct sv_end *e);

/* Groups belong to the whole host: every run of a test has its own. Set before anything is forked. */
extern uint32_t ud_run;

/* A multicast group of this run. */
union ibv_gid ud_group(uint8_t last);
/* An address handle to that group. */
struct ibv_ah *ud_group_ah(struct sv_end *e, uint8_t last);

#endif
