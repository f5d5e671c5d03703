/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rts.h - large messages of this side: they are announced.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RNDV_RTS_H
#define DATAPATH_RNDV_RTS_H

#include "datapath/loop/loop.h"
#include "datapath/tx/post.h"

struct iov_part;

/*
 * A plain message that is larger than s->tx.rndv_above, with nothing before it and a credit for it, where its peer may copy
 * it. False: nothing happened, and it is queued as others are.
 */
bool rndv_announce(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
enum build_result rndv_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                             struct sluice_msg *msg);

/*
 * Builds the announcement of a message that is a list of pieces, which stays where it is until iov_regions_done(): the
 * sender writes it, so that no key of this side's memory leaves.
 */
enum build_result rndv_build_iov(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                 struct sluice_msg *msg, const struct iov_part *parts,
                                 unsigned count);
/* False: not so on this device; they go as fragments, whatever their size. */
bool rndv_has_way(const struct session *s, const struct iov_part *parts, unsigned count);

#endif
