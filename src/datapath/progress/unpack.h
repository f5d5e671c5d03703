/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* unpack.h - frames that carry several messages. Owner: the thread that owns the loop. */
#ifndef DATAPATH_PROGRESS_UNPACK_H
#define DATAPATH_PROGRESS_UNPACK_H

#include "datapath/loop/loop.h"
#include "datapath/rx/recv_result.h"

/* A frame in order: it is checked, and what there is room for is delivered. */
enum recv_result coalesced_take(struct sluice_loop *l, struct session *s, struct sluice_msg *frame);

#endif
