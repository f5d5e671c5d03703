/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_gather.h - which messages of a queue pair over TCP wait a little, so that one system call sends several.
 *
 * A message that is alone between two turns is sent at once, so a ping-pong waits for nothing. If more than one was
 * posted between two turns, those behind it wait for the next turn; and as many are likely to follow, so do all that are
 * posted from then on, the first one too, until one is alone again. So does a message behind a turn that sent much,
 * which the peer takes first.
 *
 * While the peer still has to acknowledge what was sent before, and the application goes on posting, such a batch waits
 * for a few more turns: small batches would otherwise stay small, as the peer acknowledges each, and the application
 * posts no more than was acknowledged. It does not if the thread sleeps between its turns, for it makes none soon.
 *
 * A poller makes the next turn soon, else the engine's tick does: of a crowd, when the CQ is not polled any more (cq_set.h).
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_IWARP_QP_GATHER_H
#define SOFT_IWARP_QP_GATHER_H

#include <stdbool.h>

struct iwarp_tx;
struct soft_qp;

/* Notes a post. True: its messages wait for the next turn, or until there are many. */
bool soft_tcp_gathers(struct soft_qp *qp);
/* Once a turn, before it sends. True: what waits does so for another turn, or until there is more of it. */
bool soft_tcp_gathers_on(struct soft_qp *qp);
/* The batch has few frames, so others are likely to join them in the same system call. */
bool soft_tcp_is_little(const struct iwarp_tx *tx);

#endif
