/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* child.c - see child.h. */
#define _GNU_SOURCE
#include "support/child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static pid_t parent; /* the child's copy is its own parent's number */

/* One whose parent ended before it asked is not told any more. A parent outside this process's namespace is 0. */
static void end_with(pid_t whom) {
    pid_t now;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ((now = getppid()) != whom && now != 0))
        _exit(127);
}

pid_t child_fork(void) {
    pid_t before = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        parent = before;
        end_with(before);
    }
    return pid;
}

void child_ends_too(void) {
    end_with(parent);
}

/* As posix_spawn() does it, which cannot ask for a signal: the parent may have much memory, and threads. */
pid_t child_spawn(char *const argv[], int in, int out) {
    pid_t before = getpid();
    pid_t pid = vfork();
    if (pid == 0) {
        end_with(before);
        if (dup2(in, 0) == 0 && dup2(out, 1) == 1)
            execvp(argv[0], argv);
        _exit(127);
    }
    return pid;
}
