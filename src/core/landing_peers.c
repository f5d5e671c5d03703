/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* landing_peers.c - see landing_peers.h. */
#include "core/landing_peers.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/assert.h"

_Static_assert(LANDING_PAGES *LANDING_PAGE <= UINT16_MAX + 1u, "an account names each of them");

void landing_peers_init(struct landing_peers *peers) {
    memset(peers, 0, sizeof *peers);
    pthread_mutex_init(&peers->lock, NULL);
}

void landing_peers_close(struct landing_peers *peers) {
    for (unsigned i = 0; i < LANDING_CHAINS; i++)
        for (struct landing_peer *peer = peers->chain[i]; peer; peer = peer->next)
            free(peer->host);
    for (unsigned i = 0; i < peers->pages; i++)
        free(peers->page[i]);
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

/* No session is left, and every buffer came back; acquire: who returned the last one is through with the entry. */
static bool is_over(const struct landing_peer *peer) {
    return peer->sessions == 0 && atomic_load_explicit(&peer->bytes, memory_order_acquire) == 0;
}

/* Takes the entry out of its chain. */
static void remove_at(struct landing_peers *peers, struct landing_peer **at) {
    struct landing_peer *peer = *at;
    *at = peer->next;
    free(peer->host);
    peer->host = NULL;
    peer->next = peers->unused;
    peers->unused = peer;
}

/* Whose last buffer came back after its last session is found by the next that is looked for in this chain. */
static void remove_those_over(struct landing_peers *peers, struct landing_peer **at) {
    while (*at)
        if (is_over(*at))
            remove_at(peers, at);
        else
            at = &(*at)->next;
}

static void add_page(struct landing_peers *peers) {
    struct landing_peer *page = NULL;
    if (peers->pages < LANDING_PAGES)
        page = calloc(LANDING_PAGE, sizeof *page);
    if (!page)
        return;
    for (unsigned i = LANDING_PAGE; i-- > 0;) {
        page[i].account = (uint16_t)(peers->pages * LANDING_PAGE + i);
        page[i].next = peers->unused;
        peers->unused = &page[i];
    }
    peers->page[peers->pages++] = page;
}

static struct landing_peer *new_peer(struct landing_peers *peers, struct landing_peer **chain,
                                     uint64_t number, const char *host, size_t length) {
    if (!peers->unused)
        add_page(peers);
    struct landing_peer *peer = peers->unused;
    char *copy = peer ? strndup(host, length) : NULL;
    if (!copy)
        return NULL;
    peers->unused = peer->next;
    peer->host = copy;
    peer->number = number;
    atomic_store_explicit(&peer->wanted_ns, 0, memory_order_relaxed);
    peer->next = *chain;
    *chain = peer;
    return peer;
}

struct landing_peer *landing_peer_get(struct landing_peers *peers, uint64_t number,
                                      const char *address) {
    const char *port = number == 0 ? strrchr(address, ':') : NULL;
    size_t length = number != 0 ? 0 : port ? (size_t)(port - address) : strlen(address);
    pthread_mutex_lock(&peers->lock);
    struct landing_peer **chain = chain_of(peers, number, address, length), *peer;
    remove_those_over(peers, chain);
    for (peer = *chain; peer && !is_it(peer, number, address, length);)
        peer = peer->next;
    if (!peer)
        peer = new_peer(peers, chain, number, address, length);
    if (peer)
        peer->sessions++;
    pthread_mutex_unlock(&peers->lock);
    return peer;
}

void landing_peer_put(struct landing_peers *peers, struct landing_peer *peer) {
    pthread_mutex_lock(&peers->lock);
    ASSERT(peer->sessions > 0);
    peer->sessions--;
    if (is_over(peer)) {
        struct landing_peer **at = chain_of(peers, peer->number, peer->host, strlen(peer->host));
        while (*at != peer)
            at = &(*at)->next;
        remove_at(peers, at);
    }
    pthread_mutex_unlock(&peers->lock);
}
