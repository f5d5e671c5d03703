/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* copy.h - large messages of the peer that lie in memory both sides have mapped. Owner: the loop's thread. */
#ifndef DATAPATH_RNDV_COPY_H
#define DATAPATH_RNDV_COPY_H

#include "datapath/rndv/internal.h"

/*
 * Nothing waits before it, and the caller delivers it in place of its announcement, so its memory is not held by it. It is
 * here then; or it waits as before, for another turn.
 */
void rndv_copy_at_once(struct sluice_loop *l, struct session *s, struct rndv_rx *a);
/* As much as is left of this turn's share. False: the rest in the next turn, or never. */
bool rndv_copy_some(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                    struct rndv_rx *a, uint32_t *left);

#endif
