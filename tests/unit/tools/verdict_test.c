/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * verdict_test.c - a program that saw wrong data says so, and ends with the status that allows it no second try.
 */
#include "support/child.h"
#include "support/test.h"
#include "support/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/verdict.h"

static char said[200];

/* The status of a child that does this, and the first that it prints. */
static int ends_with(void (*what)(void)) {
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    fflush(NULL);
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(fd[1], STDERR_FILENO);
        what();
        _exit(99);
    }
    close(fd[1]);
    size_t have = 0;
    for (ssize_t n; (n = read(fd[0], said + have, sizeof said - 1 - have)) > 0;)
        have += (size_t)n;
    said[have] = 0;
    close(fd[0]);
    return wait_exit(pid);
}

static void fails_otherwise(void) {
    exit(verdict_status(3));
}

static void saw_wrong_data(void) {
    verdict_wrong_data("message %d: lost", 7);
    verdict_wrong_data("message %d: there twice", 8);
    exit(1); /* as cmocka's main: so many tests failed */
}

static void saw_it_and_is_a_peer(void) {
    verdict_wrong_data("message %d: lost", 9);
    _exit(verdict_status(1));
}

TEST(wrong_data_is_the_exit_status) {
    assert_int_equal(ends_with(saw_wrong_data), VERDICT_WRONG_DATA);
    assert_string_equal(said, "wrong data: message 7: lost\nwrong data: message 8: there twice\n");
    assert_int_equal(ends_with(saw_it_and_is_a_peer), VERDICT_WRONG_DATA);
    assert_string_equal(said, "wrong data: message 9: lost\n");
}

TEST(any_other_failure_keeps_its_status) {
    assert_int_equal(ends_with(fails_otherwise), 3);
    assert_string_equal(said, "");
}
