/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* spaces.c - see spaces.h. */
#define _GNU_SOURCE
#include "support/spaces.h"

#include "support/test.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/child.h"
#include "support/must.h"
#include "support/namespace.h"

#define NOT_HERE (-1000)

static bool leave(void) {
    return geteuid() == 0 ? unshare(CLONE_NEWNET) == 0 : namespace_as_user(CLONE_NEWNET, 0);
}

bool spaces_ask(unsigned count, int (*ask)(void), int *answers) {
    pid_t pids[64];
    bool here = true;
    assert_true(count <= sizeof pids / sizeof *pids);
    fflush(NULL);
    for (unsigned i = 0; i < count; i++) {
        int told[2];
        assert_int_equal(pipe(told), 0);
        pids[i] = child_fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            must_end_process = true;
            int answer = leave() ? ask() : NOT_HERE;
            must(write(told[1], &answer, sizeof answer) == sizeof answer);
            for (;;)
                pause();
        }
        /* One after the other: what is compared is where each begins, not who comes first. */
        close(told[1]); /* so that the end of one that fails is seen */
        assert_int_equal(read(told[0], &answers[i], sizeof answers[i]), sizeof answers[i]);
        close(told[0]);
        here = here && answers[i] != NOT_HERE;
    }
    for (unsigned i = 0; i < count; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    return here;
}
