/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rings_test.c - messages on 1,000 sessions in turn, between two processes that spin, ring no bell of the peer's: what a queue
 * pair sends lies unanswered until its next message a thousand messages later, and a peer that does not poll would have to be
 * rung for it. By the clock each process does so a few times in a millisecond, for all queue pairs together.
 *
 * This program's send() stands in front of libc's and counts the calls of all threads of both processes.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sluice/sluice.h>

#define SESSIONS 1000u
#define MESSAGES (20 * SESSIONS)
#define FEW 40u
#define PER_MS 4u
#define LIMIT_NS 60000000000ull

static struct { /* of both processes */
    _Atomic bool counting;
    _Atomic unsigned long rings;
    _Atomic int port;
} * shared;

static sluice_session sessions[SESSIONS];
static _Atomic unsigned up, echoes;

ssize_t send(int fd, const void *bytes, size_t count, int flags) {
    if (shared && atomic_load_explicit(&shared->counting, memory_order_relaxed))
        atomic_fetch_add_explicit(&shared->rings, 1, memory_order_relaxed);
    return sendto(fd, bytes, count, flags, NULL, 0);
}

static sluice_node *open_node(void) {
    sluice_node *n;
    sluice_error e;
    if (sluice_open(&n, SLUICE_NODE(.device = "soft", .workers = 1, .idle = SLUICE_IDLE_SPIN),
                    &e) != 0)
        fail_msg("%s", e.text);
    return n;
}

static void echo(const sluice_event *event, void *arg) {
    (void)arg;
    if (event->type == SLUICE_MESSAGE && sluice_send(event->session, event->msg, NULL) != 0)
        sluice_hangup(event->session, 0);
}

/* The other process, until this one ends it. */
static void answer(void) {
    sluice_listener l;
    sluice_error e;
    sluice_node *n = open_node();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (sluice_listen(n, "127.0.0.1:0", SLUICE_LINK(.handler = echo), &l, &e) != 0)
        _exit(1);
    atomic_store(&shared->port, sluice_listener_port(l));
    for (;;)
        pause();
}

/* One message is on its way, on the next session. */
static void next(void) {
    static unsigned at;
    if (sluice_send_copy(sessions[at++ % SESSIONS], "12345678", 8, NULL) != 0)
        sluice_hangup(sessions[0], 0);
}

static void on_event(const sluice_event *event, void *arg) {
    (void)arg;
    if (event->type == SLUICE_UP)
        atomic_fetch_add(&up, 1);
    if (event->type == SLUICE_CLOSED)
        atomic_store(&up, SESSIONS + 1);
    if (event->type == SLUICE_MESSAGE && atomic_fetch_add(&echoes, 1) + 1 < MESSAGES)
        next();
}

static void await(const _Atomic unsigned *count, unsigned least) {
    uint64_t since = sluice_now();
    while (atomic_load(count) < least && atomic_load(&up) <= SESSIONS) {
        if (sluice_now() - since > LIMIT_NS)
            fail_msg("no progress");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (atomic_load(&up) > SESSIONS)
        fail_msg("a session closed");
}

TEST(a_thousand_sessions_in_turn_ring_by_the_clock_alone) {
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0 || CPU_COUNT(&cpus) < 2)
        skip();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0)
        answer();
    sluice_node *n = open_node();
    while (atomic_load(&shared->port) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", atomic_load(&shared->port));
    for (unsigned i = 0; i < SESSIONS; i++) {
        sluice_error e;
        if (sluice_dial(n, address, SLUICE_LINK(.handler = on_event), &sessions[i], &e) != 0)
            fail_msg("%s", e.text);
    }
    await(&up, SESSIONS);
    uint64_t begun = sluice_now();
    atomic_store(&shared->counting, true);
    next();
    await(&echoes, MESSAGES);
    atomic_store(&shared->counting, false);
    uint64_t ms = (sluice_now() - begun) / 1000000;
    unsigned long rings = atomic_load(&shared->rings);
    sluice_close(n, 0);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    printf("%lu rings in %llu ms, with %u messages\n", rings, (unsigned long long)ms, MESSAGES);
    assert_true(rings <= FEW + PER_MS * ms);
}
