/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * peer.h - another program of the build, and a conversation with it in lines: its standard input and output. Every
 * wait has a limit.
 */
#ifndef TESTS_SUPPORT_PEER_H
#define TESTS_SUPPORT_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct peer {
    pid_t pid;
    int in, out; /* its standard input and output */
    char line[512];
    char buffer[1024];
    size_t held;
};

/* Starts a program, found as a shell finds it. */
void peer_spawn(struct peer *peer, char *const argv[]);
/* Starts a program of the build; words end with NULL. */
void peer_start(struct peer *peer, const char *program, const char *const words[]);

#define peer_run(peer, program, ...)                                                               \
    peer_start(peer, program, (const char *const[]){__VA_ARGS__, NULL})

/* It said something, or ended. */
bool peer_ready(struct peer *peer);

/*
 * The next line it prints, without its end. The kernel's connection manager repeats a message that was lost for about
 * LIMIT_NS, and one is lost now and then where an emulated machine gets no processor.
 */
const char *peer_line(struct peer *peer);
/* Its next line begins with these words; returns the rest. */
const char *peer_expect(struct peer *peer, const char *words);
/* The number behind "name=" in its last line. */
long long peer_number(const struct peer *peer, const char *name);
/* Writes a line to its standard input. */
void peer_tell(struct peer *peer, const char *command);
/* Waits for its end; the status as waitpid() gives it. */
int peer_join(struct peer *peer);
/* Asks it to end, and it ends well. */
void peer_quit(struct peer *peer);
/* By SIGKILL. */
void peer_kill(struct peer *peer);

#endif
