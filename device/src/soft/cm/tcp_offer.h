/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp_offer.h - turns bytes that arrive on a connection's socket (tcp.h) into messages to the state of the connection.
 *
 * Control lock for everything.
 */
#ifndef SOFT_CM_TCP_OFFER_H
#define SOFT_CM_TCP_OFFER_H

#include <stddef.h>
#include <stdint.h>

#include "soft/cm/wire.h"
#include "soft/ipc/engine.h"

struct soft_cm_tcp;
struct soft_fault_id;

/* The socket has something to say. */
void soft_cm_tcp_readable(struct soft_cm_tcp *tcp, uint32_t events);
/* Messages that arrived and were not taken yet are offered to the connection's state; by the engine, soon. */
void soft_cm_tcp_offer(struct soft_cm_tcp *tcp);
void soft_cm_tcp_offer_again(struct soft_cm_tcp *tcp);
void soft_cm_tcp_offer_later(
    struct soft_cm_tcp *tcp); /* in a while: what was lost would be lost again */
void soft_cm_tcp_on_timer(struct soft_timer *timer);
uint64_t soft_cm_tcp_again_ns(void); /* between two offers */
/* A message; a fault plan counts it for `counted`, and may lose it. */
void soft_cm_tcp_arrived(struct soft_cm_tcp *tcp, struct soft_fault_id *counted, uint32_t type,
                         union soft_cm_wire_any *msg, size_t bytes);
/*
 * Delivers the message, maybe late, to the id of that number, or before there is one to the connection of `serial`.
 * If the connection is gone it does nothing.
 */
void soft_cm_tcp_deliver(uint64_t number, uint32_t type, const void *msg, size_t bytes);

#endif
