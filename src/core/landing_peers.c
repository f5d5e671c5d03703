/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* landing_peers.c - see landing_peers.h. */
#include "core/landing_peers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

void landing_peers_init(struct landing_peers *peers) {
    memset(peers->chain, 0, sizeof peers->chain);
    pthread_mutex_init(&peers->lock, NULL);
}

void landing_peers_close(struct landing_peers *peers) {
    for (unsigned i = 0; i < LANDING_CHAINS; i++)
        for (struct landing_peer *peer = peers->chain[i], *next; peer; peer = next) {
            next = peer->next;
            free(peer);
        }
    pthread_mutex_destroy(&peers->lock);
}

/* FNV-1a. Who makes many peers fall into one chain has as many sessions to make it long. */
static struct landing_peer **chain_of(struct landing_peers *peers, uint64_t number,
                                      const char *host, size_t length) {
    uint64_t hash = 0xcbf29ce484222325u ^ number;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (uint8_t)host[i]) * 0x100000001b3u;
    return &peers->chain[hash * 0x9e3779b97f4a7c15u >> 58];
}

_Static_assert(LANDING_CHAINS == 1u << (64 - 58), "the upper bits are its number");

static bool is_it(const struct landing_peer *peer, uint64_t number, const char *host,
                  size_t length) {
    return peer->number == number && strncmp(peer->host, host, length) == 0 &&
           peer->host[length] == 0;
}

struct landing_peer *landing_peer_get(struct landing_peers *peers, uint64_t number,
                                      const char *address) {
    const char *port = number == 0 ? strrchr(address, ':') : NULL;
    size_t length = number != 0 ? 0 : port ? (size_t)(port - address) : strlen(address);
    pthread_mutex_lock(&peers->lock);
    struct landing_peer **chain = chain_of(peers, number, address, length), *peer = *chain;
    while (peer && !is_it(peer, number, address, length))
        peer = peer->next;
    if (!peer && (peer = calloc(1, sizeof *peer + length + 1))) {
        peer->number = number;
        memcpy(peer->host, address, length);
        peer->next = *chain;
        *chain = peer;
    }
    if (peer)
        peer->sessions++;
    pthread_mutex_unlock(&peers->lock);
    return peer;
}

void landing_peer_put(struct landing_peers *peers, struct landing_peer *peer) {
    pthread_mutex_lock(&peers->lock);
    ASSERT(peer->sessions > 0);
    if (--peer->sessions == 0) {
        struct landing_peer **at = chain_of(peers, peer->number, peer->host, strlen(peer->host));
        while (*at != peer)
            at = &(*at)->next;
        *at = peer->next;
        ASSERT(atomic_load(&peer->bytes) == 0);
        free(peer);
    }
    pthread_mutex_unlock(&peers->lock);
}
