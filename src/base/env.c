/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * env.c - the default environment: CLOCK_MONOTONIC and getrandom(2); names are the resolver's.
 *
 * No state; callable from any thread.
 */
#include "base/env.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

static uint64_t clock_now(void *arg) {
    (void)arg;
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void system_random(void *arg, void *out, size_t bytes) {
    (void)arg;
    uint8_t *at = out;
    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        } else if (errno != EINTR) {
            /* Only a kernel without the call ends here. A session id must differ from others even
             * then, so take what the clock and the stack give. */
            for (uint64_t i = 0; i < bytes; i++)
                at[i] = (uint8_t)((clock_now(NULL) * 0x9e3779b97f4a7c15u + i) >> 29) ^
                        (uint8_t)((uintptr_t)&got >> 8);
            return;
        }
    }
}

const struct sluice_env env_default = {.now_ns = clock_now, .random_bytes = system_random};
