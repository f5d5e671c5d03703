/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* command.c - see command.h. */
#include "hostile/command.h"

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

bool command_user(unsigned turn, unsigned *uid) {
    if (turn == 1 && geteuid() != 0)
        fprintf(stderr, "SKIPPED in part: needs root to run processes of another user\n");
    *uid = turn == 0 ? geteuid() : COMMAND_OTHER_UID;
    return turn == 0 || (turn == 1 && geteuid() == 0);
}
