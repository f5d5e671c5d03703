/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* command.c - see command.h. */
#define _GNU_SOURCE
#include "hostile/command.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/namespace.h"
#include "support/network.h"

unsigned command_start(struct peer *peer, unsigned uid) {
    char text[16];
    snprintf(text, sizeof text, "%u", uid);
    peer_run(peer, "hostile_peer", "commands", text);
    return (unsigned)atoi(peer_expect(peer, "port "));
}

void command_end(struct peer *peer) {
    int status = peer_join(peer);
    must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static bool apart(void) {
    return getenv("HOSTILE_STRANGERS") != NULL;
}

bool command_separate(void) {
    if (!apart())
        return true;
    bool separate = namespace_as_user(CLONE_NEWNET, COMMAND_OTHER_UID) && network_up();
    if (!separate)
        fprintf(stderr, "SKIPPED: this system lets nobody have a user namespace\n");
    return separate;
}

bool command_is_stranger(unsigned uid) {
    return apart() || uid != geteuid();
}

bool command_user(unsigned turn, unsigned *uid) {
    *uid = geteuid();
    if (apart())
        return turn == 0;
    if (turn == 1 && geteuid() != 0)
        fprintf(stderr, "SKIPPED in part: needs root to run processes of another user\n");
    *uid = turn == 0 ? geteuid() : COMMAND_OTHER_UID;
    return turn == 0 || (turn == 1 && geteuid() == 0);
}
