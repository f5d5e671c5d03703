/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* peer.c - see peer.h. */
#define _GNU_SOURCE
#include "support/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child.h"
#include "support/must.h"
#include "support/side.h"

void peer_spawn(struct peer *peer, char *const argv[]) {
    int in[2], out[2];
    memset(peer, 0, sizeof *peer);
    must(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    peer->pid = child_spawn(argv, in[0], out[1]);
    must(peer->pid > 0);
    close(in[0]);
    close(out[1]);
    peer->in = in[1];
    peer->out = out[0];
}

void peer_start(struct peer *peer, const char *program, const char *const words[]) {
    const char *bin = getenv("SLUICE_BIN_DIR");
    char path[512];
    char *argv[16] = {path};
    must(bin);
    snprintf(path, sizeof path, "%s%s/%s", bin ? bin : ".",
             strncmp(program, "sluice-", 7) == 0 ? "" : "/../tests", program);
    for (unsigned i = 0; words[i]; i++) {
        must(i < 14);
        argv[i + 1] = (char *)(uintptr_t)words[i];
    }
    peer_spawn(peer, argv);
}

bool peer_ready(struct peer *peer) {
    struct pollfd p = {.fd = peer->out, .events = POLLIN};
    must(poll(&p, 1, 0) >= 0);
    return p.revents != 0 || memchr(peer->buffer, '\n', peer->held) != NULL;
}

/* It has nothing more to say; what it is joined with is left. */
static void peer_ended(struct peer *peer) {
    siginfo_t info;
    must(waitid(P_PID, (id_t)peer->pid, &info, WEXITED | WNOWAIT) == 0);
    if (info.si_code == CLD_EXITED && info.si_status == VERDICT_WRONG_DATA)
        verdict_wrong_data("a peer saw it");
    must(!"a word of the peer before its end");
}

const char *peer_line(struct peer *peer) {
    uint64_t until = sluice_now() + 4 * LIMIT_NS;
    for (;;) {
        char *end = memchr(peer->buffer, '\n', peer->held);
        if (end) {
            size_t n = (size_t)(end - peer->buffer);
            must(n < sizeof peer->line);
            memcpy(peer->line, peer->buffer, n);
            peer->line[n] = 0;
            peer->held -= n + 1;
            memmove(peer->buffer, end + 1, peer->held);
            return peer->line;
        }
        struct pollfd p = {.fd = peer->out, .events = POLLIN};
        must(poll(&p, 1, 1000) >= 0 || errno == EINTR);
        if (p.revents) {
            ssize_t n =
                read(peer->out, peer->buffer + peer->held, sizeof peer->buffer - peer->held);
            if (n == 0)
                peer_ended(peer);
            must(n > 0);
            peer->held += (size_t)n;
        }
        must(sluice_now() < until);
    }
}

const char *peer_expect(struct peer *peer, const char *words) {
    const char *line = peer_line(peer);
    if (strncmp(line, words, strlen(words)) != 0)
        fprintf(stderr, "the peer said \"%s\", expected \"%s\"\n", line, words);
    must(strncmp(line, words, strlen(words)) == 0);
    return line + strlen(words);
}

long long peer_number(const struct peer *peer, const char *name) {
    size_t n = strlen(name);
    for (const char *at = peer->line; (at = strstr(at, name)) != NULL; at += n)
        if (at[n] == '=' && (at == peer->line || at[-1] == ' '))
            return atoll(at + n + 1);
    fprintf(stderr, "no %s in \"%s\"\n", name, peer->line);
    must(!"a number in the peer's line");
    return 0;
}

void peer_tell(struct peer *peer, const char *command) {
    char line[256];
    int n = snprintf(line, sizeof line, "%s\n", command);
    must(write(peer->in, line, (size_t)n) == n);
}

int peer_join(struct peer *peer) {
    int status;
    close(peer->in); /* it ends when nobody talks to it any more */
    must(waitpid(peer->pid, &status, 0) == peer->pid);
    close(peer->out);
    if (WIFEXITED(status) && WEXITSTATUS(status) == VERDICT_WRONG_DATA)
        verdict_wrong_data("a peer saw it");
    return status;
}

void peer_quit(struct peer *peer) {
    peer_tell(peer, "quit");
    int status = peer_join(peer);
    must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void peer_kill(struct peer *peer) {
    kill(peer->pid, SIGKILL);
    int status = peer_join(peer);
    must(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
