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

#include "support/rows.h"
#include "support/verdict.h"
#include "support/verdict_event.h"

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
    int status; /* wait_exit() would be told of it */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
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

/* ---- what else is wrong data ----------------------------------------------------------------------- */

static void counts(void) {
    must_data_equal(4u, 4);
    must_data_equal(2 + 1, 4);
}

static void compares(void) {
    must_data_bytes("the same", "the same", 9);
    must_data_bytes("this one", "this, no", 9);
}

static void asks(void) {
    must_data(1 == 1);
    must_data(1 == 2);
}

static void has_one_too_many(void) {
    verdict_event(&(sluice_event){.type = SLUICE_MESSAGE}, SLUICE_CLOSED);
    exit(1);
}

static void has_one_more(void) {
    verdict_event(&(sluice_event){.type = SLUICE_REPLY}, 0);
    exit(1);
}

static void waits_in_vain(void) {
    verdict_event(NULL, SLUICE_REQUEST);
    exit(1);
}

static void hears_of_an_end(void) {
    verdict_event(&(sluice_event){.type = SLUICE_CLOSED}, SLUICE_MESSAGE);
    verdict_event(&(sluice_event){.type = SLUICE_MESSAGE}, SLUICE_SENT); /* in any order */
    verdict_event(NULL, SLUICE_CLOSED);
    exit(3);
}

struct verdict {
    void (*what)(void);
    int status;
    const char *says;
};

/* In a program that counts by itself, and in one that would end with a status of its own. */
static void is_judged(void **state) {
    const struct verdict *v = *state;
    must_end_process = true;
    int status = ends_with(v->what);
    must_end_process = false;
    assert_int_equal(status, v->status);
    if (v->says)
        assert_non_null(strstr(said, v->says));
    else
        assert_null(strstr(said, "wrong data"));
}

/* What waited for such a child has seen it as well. */
static void has_such_a_child(void) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        saw_it_and_is_a_peer();
    exit(wait_exit(pid) == VERDICT_WRONG_DATA ? 1 : 2);
}

#define VERDICT(what, status, says) ROW(what, is_judged, verdict, what, status, says)

TEST_CASES(VERDICT(counts, VERDICT_WRONG_DATA, ": 2 + 1 is 3, not 4"),
           VERDICT(compares, VERDICT_WRONG_DATA, "byte 4 of 9 is 0x20, not 0x2c"),
           VERDICT(asks, VERDICT_WRONG_DATA, ": 1 == 2"),
           VERDICT(has_one_too_many, VERDICT_WRONG_DATA, "a MESSAGE came, expected CLOSED"),
           VERDICT(has_one_more, VERDICT_WRONG_DATA, "a REPLY came, expected nothing"),
           VERDICT(waits_in_vain, VERDICT_WRONG_DATA, "no REQUEST came"),
           VERDICT(hears_of_an_end, 3, NULL),
           VERDICT(has_such_a_child, VERDICT_WRONG_DATA, "a child saw it"));
