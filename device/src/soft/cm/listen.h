/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * listen.h - the passive side up to the fetched request.
 */
#ifndef SOFT_CM_LISTEN_H
#define SOFT_CM_LISTEN_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/cm/wire.h"

struct soft_cm_channel;
struct soft_cm_event;
struct soft_cm_id;
struct soft_cm_tcp;

/* The listener that a REQ or SIDR REQ is for, or NULL. Control lock held. */
struct soft_cm_id *soft_cm_listen_for(uint32_t type, const union soft_cm_wire_any *msg);
/* A REQ or SIDR REQ arrived. Control lock held. */
void soft_cm_listen_on_request(struct soft_peer *peer, uint32_t type,
                               const union soft_cm_wire_any *msg);
/*
 * A REQ arrived over TCP, for this listener. False: there is no room, and the caller keeps the connection.
 */
bool soft_cm_listen_on_tcp(struct soft_cm_id *listener, struct soft_cm_tcp *tcp,
                           const struct soft_cm_wire_req *req);
/*
 * A CONNECT_REQUEST was fetched from a channel: its id becomes the application's. 0, or -1 with
 * errno and the request refused. Control lock not held.
 */
int soft_cm_listen_fetched(struct soft_cm_channel *channel, struct soft_cm_event *event);

#endif
