/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * env.c - the default environment: CLOCK_MONOTONIC and getrandom(2); names are the resolver's.
 *
 * No state; callable from any thread.
 */
#include "base/env.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uint64_t clock_now(void *arg) {
    (void)arg;
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* An old kernel, or a filter of system calls, has no getrandom(): the same numbers are in a file. */
static size_t read_random(uint8_t *out, size_t bytes) {
    size_t have = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    struct stat is;
    bool device = fd >= 0 && fstat(fd, &is) == 0 && S_ISCHR(is.st_mode);
    while (device && have < bytes) {
        ssize_t got = read(fd, out + have, bytes - have);
        if (got <= 0 && (got == 0 || errno != EINTR))
            break;
        have += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    return have;
}

static bool system_random(void *arg, void *out, size_t bytes) {
    (void)arg;
    uint8_t *at = out;
    size_t have = 0;
    while (have < bytes) {
        ssize_t got = getrandom(at + have, bytes - have, 0);
        if (got <= 0 && (got == 0 || errno != EINTR))
            break;
        have += got > 0 ? (size_t)got : 0;
    }
    if (have < bytes)
        have += read_random(at + have, bytes - have);
    if (have == bytes)
        return true;
    memset(out, 0, bytes);
    return false;
}

const struct sluice_env env_default = {.now_ns = clock_now, .random_bytes = system_random};
