/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * env.h - clock, random numbers and name lookups, injected so that a test or a simulator can own
 * them. The default environment is CLOCK_MONOTONIC, getrandom(2) and getaddrinfo(3).
 */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sockaddr_storage; /* <sys/socket.h> */

struct sluice_env {
    uint64_t (*now_ns)(void *arg);
    /*
     * Numbers that cannot be guessed: nonces are made of them. False: there are none, and the bytes are zero; a
     * caller that needs them for more than a pause must then do without the feature.
     */
    bool (*random_bytes)(void *arg, void *out, size_t bytes);
    void *arg;
    /*
     * Looks a host name up: writes up to max addresses and how many, best first; 0 or an EAI_ code.
     * NULL: getaddrinfo(3). Called by resolver threads, several at a time, and it may take its time:
     * closing a node does not wait for it, so arg must outlive the last call.
     */
    int (*resolve)(void *arg, const char *host, struct sockaddr_storage *out, unsigned max,
                   unsigned *count);
    /*
     * Looks up what this host knows by itself: asks no server, so that it does not wait. It is asked of names that
     * wait because all lookups by servers that may be under way are. NULL: numbers and /etc/hosts; with a
     * `resolve` of one's own, nothing.
     */
    int (*resolve_local)(void *arg, const char *host, struct sockaddr_storage *out, unsigned max,
                         unsigned *count);
};

extern const struct sluice_env env_default;

static inline uint64_t env_now(const struct sluice_env *env) {
    return env->now_ns(env->arg);
}

#endif
