/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * peer_limit.c - how many connections strangers may have: each costs descriptors and memory of ours.
 * Control lock. The oldest one that is not in use is closed first, so that an honest process finds room. Other users
 * together have a quarter of the descriptors of this process, and one of them half of that. Processes of our user that
 * this PID namespace does not see have half of the descriptors.
 */
#include "soft/ipc/peer_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"

#define SAME_MAX 8 /* of one process */
#define UNGREETED_MAX 256
#define FDS_OF_PEER 4 /* socket, pidfd, two bells */
#define FD_LIMIT_MAX 65536u

/*
 * A process has one connection to us, two where both sides called at once. Beyond a few it is after
 * our descriptors: its oldest connection goes, with whatever it was for.
 */
void soft_peer_limit_same(const struct soft_peer *fresh) {
    soft_assert_locked();
    unsigned count = 0;
    struct soft_peer *peer, *oldest = NULL;
    cds_list_for_each_entry(peer, &soft_peers, link) {
        if (peer->greeted && peer->pid > 0 && peer->pid == fresh->pid && peer->uid == fresh->uid) {
            count++;
            oldest = peer; /* the list begins with the newest */
        }
    }
    if (count > SAME_MAX)
        soft_peer_drop(oldest);
}

/* They have connected and not sent their greeting. */
void soft_peer_limit_ungreeted(void) {
    soft_assert_locked();
    unsigned count = 0;
    struct soft_peer *peer, *oldest = NULL;
    cds_list_for_each_entry(peer, &soft_peers, link) {
        if (!peer->greeted && peer->bell.fd < 0) {
            count++;
            oldest = peer;
        }
    }
    if (count > UNGREETED_MAX)
        soft_peer_drop(oldest);
}

unsigned soft_peer_fd_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > FD_LIMIT_MAX)
        return FD_LIMIT_MAX;
    return (unsigned)limit.rlim_cur;
}

struct crowd {
    unsigned count;
    struct soft_peer *idle; /* the oldest that is not in use: only the list holds it */
};

static void join(struct crowd *crowd, struct soft_peer *peer, const struct soft_peer *fresh) {
    crowd->count++;
    if (peer != fresh && atomic_load_explicit(&peer->refs, memory_order_relaxed) == 1)
        crowd->idle = peer; /* the list begins with the newest */
}

static bool make_room(struct crowd *crowd, unsigned most) {
    if (crowd->count <= most)
        return true;
    if (!crowd->idle)
        return false;
    soft_peer_drop(crowd->idle);
    return true;
}

/* Of our user, but of another PID namespace: which of them belong to one process is not to be known. */
static bool limit_unseen(const struct soft_peer *fresh, unsigned most) {
    struct crowd unseen = {0};
    struct soft_peer *peer;
    cds_list_for_each_entry(peer, &soft_peers, link)
        if (peer->own && peer->pid <= 0)
            join(&unseen, peer, fresh);
    return make_room(&unseen, most);
}

bool soft_peer_limit_foreign(const struct soft_peer *fresh) {
    soft_assert_locked();
    struct crowd user = {0}, all = {0};
    unsigned most = soft_peer_fd_limit() / 4 / FDS_OF_PEER;
    if (fresh->own)
        return fresh->pid > 0 || limit_unseen(fresh, 2 * most);
    struct soft_peer *peer;
    cds_list_for_each_entry(peer, &soft_peers, link) {
        if (!peer->own)
            join(&all, peer, fresh);
        if (!peer->own && peer->uid == fresh->uid)
            join(&user, peer, fresh);
    }
    bool both = user.count > most / 2;
    return make_room(&user, most / 2) && (both || make_room(&all, most));
}
