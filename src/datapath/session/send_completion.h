/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * send_completion.h - sends that complete, or never will.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_SESSION_SEND_COMPLETION_H
#define DATAPATH_SESSION_SEND_COMPLETION_H

#include "datapath/loop/loop.h"

void send_completed(struct sluice_loop *l, const struct ibv_wc *wc);
/* An entry of the send queue ends: what it belongs to is told, and the window gets its share back. */
void send_retire(struct sluice_loop *l, struct connection *c, const struct sq_entry *entry,
                 sluice_status status);
/* Ends every queued message that is not posted yet with this status. */
void send_drop_queue(struct sluice_loop *l, struct session *s, sluice_status status);
/* Ends queued messages whose deadline passed; tells the loop the next deadline. */
void send_expire(struct sluice_loop *l, struct session *s);
/* Gives back everything still in the send queue, as if it had completed with this status. */
void send_abandon(struct sluice_loop *l, struct connection *c, sluice_status status);

#endif
