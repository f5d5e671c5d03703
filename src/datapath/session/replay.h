/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * replay.h - frames that were lost with a connection: kept, and sent again over the next one.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_SESSION_REPLAY_H
#define DATAPATH_SESSION_REPLAY_H

#include "datapath/loop/loop.h"

/*
 * A connection that was lost is drained: of what it had in its send queue the numbered frames that were not acknowledged stay, and the rest ends.
 * False: nothing stays.
 */
bool replay_keep(struct sluice_loop *l, struct connection *c);
/* The session goes on over its connection, which is up. Up to `received` the peer has what was sent; the rest goes again. */
void replay_begin(struct sluice_loop *l, struct session *s, uint32_t received);
/* The header of a numbered frame, which is that entry of the send queue of a connection that was lost. */
uint8_t *replay_header(const struct connection *kept, uint32_t at);
/* Posts again what credits and room allow. */
void replay_flush(struct sluice_loop *l, struct session *s);
/* The session ends: what was kept has this outcome. */
void replay_drop(struct sluice_loop *l, struct session *s, sluice_status status);

#endif
