/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * left_behind_test.c - a test that is killed, as ctest does it with one that is over its time, leaves no process behind.
 * The killed test is a child; this process takes its place as the parent of what it left, and sees how that ends.
 */
#include "support/child.h"
#include "support/peer.h"
#include "support/rows.h"
#include "support/side.h"

#include <sys/prctl.h>

static pid_t forked(void) {
    pid_t pid = child_fork();
    if (pid == 0)
        for (;;)
            pause();
    return pid;
}

static pid_t executed(void) {
    pid_t pid = child_fork();
    if (pid == 0) {
        execlp("sleep", "sleep", "1000", (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* A user of nothing else, where this process may become one. */
static pid_t another_user(void) {
    pid_t pid = child_fork();
    if (pid == 0) {
        if (geteuid() == 0)
            must(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
        child_ends_too();
        for (;;)
            pause();
    }
    return pid;
}

static pid_t spawned(void) {
    static struct peer peer;
    char name[] = "sleep", seconds[] = "1000";
    peer_spawn(&peer, (char *[]){name, seconds, NULL});
    return peer.pid;
}

struct way {
    pid_t (*start)(void);
};

static void ends_with_its_test(void **state) {
    const struct way *way = *state;
    int told[2], status = 0;
    pid_t left, got = 0;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t test = child_fork();
    assert_true(test >= 0);
    if (test == 0) {
        left = way->start();
        must(left > 0 && write(told[1], &left, sizeof left) == sizeof left);
        for (;;)
            pause();
    }
    close(told[1]);
    assert_int_equal(read(told[0], &left, sizeof left), sizeof left);
    assert_int_equal(kill(test, SIGKILL), 0);
    assert_int_equal(waitpid(test, &status, 0), test);
    uint64_t until = sluice_now() + LIMIT_NS;
    while ((got = waitpid(left, &status, WNOHANG)) == 0 && sluice_now() < until)
        (void)poll(NULL, 0, 1);
    if (got == 0)
        kill(left, SIGKILL);
    assert_int_equal(got, left);
    /* Killed, or it saw before it began that there is no test any more. */
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 127);
    close(told[0]);
}

#define WAY(name, function) ROW(name, ends_with_its_test, way, function)

TEST_CASES(WAY(a_child_ends_with_a_test_that_is_killed, forked),
           WAY(a_program_ends_with_a_test_that_is_killed, executed),
           WAY(another_user_ends_with_a_test_that_is_killed, another_user),
           WAY(a_peer_ends_with_a_test_that_is_killed, spawned));
