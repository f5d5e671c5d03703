/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qpn_directory.c - queue pair numbers: blocks of them that this process owns by their names, and the
 * process that owns another one. Control lock.
 */
#define _GNU_SOURCE
#include "soft/ipc/qpn_directory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/ipc/abstract_socket.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/name_search.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/shm_layout.h"

#define TRIES 1000
#define OWNABLE 8190u   /* blocks whose numbers have bit 23 clear, but for the first and the last */
#define TRIES_ALONE 900 /* with blocks that no user has; then also besides a stranger */

static struct soft_abstract_socket own_names[SOFT_MAX_QP_BLOCKS];
static unsigned own_block_count;
static bool claiming; /* a thread does, and has given the control lock up */

/*
 * The name of a block that all users share. Any user can take it, so a stranger may hold it, and
 * listen or not; then a block belongs to the process of its user that has a name beside it.
 */
static void block_name(char *text, size_t size, uint32_t block) {
    snprintf(text, size, "sluice-soft.%u/q/%u", SOFT_WIRE_VERSION, block);
}

static void names_besides(const char *shared, struct soft_name_search *what) {
    *what = (struct soft_name_search){.fits = NULL};
    soft_name_besides(shared, what->begin);
}

/* A process of our user, this one included, has the block by another name than `mine`. Gives the lock up meanwhile. */
static bool is_ours(const char *shared, const char *mine) {
    struct soft_name_search what;
    struct soft_names names;
    if (strcmp(mine, shared) != 0 && soft_name_is_ours(shared))
        return true;
    names_besides(shared, &what);
    soft_name_search_now(&what, &names);
    bool ours = false;
    for (unsigned i = 0; i < names.count; i++)
        ours |= strcmp(names.text[i], mine) != 0;
    soft_names_free(&names);
    return ours;
}

/* Taken first and looked for others after: of two that take the same block, one or both give way. */
static int claim(struct soft_abstract_socket *name, uint32_t block, bool besides) {
    char shared[SOFT_NAME_BYTES], mine[SOFT_NAME_BYTES];
    block_name(shared, sizeof shared, block);
    memcpy(mine, shared, sizeof mine);
    int rc = soft_abstract_socket_bind(name, shared, soft_peer_accepted);
    if (rc == -EADDRINUSE && besides && !soft_name_is_ours(shared))
        rc = soft_name_bind_besides(name, shared, mine, soft_peer_accepted);
    if (rc == 0 && is_ours(shared, mine)) {
        soft_abstract_socket_unbind(name);
        rc = -EADDRINUSE;
    }
    return rc;
}

static int claim_any(uint32_t *block) {
    for (int tries = 0; tries < TRIES; tries++) {
        uint32_t random;
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return -EIO;
        random =
            1 + random % OWNABLE; /* above are the numbers that stand for connections (cm/tcp.h) */
        /* A number that two users share leads each user to its own QP: between the two users it leads to none. */
        int rc = claim(&own_names[own_block_count], random, tries >= TRIES_ALONE);
        if (rc == -EADDRINUSE)
            continue;
        if (rc != 0)
            return rc;
        own_block_count++;
        *block = random;
        return 0;
    }
    return -EADDRINUSE;
}

int soft_qpn_directory_claim(uint32_t *block) {
    soft_assert_locked();
    if (claiming) {
        while (claiming)
            (void)soft_lock_wait(UINT64_MAX);
        return -EAGAIN;
    }
    if (own_block_count == SOFT_MAX_QP_BLOCKS)
        return -ENOMEM;
    claiming = true;
    int rc = claim_any(block);
    claiming = false;
    soft_lock_wake();
    return rc;
}

/* The owner of the block: a process of our own user by any of its names, else the owner of the shared name. */
static int find(uint32_t block, bool waits, struct soft_peer **out) {
    char shared[SOFT_NAME_BYTES];
    struct soft_name_search what;
    struct soft_names names;
    struct ucred who;
    block_name(shared, sizeof shared, block);
    int rc = soft_peer_own_by_name(shared, &who, out);
    if (rc == 0)
        return 0;
    *out = NULL;
    names_besides(shared, &what);
    if (waits)
        soft_name_search_now(&what, &names);
    else if (soft_name_search_ask(&what, &names) != 0)
        return -EINPROGRESS;
    for (unsigned i = 0; i < names.count && !*out; i++)
        if (soft_peer_own_by_name(names.text[i], &who, out) != 0)
            *out = NULL;
    soft_names_free(&names);
    if (*out)
        return 0;
    return rc == -EPERM ? soft_peer_by_name(shared, out) : rc;
}

static int look_up(uint32_t qpn, bool waits, struct soft_peer **out) {
    uint32_t block = qpn / SOFT_QP_BLOCK;
    struct soft_peer *peer;
    /* Those of connections over TCP that are no more, too: no name is asked for. */
    if (block == 0 || block > OWNABLE)
        return -ECONNREFUSED;
    cds_list_for_each_entry(peer, &soft_peers, link) {
        for (unsigned i = 0; i < peer->block_count; i++)
            if (peer->blocks[i] == block && peer->own && soft_peer_usable(peer)) {
                *out = soft_peer_hold(peer);
                return 0;
            }
    }
    int rc = find(block, waits, out);
    if (rc == 0 && (*out)->block_count < SOFT_PEER_BLOCKS)
        (*out)->blocks[(*out)->block_count++] = block;
    return rc;
}

int soft_qpn_directory_find(uint32_t qpn, struct soft_peer **out) {
    soft_assert_locked();
    return look_up(qpn, true, out);
}

int soft_qpn_directory_ask(uint32_t qpn, struct soft_peer **out) {
    soft_assert_locked();
    return look_up(qpn, false, out);
}

void soft_qpn_directory_stop(void) {
    soft_assert_locked();
    for (unsigned i = 0; i < own_block_count; i++)
        soft_abstract_socket_unbind(&own_names[i]);
    own_block_count = 0;
}

void soft_qpn_directory_forked(void) {
    own_block_count = 0;
    claiming = false;
}
