/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port_cache.c - a small table of ports and the processes that had them. Control lock.
 *
 * An entry holds its peer, and is removed before the peer ends: soft_cm_port_cache_forget_peer().
 */
#include "soft/cm/port_cache.h"

#include <string.h>

#include "soft/cm/addr.h"
#include "soft/ipc/peer.h"

#define ENTRIES 64

static struct entry {
    int ps;
    uint16_t port;
    union ibv_gid gid; /* of the address, either family */
    struct soft_peer *peer;
} entries[ENTRIES];

static struct entry *entry_of(int ps, const struct sockaddr *dst, union ibv_gid *gid) {
    soft_cm_addr_gid(dst, gid);
    uint32_t hash = soft_cm_addr_port(dst) + (uint32_t)ps * 31;
    for (unsigned i = 0; i < sizeof gid->raw; i++)
        hash = hash * 31 + gid->raw[i];
    return &entries[hash % ENTRIES];
}

static bool is_it(const struct entry *e, int ps, const struct sockaddr *dst,
                  const union ibv_gid *gid) {
    return e->peer && e->ps == ps && e->port == soft_cm_addr_port(dst) &&
           memcmp(&e->gid, gid, sizeof *gid) == 0;
}

static void clear(struct entry *e) {
    struct soft_peer *peer = e->peer;
    e->peer = NULL;
    if (peer)
        soft_peer_release(peer);
}

struct soft_peer *soft_cm_port_cache_recall(int ps, const struct sockaddr *dst) {
    union ibv_gid gid;
    struct entry *e = entry_of(ps, dst, &gid);
    return is_it(e, ps, dst, &gid) && soft_peer_usable(e->peer) ? soft_peer_hold(e->peer) : NULL;
}

void soft_cm_port_cache_note(int ps, const struct sockaddr *dst, struct soft_peer *peer) {
    union ibv_gid gid;
    struct entry *e = entry_of(ps, dst, &gid);
    clear(e);
    *e = (struct entry){
        .ps = ps, .port = soft_cm_addr_port(dst), .gid = gid, .peer = soft_peer_hold(peer)};
}

void soft_cm_port_cache_forget(int ps, const struct sockaddr *dst) {
    union ibv_gid gid;
    struct entry *e = entry_of(ps, dst, &gid);
    if (is_it(e, ps, dst, &gid))
        clear(e);
}

void soft_cm_port_cache_forget_peer(const struct soft_peer *peer) {
    for (unsigned i = 0; i < ENTRIES; i++)
        if (entries[i].peer == peer)
            clear(&entries[i]);
}

void soft_cm_port_cache_forked(void) {
    memset(entries, 0, sizeof entries);
}
