/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * landing_peers.h - the peers of a node, each with what its sessions hold together of the memory for messages that
 * arrive in parts.
 *
 * A peer is here while it has a session that held some. No two peers share an entry, whatever they choose their
 * addresses and processes to be: otherwise what one of them holds would be missing for the other.
 *
 * Owner: the node. Any thread that owns a loop; the lock is taken once or twice in a session's life.
 */
#ifndef CORE_LANDING_PEERS_H
#define CORE_LANDING_PEERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define LANDING_CHAINS 64u

struct landing_peer {
    _Atomic uint64_t bytes;
    /* The lock. */
    struct landing_peer *next;
    uint32_t sessions;
    /* Constant. */
    uint64_t number;
    char host[];
};

struct landing_peers {
    pthread_mutex_t lock;
    struct landing_peer *chain[LANDING_CHAINS];
};

void landing_peers_init(struct landing_peers *peers);
void landing_peers_close(struct landing_peers *peers); /* no loop is left */
/*
 * The peer of one more session: of this number, which the fabric gave it, or if that is 0, at this address, whose port
 * is left out. NULL: there is no memory.
 */
struct landing_peer *landing_peer_get(struct landing_peers *peers, uint64_t number,
                                      const char *address);
void landing_peer_put(struct landing_peers *peers, struct landing_peer *peer);

#endif
