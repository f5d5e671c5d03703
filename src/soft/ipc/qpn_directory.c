/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qpn_directory.c - queue pair numbers: blocks of them that this process owns by their names, and the
 * process that owns another one. Control lock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#include "soft/ipc/abstract_socket.h"
#include "soft/ipc/peer_internal.h"

static struct soft_name own_names[SOFT_MAX_QP_BLOCKS];
static unsigned own_block_count;

static void block_name(char *text, size_t size, uint32_t block) {
    snprintf(text, size, "sluice-soft.%u/q/%u", SOFT_WIRE_VERSION, block);
}

int soft_peer_claim_block(uint32_t *block) {
    if (own_block_count == SOFT_MAX_QP_BLOCKS)
        return -ENOMEM;
    for (int tries = 0; tries < 1000; tries++) {
        char text[64];
        uint32_t random;
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return -EIO;
        random = 1 + random % 16382;
        block_name(text, sizeof text, random);
        int rc = soft_name_bind(&own_names[own_block_count], text, soft_peer_accepted);
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

int soft_peer_by_qpn(uint32_t qpn, struct soft_peer **out) {
    uint32_t block = qpn / SOFT_QP_BLOCK;
    for (struct soft_peer *peer = soft_peers; peer; peer = peer->next)
        for (unsigned i = 0; i < peer->block_count; i++)
            if (peer->blocks[i] == block && soft_peer_usable(peer)) {
                *out = soft_peer_hold(peer);
                return 0;
            }
    char text[64];
    block_name(text, sizeof text, block);
    int rc = soft_peer_by_name(text, out);
    if (rc == 0 && (*out)->block_count < SOFT_PEER_BLOCKS)
        (*out)->blocks[(*out)->block_count++] = block;
    return rc;
}

void soft_peer_numbers_stop(void) {
    for (unsigned i = 0; i < own_block_count; i++)
        soft_name_unbind(&own_names[i]);
    own_block_count = 0;
}

void soft_peer_numbers_forked(void) {
    own_block_count = 0;
}
