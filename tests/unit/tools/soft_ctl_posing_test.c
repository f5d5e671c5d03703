/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * soft_ctl_posing_test.c - sluice-soft ctl hears the process that it asks, and none that took a name like that one's.
 */
#define _GNU_SOURCE
#include "support/fault.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "soft/control/ctl.h"

/* Says that it does what it is told, by a name like that of a process that never opened the device. */
static void poses_as_the_parent(int fd) {
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    int n =
        snprintf(sun.sun_path + 1, sizeof sun.sun_path - 1, SOFT_CTL_PREFIX "%d-", (int)getppid());
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    must(bind(sock, (struct sockaddr *)&sun,
              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0);
    must(listen(sock, 1) == 0);
    sv_tell(fd, 1);
    int client = accept(sock, NULL, NULL);
    char request[64];
    ssize_t got = recv(client, request, sizeof request, 0);
    (void)!send(client, "=forged\n", 8, MSG_NOSIGNAL);
    sv_tell(fd, got > 0);
}

TEST(the_tool_hears_only_the_process_it_asks) {
    FAULT_NO_FORK();
    char command[512], said[512] = "";
    const char *bin = getenv("SLUICE_BIN_DIR");
    must(bin);
    struct sv_child child = sv_fork(poses_as_the_parent);
    must(sv_hear(child.fd) == 1);
    snprintf(command, sizeof command, "%s/sluice-soft ctl %d status 2>&1", bin, (int)getpid());
    FILE *tool = popen(command, "re");
    must(tool && fread(said, 1, sizeof said - 1, tool) > 0);
    must(WEXITSTATUS(pclose(tool)) == 1);
    must(strstr(said, "has no software device open") && !strstr(said, "forged"));
    must(sv_hear(child.fd) == 0); /* nor was it told what was asked */
    must(sv_join(&child) == 0);
}
