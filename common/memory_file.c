/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* memory_file.c - see memory_file.h. */
#define _GNU_SOURCE
#include "common/memory_file.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

int memory_file_create(const char *name, size_t bytes, unsigned flags) {
    struct rlimit limit;
    if (bytes > INT64_MAX || (getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                              limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)) {
        errno = EFBIG;
        return -1;
    }
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}
