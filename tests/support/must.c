/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* must.c - see must.h. */
#include "support/must.h"

#include "support/test.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "support/verdict.h"

bool must_end_process;

void must_fail(const char *file, int line, const char *what) {
    if (must_end_process) {
        fprintf(stderr, "%s:%d: in pid %d: %s (errno %d)\n", file, line, (int)getpid(), what,
                errno);
        fflush(NULL);
        _exit(verdict_status(1));
    }
    print_error("%s (errno %d)\n", what, errno);
    _fail(file, line);
}
