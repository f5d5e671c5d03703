/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * command.h - a hostile process and the test that tells it what to do: lines, each answered by "done" unless it says
 * otherwise. As which user it runs is its own doing, at its start.
 */
#ifndef HOSTILE_COMMAND_H
#define HOSTILE_COMMAND_H

#include "support/side.h"
#include "support/peer.h"

#define COMMAND_OTHER_UID 65534u

/* Returns the port at which it can be dialed. */
__attribute__((unused)) static unsigned command_start(struct peer *peer, unsigned uid) {
    char text[16];
    snprintf(text, sizeof text, "%u", uid);
    peer_run(peer, "hostile_peer", "commands", text);
    return (unsigned)atoi(peer_expect(peer, "port "));
}

/* It has nothing to do any more, and ends. */
__attribute__((unused)) static void command_end(struct peer *peer) {
    int status = peer_join(peer);
    must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The user of turn 0, 1 ... False: that was all. */
__attribute__((unused)) static bool command_user(unsigned turn, unsigned *uid) {
    if (turn == 1 && geteuid() != 0)
        fprintf(stderr, "SKIPPED in part: needs root to run processes of another user\n");
    *uid = turn == 0 ? geteuid() : COMMAND_OTHER_UID;
    return turn == 0 || (turn == 1 && geteuid() == 0);
}

#endif
