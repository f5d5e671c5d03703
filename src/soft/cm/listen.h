/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * listen.h - the passive side up to the fetched request.
 */
#ifndef SOFT_CM_LISTEN_H
#define SOFT_CM_LISTEN_H

#include <stdint.h>

#include "soft/cm/wire.h"

struct cm_channel;
struct cm_event;

/* Whom a REQ or SIDR REQ is for, or NULL. Control lock held. */
struct cm_id *cm_listen_for(uint32_t type, const union cm_wire_any *msg);
/* A REQ or SIDR REQ arrived. Control lock held. */
void cm_listen_on_request(struct soft_peer *peer, uint32_t type, const union cm_wire_any *msg);
/*
 * A CONNECT_REQUEST was fetched from a channel: its id becomes the application's. 0, or -1 with
 * errno and the request refused. Control lock not held.
 */
int cm_listen_fetched(struct cm_channel *channel, struct cm_event *event);

#endif
