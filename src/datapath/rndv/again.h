/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * again.h - large messages that were on their way when the connection was lost.
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_RNDV_AGAIN_H
#define DATAPATH_RNDV_AGAIN_H

#include "datapath/loop/loop.h"

struct frame;
struct wr_batch;

/* The session has another connection, and the peer has what came up to this number. True: there is something to be announced again. */
bool rndv_again_begin(struct session *s, uint32_t received);
/* Announces it, as far as credits and room go. True: that was all. */
bool rndv_again_flush(struct sluice_loop *l, struct session *s);
/*
 * The payload of an RTS that the peer has not received, which is about to be posted anew: its keys are those of now. What makes them is in
 * the batch, before it. False: not now, or the session is closed.
 */
bool rndv_again_replay(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                       uint8_t *payload);
/* Its payload, where it will not be posted anew: the message ends EFENCED. */
void rndv_again_fenced(struct sluice_loop *l, struct session *s, const uint8_t *payload);
/* AGAIN, with its payload (hostile, to be read once). NULL, or what is wrong. */
const char *rndv_again_arrived(struct sluice_loop *l, struct session *s, const struct frame *f,
                               const uint8_t *payload);

#endif
