/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * peer_limit.c - how many connections strangers may have: each costs descriptors and memory of ours.
 * Control lock. The oldest gives way, so that who comes honestly finds room.
 */
#include "soft/ipc/peer_internal.h"

#define SAME_MAX 8 /* of one process */
#define UNGREETED_MAX 256

/*
 * A process has one connection to us, two where both sides called at once. Beyond a few it is after
 * our descriptors: its oldest connection goes, with whatever it was for.
 */
void soft_peer_limit_same(const struct soft_peer *fresh) {
    unsigned count = 0;
    struct soft_peer *oldest = NULL;
    for (struct soft_peer *peer = soft_peers; peer; peer = peer->next)
        if (peer->greeted && peer->pid > 0 && peer->pid == fresh->pid && peer->uid == fresh->uid) {
            count++;
            oldest = peer; /* the list begins with the newest */
        }
    if (count > SAME_MAX)
        soft_peer_drop(oldest);
}

/* They have connected and not said who they are. */
void soft_peer_limit_ungreeted(void) {
    unsigned count = 0;
    struct soft_peer *oldest = NULL;
    for (struct soft_peer *peer = soft_peers; peer; peer = peer->next)
        if (!peer->greeted && peer->bell.fd < 0) {
            count++;
            oldest = peer;
        }
    if (count > UNGREETED_MAX)
        soft_peer_drop(oldest);
}
