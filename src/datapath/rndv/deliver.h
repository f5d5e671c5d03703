/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * deliver.h - large messages that have arrived, in their order.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RNDV_DELIVER_H
#define DATAPATH_RNDV_DELIVER_H

#include "datapath/loop/loop.h"
#include "datapath/rx/recv_result.h"

/* All before it are delivered: it is delivered, or PENDING until the bytes are here. */
enum recv_result rndv_take(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);

#endif
