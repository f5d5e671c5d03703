/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * landing_peers.h - the peers of a node, each with what it holds of the memory for messages that arrive in parts: on
 * their way, delivered and not free again, wherever they are.
 *
 * A peer is here while it has a session that held some, and while a message of it is not free. No two peers share an
 * entry, whatever they choose their addresses and processes to be: otherwise what one of them holds would be missing
 * for the other.
 *
 * A buffer names its peer by the number of the entry. Entries are never given back to the system, and one that is
 * counted to stays its peer's, so a thread that returns a buffer needs no lock.
 *
 * Owner: the node. Any thread that owns a loop; the lock is taken once or twice in a session's life. landing_peer_at():
 * any thread, of a buffer it has.
 */
#ifndef CORE_LANDING_PEERS_H
#define CORE_LANDING_PEERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define LANDING_CHAINS 64u
#define LANDING_PAGES 256u
#define LANDING_PAGE 256u /* entries */

struct landing_peer {
    _Atomic uint64_t bytes; /* any thread takes from it what it returns: the last it does here */
    _Atomic uint64_t
        wanted_ns;    /* landing.c: when a session of it last waited for its peer's share */
    uint16_t account; /* constant: the number of this entry */
    /* The lock. */
    uint32_t sessions;
    struct landing_peer *next; /* in its chain; or of those that are not in use */
    /* Constant while it is in use. */
    uint64_t number;
    char *host;
};

struct landing_peers {
    pthread_mutex_t lock;
    struct landing_peer *chain[LANDING_CHAINS], *unused;
    struct landing_peer *page[LANDING_PAGES];
    uint32_t pages;
};

void landing_peers_init(struct landing_peers *peers);
void landing_peers_close(struct landing_peers *peers); /* no loop and no buffer is left */
/*
 * The peer of one more session: of this number, which the fabric gave it, or if that is 0, at this address, whose port
 * is left out. NULL: there is no memory, or no entry.
 */
struct landing_peer *landing_peer_get(struct landing_peers *peers, uint64_t number,
                                      const char *address);
void landing_peer_put(struct landing_peers *peers, struct landing_peer *peer);
/* Its number is `account`. */
static inline struct landing_peer *landing_peer_at(const struct landing_peers *peers,
                                                   uint16_t account) {
    return &peers->page[account / LANDING_PAGE][account % LANDING_PAGE];
}

#endif
