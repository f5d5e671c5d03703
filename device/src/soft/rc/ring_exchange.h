/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ring_exchange.h - how two QPs of two processes map each other's rings, and peers map keys.
 *
 * Owner: the control lock, for all.
 */
#ifndef SOFT_RC_RING_EXCHANGE_H
#define SOFT_RC_RING_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

struct soft_peer;
struct soft_qp;

/* At RTR: makes rx, tells the peer that has the number (qpn_directory.h), and holds it from then on. 0 or errno. */
int soft_ring_exchange_open(struct soft_qp *qp, int found, struct soft_peer *peer);
/*
 * The QP is in no CQ's list, or under its lock. What its peer offered meanwhile stays (pending_ring.h): the peer may be in its
 * next connection already.
 */
void soft_ring_exchange_close(struct soft_qp *qp);
/* LINK or KEYS. fd: what came with it, or -1; the caller closes it. */
void soft_ring_exchange_on_message(struct soft_peer *peer, uint32_t type, const void *data,
                                   size_t bytes, int fd);
void soft_ring_exchange_on_peer_gone(struct soft_peer *peer);
void soft_ring_exchange_on_bell(struct soft_peer *peer);
/* What it writes is read with fences from now on. */
void soft_ring_exchange_put_fences(struct soft_peer *peer);
/* Its HELLO is here: it learns of our regions and keys, and what it offered before is taken. */
void soft_ring_exchange_on_greeting(struct soft_peer *peer);
/* Processes, this one among them, whose memory queue pairs of ours may name. A hint, any thread. */
unsigned soft_linked_processes(void);
void soft_ring_exchange_forked(void);

#endif
