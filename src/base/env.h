/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * env.h - clock and random numbers, injected so that a test or a simulator can own them.
 * The default environment is CLOCK_MONOTONIC and getrandom(2).
 */
#ifndef SLUICE_ENV_H
#define SLUICE_ENV_H

#include <stddef.h>
#include <stdint.h>

struct sluice_env {
    uint64_t (*now_ns)(void *arg);
    void (*random_bytes)(void *arg, void *out, size_t bytes);
    void *arg;
};

extern const struct sluice_env env_default;

static inline uint64_t env_now(const struct sluice_env *env) {
    return env->now_ns(env->arg);
}

#endif
