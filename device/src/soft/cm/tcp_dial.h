/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp_dial.h - a dialer's connection until its request is sent. Control lock for everything.
 */
#ifndef SOFT_CM_TCP_DIAL_H
#define SOFT_CM_TCP_DIAL_H

#include <stdbool.h>

struct soft_cm_id;
struct soft_cm_tcp;
struct soft_cm_wire_req;

/* Connects TCP, ahead of the request: ROUTE_RESOLVED or ROUTE_ERROR follows. 0 or an errno. */
int soft_cm_tcp_reach(struct soft_cm_id *id, int timeout_ms);
/* It does not connect, for that errno. It may be reached for again. */
void soft_cm_tcp_unreached(struct soft_cm_tcp *tcp, int error);
/* Sends the request, when TCP is connected. */
void soft_cm_tcp_dial(struct soft_cm_tcp *tcp, const struct soft_cm_wire_req *req);
/*
 * A connection that waited for its request may be given up by the listener just then: the request goes by another one,
 * once. False: there is no such hope. Only before any byte of an answer.
 */
bool soft_cm_tcp_ask_anew(struct soft_cm_tcp *tcp);
/* TCP is connected, or has failed. */
void soft_cm_tcp_connected(struct soft_cm_tcp *tcp);

#endif
