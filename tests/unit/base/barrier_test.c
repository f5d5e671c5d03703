/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * barrier_test.c - membarrier() that is taken away by a seccomp filter: the side that had no fence has one from
 * then on, nobody relies on it too early, and a node that was open works and closes. In processes of their own, as a
 * filter is for good.
 */
#define _GNU_SOURCE
#include "support/child.h"
#include "support/pair.h"
#include "support/no_membarrier.h"
#include "support/skip.h"

#include <linux/membarrier.h>
#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/barrier.h"

enum { FAILED = 1, CANNOT = 77 };

static void forbid(void) {
    if (!no_membarrier())
        _exit(CANNOT);
}

static void take_it_away(void) {
    sluice_node *n;
    sluice_loop *loop;
    sluice_event event;
    sluice_node_options o = {.size = sizeof o, .device = "soft", .workers = 1};
    if (sluice_open(&n, &o, NULL) != 0 || sluice_loop_open(n, &loop, NULL) != 0)
        _exit(FAILED);
    if (barrier_needed)
        _exit(CANNOT); /* there is none to take away */
    forbid();
    barrier_everywhere();
    if (!barrier_needed)
        _exit(FAILED);
    if (sluice_poll(loop, &event, 1, 0) != 0)
        _exit(FAILED);
    sluice_close(n, 0);
    _exit(0);
}

static void in_a_process(void (*run)(void)) {
    int status;
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0)
        run();
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT)
        skip_with("no membarrier, or no filters");
    assert_int_equal(status, 0);
}

TEST(without_membarrier_both_sides_have_fences) {
    in_a_process(take_it_away);
}

/* ---- the pause -------------------------------------------------------------------------------- */

static struct {
    _Atomic bool interrupts; /* the second one does, the first one's pause */
    pthread_t first;
    uint64_t began_ns; /* no later than the first one found membarrier() gone */
} pause_seen;

static bool is_over(void) {
    return env_now(&env_default) - pause_seen.began_ns >= BARRIER_PAUSE_NS;
}

static void on_signal(int number) {
    (void)number;
}

/* Comes as soon as the fences are asked for: somebody who did not see that may have a store kept back. */
static void *come_second(void *arg) {
    (void)arg;
    while (!atomic_load(&barrier_needed))
        sched_yield();
    if (pause_seen.interrupts)
        pthread_kill(pause_seen.first, SIGUSR1);
    else
        barrier_everywhere();
    return is_over() ? &pause_seen : NULL;
}

static void pause_together(void) {
    pthread_t second;
    void *good;
    const struct sigaction action = {.sa_handler = on_signal};
    barrier_init();
    if (barrier_needed)
        _exit(CANNOT);
    if (sigaction(SIGUSR1, &action, NULL) != 0)
        _exit(FAILED);
    pause_seen.first = pthread_self();
    if (pthread_create(&second, NULL, come_second, NULL) != 0)
        _exit(FAILED);
    forbid();
    pause_seen.began_ns = env_now(&env_default);
    barrier_everywhere();
    bool over = is_over();
    if (pthread_join(second, &good) != 0 || !over || !(good || pause_seen.interrupts))
        _exit(FAILED);
    _exit(0);
}

/* Several times: who is held up in between may find the pause over by itself. */
TEST(nobody_relies_on_fences_before_the_pause_is_over) {
    for (unsigned round = 0; round < 20; round++)
        in_a_process(pause_together);
}

TEST(a_signal_does_not_shorten_the_pause) {
    pause_seen.interrupts = true;
    for (unsigned round = 0; round < 20; round++)
        in_a_process(pause_together);
}
