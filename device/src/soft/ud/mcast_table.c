/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mcast_table.c - the table of multicast groups, with bounds for what other processes bring up.
 *
 * Owner: control lock for changes; the table's own spin lock, a leaf, for senders.
 */
#include "soft/ud/mcast_table.h"

#include <string.h>

#include "soft/ipc/peer_internal.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/profile.h"

#define GROUPS_MAX 256
#define GROUPS_OWN 64 /* kept free for our own */
#define GROUPS_OF_PEER 16
#define GROUPS_OF_STRANGERS 64 /* of all that are of other users, so that ours find room */
#define MEMBERS_STRANGE (SOFT_UD_MEMBERS / 2)
#define JOINS_OF_PEER 1024

struct group {
    union ibv_gid gid;
    unsigned used; /* places used so far: members do not move */
    unsigned count;
    struct soft_peer *maker; /* the one that told us of it; NULL: this process */
    struct {
        uint32_t qpn; /* 0: free */
        struct soft_peer *peer;
    } member[SOFT_UD_MEMBERS];
};

static struct group groups[GROUPS_MAX]; /* count 0: free */
static soft_spin table_lock;

static struct group *find(const union ibv_gid *gid) {
    for (unsigned i = 0; i < GROUPS_MAX; i++)
        if (groups[i].count && memcmp(&groups[i].gid, gid, sizeof *gid) == 0)
            return &groups[i];
    return NULL;
}

unsigned soft_mcast_members(const union ibv_gid *gid, uint32_t *qpns) {
    spin_lock(&table_lock);
    const struct group *g = find(gid);
    unsigned n = g ? g->used : 0;
    for (unsigned i = 0; i < n; i++)
        qpns[i] = g->member[i].qpn;
    spin_unlock(&table_lock);
    return n;
}

static bool is_stranger(const struct soft_peer *peer) {
    return peer && !peer->own;
}

static unsigned groups_of_strangers(void) {
    unsigned n = 0;
    for (unsigned i = 0; i < GROUPS_MAX; i++)
        n += groups[i].count && is_stranger(groups[i].maker);
    return n;
}

static unsigned strange_members(const struct group *g) {
    unsigned n = 0;
    for (unsigned i = 0; i < g->used; i++)
        n += g->member[i].qpn && is_stranger(g->member[i].peer);
    return n;
}

static struct group *make(const union ibv_gid *gid, struct soft_peer *peer) {
    if (peer && peer->group_count >= GROUPS_OF_PEER)
        return NULL;
    if (is_stranger(peer) && groups_of_strangers() >= GROUPS_OF_STRANGERS)
        return NULL;
    /* The last places are ours alone, so that others cannot fill them. */
    unsigned end = peer ? GROUPS_MAX - GROUPS_OWN : GROUPS_MAX;
    for (unsigned i = peer ? 0 : GROUPS_MAX - GROUPS_OWN; i < end; i++)
        if (groups[i].count == 0) {
            groups[i].gid = *gid;
            groups[i].used = 0;
            groups[i].maker = peer;
            if (peer)
                peer->group_count++;
            return &groups[i];
        }
    return NULL;
}

/*
 * Two peers report one QP: two connections of one process, or a stranger reports another process's QP. Our own report
 * counts most, and a stranger's least, for the stranger may take it back.
 */
static void hear_again(struct soft_peer **said, struct soft_peer *peer) {
    if (!*said || (peer && !(is_stranger(*said) && peer->own)))
        return;
    (*said)->group_joins--;
    *said = peer;
    if (peer)
        peer->group_joins++;
}

/* table_lock. False: no room. */
static bool add(const union ibv_gid *gid, uint32_t qpn, struct soft_peer *peer) {
    if (peer && peer->group_joins >= JOINS_OF_PEER)
        return false;
    struct group *g = find(gid);
    if (!g)
        g = make(gid, peer);
    unsigned at = SOFT_UD_MEMBERS;
    for (unsigned i = 0; g && i < g->used; i++) {
        if (g->member[i].qpn == qpn) {
            hear_again(&g->member[i].peer, peer);
            return true;
        }
        if (g->member[i].qpn == 0 && at == SOFT_UD_MEMBERS)
            at = i;
    }
    if (g && is_stranger(peer) && strange_members(g) >= MEMBERS_STRANGE)
        return false;
    if (g && at == SOFT_UD_MEMBERS && g->used < SOFT_UD_MEMBERS)
        at = g->used++;
    if (!g || at == SOFT_UD_MEMBERS)
        return false;
    g->member[at].qpn = qpn;
    g->member[at].peer = peer;
    g->count++;
    if (peer)
        peer->group_joins++;
    return true;
}

/* table_lock. */
static void take_out(struct group *g, unsigned at) {
    if (g->member[at].peer)
        g->member[at].peer->group_joins--;
    g->member[at].qpn = 0;
    g->member[at].peer = NULL;
    if (--g->count == 0 && g->maker)
        g->maker->group_count--;
    if (g->count == 0)
        g->maker = NULL;
}

void soft_mcast_table_remove(const union ibv_gid *gid, uint32_t qpn, const struct soft_peer *peer) {
    spin_lock(&table_lock);
    struct group *g = find(gid);
    for (unsigned i = 0; g && i < g->used; i++)
        if (g->member[i].qpn == qpn && g->member[i].peer == peer) {
            take_out(g, i);
            break;
        }
    spin_unlock(&table_lock);
}

bool soft_mcast_table_add(const union ibv_gid *gid, uint32_t qpn, struct soft_peer *peer) {
    spin_lock(&table_lock);
    bool added = add(gid, qpn, peer);
    spin_unlock(&table_lock);
    return added;
}

unsigned soft_mcast_table_count(const union ibv_gid *gid) {
    const struct group *g = find(gid);
    return g ? g->count : 0;
}

void soft_mcast_table_tell_own(struct soft_peer *peer, soft_mcast_tell *tell) {
    for (unsigned i = 0; i < GROUPS_MAX; i++)
        for (unsigned k = 0; groups[i].count && k < groups[i].used; k++)
            if (groups[i].member[k].qpn && !groups[i].member[k].peer)
                tell(peer, &groups[i].gid, groups[i].member[k].qpn);
}

void soft_mcast_table_forget(const struct soft_peer *peer) {
    spin_lock(&table_lock);
    for (unsigned i = 0; i < GROUPS_MAX; i++) {
        for (unsigned k = 0; groups[i].count && k < groups[i].used; k++)
            if (groups[i].member[k].qpn && groups[i].member[k].peer == peer)
                take_out(&groups[i], k);
        if (groups[i].maker == peer)
            groups[i].maker = NULL;
    }
    spin_unlock(&table_lock);
}

void soft_mcast_table_clear(void) {
    spin_lock(&table_lock);
    memset(groups, 0, sizeof groups);
    spin_unlock(&table_lock);
}

void soft_mcast_table_forked(void) {
    memset(groups, 0, sizeof groups);
    table_lock = 0;
}
