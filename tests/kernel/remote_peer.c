/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * remote_peer - runs commands in the other guest, over a network of its own beside the one that is tested.
 *
 *   remote_peer serve ADDRESS:PORT     in the other guest: runs what it is sent, many at a time
 *   remote_peer ADDRESS:PORT WORD...   runs a command there: its input, its output (text), its exit status
 *
 * A connection is one command: its words, each with the 0 that ends it, one more 0, then its input. Back
 * comes what it prints, a 0, and its exit status. The end of the input is the end of the command's. Status
 * 255: there was no connection, or it ended, as when the power of that guest was cut.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4 */
#endif
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 16, BYTES = 4096, LOST = 255 };

static int fail(const char *what) {
    fprintf(stderr, "remote_peer: %s: %s\n", what, strerror(errno));
    return LOST;
}

/* A socket that is connected to the address, or listens at it; -1: errno says why. */
static int open_at(char *address, bool listens) {
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    const int one = 1;
    struct addrinfo *to;
    char *port = strchr(address, ':');
    errno = EINVAL;
    if (!port)
        return -1;
    *port = 0;
    int wrong = getaddrinfo(address, port + 1, &hints, &to);
    *port = ':';
    if (wrong)
        return -1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listens)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    int status =
        listens ? bind(fd, to->ai_addr, to->ai_addrlen) : connect(fd, to->ai_addr, to->ai_addrlen);
    if (status == 0 && listens)
        status = listen(fd, 64);
    freeaddrinfo(to);
    return status == 0 ? fd : -1;
}

static bool write_all(int fd, const char *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t n = write(fd, data, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* ---- the other guest ----------------------------------------------------------------------------- */

/* The words of the command, and not a byte of its input. */
static bool read_words(int fd, char *line, char *words[WORDS + 1]) {
    size_t at = 0, begin = 0, n = 0;
    while (at < BYTES && read(fd, line + at, 1) == 1) {
        if (line[at++] != 0)
            continue;
        words[n] = NULL;
        if (at - 1 == begin)
            return n > 0;
        if (n == WORDS)
            return false;
        words[n++] = line + begin;
        begin = at;
    }
    return false;
}

static int run_one(int fd) {
    static char line[BYTES];
    char *words[WORDS + 1], end[2] = {0, (char)LOST};
    int status;
    if (!read_words(fd, line, words))
        return LOST;
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        for (int k = 0; k < 3; k++)
            dup2(fd, k);
        execvp(words[0], words);
        _exit(fail(words[0]));
    }
    if (pid > 0 && waitpid(pid, &status, 0) == pid)
        end[1] = (char)(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return write_all(fd, end, sizeof end) ? 0 : LOST;
}

static int serve(char *address) {
    int listener = open_at(address, true);
    if (listener < 0)
        return fail(address);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        while (waitpid(-1, NULL, WNOHANG) > 0) /* those that are done */
            ;
        if (fd < 0 && errno != EINTR && errno != ECONNABORTED)
            return fail("accept");
        if (fd < 0)
            continue;
        if (fork() == 0) {
            close(listener);
            _exit(run_one(fd));
        }
        close(fd);
    }
}

/* ---- here ------------------------------------------------------------------------------------------ */

/* A guest whose power is cut says nothing more: that is noticed within 20 s, in silence and with something
 * sent that nobody acknowledges. */
static void watch(int fd) {
    const int one = 1, seconds = 5, tries = 3;
    const unsigned ms = 20000;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

/* What it printed goes out; its status, or -1 when there is more to come. */
static int take(int fd) {
    char data[BYTES];
    static bool ended;
    ssize_t n = read(fd, data, sizeof data);
    if (n <= 0)
        return LOST;
    const char *end = ended ? data : memchr(data, 0, (size_t)n);
    size_t text = end ? (size_t)(end - data) : (size_t)n;
    if (!write_all(1, data, text))
        return LOST;
    if (!end)
        return -1;
    text += !ended; /* the 0 */
    ended = true;
    return text < (size_t)n ? (unsigned char)data[text] : -1;
}

static int run_there(char *address, char **words) {
    char data[BYTES];
    int fd = open_at(address, false);
    if (fd < 0)
        return fail(address);
    watch(fd);
    for (; *words; words++)
        if (!write_all(fd, *words, strlen(*words) + 1))
            return fail("write");
    if (!write_all(fd, "", 1))
        return fail("write");
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return fail("poll");
        int status = fds[0].revents ? take(fd) : -1;
        if (status >= 0)
            return status;
        if (!fds[1].revents)
            continue;
        ssize_t n = read(0, data, sizeof data);
        if (n <= 0) {
            shutdown(fd, SHUT_WR);
            fds[1].fd = -1;
            fds[1].revents = 0;
        } else if (!write_all(fd, data, (size_t)n)) {
            fds[1].fd = -1; /* the command ended: its status is on its way */
            fds[1].revents = 0;
        }
    }
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2]);
    if (argc < 3 || argc > WORDS + 2) {
        fputs("usage: remote_peer serve ADDRESS:PORT | ADDRESS:PORT WORD...\n", stderr);
        return LOST;
    }
    return run_there(argv[1], argv + 2);
}
