/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cancel.h - requests that are given up.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RPC_CANCEL_H
#define DATAPATH_RPC_CANCEL_H

#include "datapath/loop/loop.h"

/* LOOP_MSG_REQUESTS. */
void rpc_cancel_take_msg(struct sluice_loop *l, struct session *s);
/* Posts CANCELs (session->rpc.cancels). */
void rpc_cancel_flush(struct sluice_loop *l, struct session *s);

#endif
