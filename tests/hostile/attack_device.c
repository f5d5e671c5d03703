/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* attack_device.c - attacks by control connections of the software device, made by hand. One thread each. */
#include "support/softverbs_hostile.h"

#include <poll.h>

#include "hostile/attack.h"

#define SLOW 40u
#define STRANGERS 40u
#define CONNECTIONS 8u
#define CALLERS 400u

static int good_board(void) {
    return hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC);
}

void attack_calls(const struct attack_target *target, unsigned arg) {
    int board = good_board();
    (void)arg;
    for (unsigned i = 0;; i++) {
        close(i % 2 ? hostile_dial(target->qpn)
                    : hostile_greet(target->qpn, &hostile_hello, board));
        attack_ready();
    }
}

void attack_talks(const struct attack_target *target, unsigned arg) {
    uint64_t seed = 4711;
    (void)arg;
    for (;;) {
        hostile_noise(target->qpn, &seed);
        attack_ready();
    }
}

/* The bell that the victim hands out. */
static int bell_of(int sock) {
    uint8_t answer[1024];
    struct soft_untrusted_fd_fds fds;
    struct pollfd p = {.fd = sock, .events = POLLIN};
    bool cut;
    must(poll(&p, 1, 20000) == 1);
    must(soft_untrusted_fd_recv(sock, answer, sizeof answer, &fds, &cut) > 0 && fds.count == 2);
    close(fds.fd[1]);
    return fds.fd[0];
}

static void *close_one(void *arg) {
    close((int)(intptr_t)arg);
    return NULL;
}

/* Whoever has the last of it waits in close(), for ever: the other side, or a thread of ours. */
static void close_aside(int fd) {
    pthread_t thread;
    must(pthread_create(&thread, NULL, close_one, (void *)(intptr_t)fd) == 0);
    must(pthread_detach(thread) == 0);
}

/* Their other ends stay here. */
void attack_passes_slow(const struct attack_target *target, unsigned by_bell) {
    int board = good_board(), other;
    for (unsigned i = 0; i < SLOW; i++) {
        int slow = hostile_lingering(&other);
        int sock =
            by_bell ? hostile_greet(target->qpn, &hostile_hello, board) : hostile_dial(target->qpn);
        int to = by_bell ? bell_of(sock) : sock;
        hostile_say(to, "x", by_bell, &slow, 1);
        close_aside(slow);
        if (to != sock)
            close(to);
        close(sock);
    }
    attack_stay();
}

/* Offers of rings that lead nowhere: each is answered. */
static void ask(int sock, uint32_t qpn, uint64_t *seed) {
    uint32_t words[6] = {SOFT_MSG_UD_RING, 16, hostile_random(seed), qpn};
    hostile_say(sock, words, sizeof words, NULL, 0);
}

/* As many as are kept for one that does not read; then it is hung up on, and comes again. */
void attack_does_not_read(const struct attack_target *target, unsigned arg) {
    int board = good_board();
    struct pollfd p = {.fd = hostile_greet(target->qpn, &hostile_hello, board),
                       .events = POLLRDHUP};
    uint64_t seed = 815;
    (void)arg;
    for (unsigned i = 0;; i++) {
        ask(p.fd, target->qpn, &seed);
        if (poll(&p, 1, 0) == 1) {
            close(p.fd);
            p.fd = hostile_greet(target->qpn, &hostile_hello, board);
        }
        if (i == SOFT_PEER_QUEUE)
            attack_ready();
    }
}

static void be_one_of_many(const struct attack_target *target, int board, int file) {
    int sock[CONNECTIONS];
    uint64_t seed = (uint64_t)getpid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        sock[i] = hostile_greet(target->qpn, &hostile_hello, board);
    for (unsigned k = 0; k < 200; k++)
        for (unsigned i = 0; i < CONNECTIONS; i++) {
            ask(sock[i], target->qpn, &seed);
            hostile_say(sock[i], "nothing", 0, &file, 1);
        }
}

/* None of them reads what is answered, and each leaves descriptors in the queues. */
void attack_is_many(const struct attack_target *target, unsigned arg) {
    int board = good_board(), file = hostile_shm_file(true, 4096, 0), ends[2];
    char byte;
    (void)arg;
    must(pipe2(ends, O_CLOEXEC) == 0);
    for (unsigned i = 0; i < STRANGERS; i++) {
        pid_t pid = fork();
        must(pid >= 0);
        if (pid > 0)
            continue;
        be_one_of_many(target, board, file);
        must(write(ends[1], "x", 1) == 1);
        for (;;)
            pause();
    }
    for (unsigned i = 0; i < STRANGERS; i++)
        must(read(ends[0], &byte, 1) == 1);
    attack_stay();
}

void attack_holds_connections(const struct attack_target *target, unsigned arg) {
    (void)arg;
    for (unsigned i = 0; i < CALLERS; i++)
        (void)hostile_dial(target->qpn);
    attack_stay();
}
