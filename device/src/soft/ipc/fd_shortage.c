/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* fd_shortage.c - see fd_shortage.h: the last time, and of which of the two limits. */
#include "soft/ipc/fd_shortage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

#include "soft/ipc/engine.h"

static _Atomic uint64_t last_ns;
static _Atomic int last_error;

static void note(int error) {
    if (error != EMFILE && error != ENFILE)
        return;
    atomic_store(&last_error, error);
    atomic_store(&last_ns, soft_now_ns());
}

void soft_files_missed(int any_fd) {
    int fd = fcntl(any_fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        note(errno);
    else
        close(fd);
}

int soft_files_or(uint64_t since_ns, int otherwise) {
    uint64_t last = atomic_load(&last_ns);
    return last != 0 && last >= since_ns ? atomic_load(&last_error) : otherwise;
}
