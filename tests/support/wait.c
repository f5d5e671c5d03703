/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* wait.c - see wait.h. */
#include "support/wait.h"

#include "support/test.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#include "support/verdict.h"

#define LIMIT_S 60

static void out_of_time(void) {
    fail_msg("nothing came within %d s", LIMIT_S);
}

void wait_semaphore(sem_t *sem) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LIMIT_S;
    int status;
    while ((status = sem_timedwait(sem, &until)) != 0 && errno == EINTR)
        ;
    if (status != 0)
        out_of_time();
}

void wait_flag(const _Atomic bool *flag) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (time_t until = now.tv_sec + LIMIT_S; !atomic_load(flag); sched_yield()) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec > until)
            out_of_time();
    }
}

int wait_exit(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == VERDICT_WRONG_DATA)
        verdict_wrong_data("a child saw it");
    return WEXITSTATUS(status);
}
