/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rndv.h - messages too large for a frame: how they are told from others, and the calls that move them.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RNDV_RNDV_H
#define DATAPATH_RNDV_RNDV_H

#include "datapath/loop/loop.h"

/* Above how many bytes this session's messages go by rendezvous. */
uint64_t rndv_threshold(const struct session *s);
/* The bound of requests and replies, which the peer takes in fragments only where that was agreed. */
uint64_t rndv_rpc_threshold(const struct session *s);
/* And up to how many they do not, while nothing else is on its way; 0: there is no such case. */
uint64_t rndv_alone_max(const struct session *s);
/* Whether this message, the first in the queue, goes by rendezvous. */
bool rndv_wanted(const struct session *s, const struct sluice_msg *msg);
/* Posts what may be posted of the transfers under way. */
void rndv_flush(struct sluice_loop *l, struct session *s);
/* An entry of the send queue that was rndv.c's. */
void rndv_completed(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                    sluice_status status);
/* Whether messages of mine wait for the peer to take them, or it is yet to be told of some of its own. */
bool rndv_pending(const struct session *s);
/* Bytes of the large message that the peer is to go on with; 0: none, or it is not the peer's turn (incoming.c). */
uint64_t rndv_owed(const struct session *s);
/* A message that was held has memory now: others may have it next. */
void rndv_memory_found(struct sluice_loop *l, struct session *s);
/* The two sides agreed that a large message may lie in memory that both have mapped. */
bool rndv_agreed_copy(const struct session *s);
/* This turn's share was wiped or copied: the next turn goes on, without a wait. */
bool rndv_goes_on(const struct session *s);
/* Sessions whose answers waited for an RTS through a turn: they wait no longer. */
void rndv_answer_late(struct sluice_loop *l);
/* The connection was lost and is drained: what is on its way waits for another one (again.c). */
void rndv_lost(struct sluice_loop *l, struct session *s);
/* It is to be another loop's: nothing of this one is kept in it. */
void rndv_leave(struct sluice_loop *l, struct session *s);
/* Some of it was not announced again: nothing that is numbered comes before. */
bool rndv_is_stale(const struct session *s);
/* The queue pair is gone, and nothing of it moves any more. */
void rndv_end(struct sluice_loop *l, struct session *s);
/* Frees what was received and not delivered. */
void rndv_drop(struct sluice_loop *l, struct session *s);

#endif
