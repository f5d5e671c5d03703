/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * incoming.h - large messages of the peer: RTS, and WRITEs that arrive.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RNDV_INCOMING_H
#define DATAPATH_RNDV_INCOMING_H

#include "datapath/loop/loop.h"

/* An RTS arrived: reading may begin, before it is the next to deliver. False: refused. */
bool rndv_rts_arrived(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* A WRITE with this immediate arrived. NULL, or what is wrong. */
const char *rndv_write_arrived(struct sluice_loop *l, struct session *s, uint32_t immediate);

#endif
