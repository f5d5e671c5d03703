/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fragment.h - a message that does not fit a frame, in several.
 *
 * Owner: the loop's thread.
 */
#ifndef DATAPATH_TX_FRAGMENT_H
#define DATAPATH_TX_FRAGMENT_H

#include "datapath/tx/post.h"

/*
 * Builds the next fragment of it; room, and a credit where it needs one, were checked. total: of the first one's header,
 * when that is its turn. NONE: there is no memory for headers.
 */
enum build_result fragment_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                 struct sluice_msg *msg, uint64_t total);

#endif
