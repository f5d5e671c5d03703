/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp_guess.c - see tcp_guess.h.
 *
 * Control lock for everything.
 */
#include "soft/cm/tcp_guess.h"

#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

#include "soft/ipc/engine.h"

#define ORIGINS 64u
#define FREE_GUESSES 16u
#define PACE_NS 1000000000u
#define WAIT_MOST_NS 4000000000u /* the request is waited for besides */
#define FORGET_NS 600000000000ull

struct guesser {
    struct soft_cm_tcp_origin from; /* 0: the place is free */
    uint32_t wrong;
    uint64_t last_ns;
    uint64_t next_ns; /* when the next connection may be read */
};

static struct guesser guessers[ORIGINS];

struct soft_cm_tcp_origin soft_cm_tcp_origin(const struct sockaddr *addr) {
    struct soft_cm_tcp_origin origin = {0};
    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)addr;
        origin.low = (uint64_t)1 << 32 | ntohl(four->sin_addr.s_addr);
    } else if (addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)addr;
        memcpy(&origin.high, six->sin6_addr.s6_addr, sizeof origin.high);
        origin.low = (uint64_t)2 << 32;
    }
    return origin;
}

static struct guesser *find(struct soft_cm_tcp_origin from) {
    for (unsigned i = 0; i < ORIGINS; i++) {
        struct guesser *one = &guessers[i];
        if (!soft_cm_tcp_same_origin(one->from, from))
            continue;
        if (soft_now_ns() - one->last_ns > FORGET_NS)
            *one = (struct guesser){.from = from};
        return one;
    }
    return NULL;
}

/* The entry of the origin with the fewest wrong keys, and of those the one that was wrong longest ago. */
static struct guesser *make_place(struct soft_cm_tcp_origin from) {
    struct guesser *least = &guessers[0];
    for (unsigned i = 1; i < ORIGINS; i++) {
        struct guesser *one = &guessers[i];
        if (one->wrong < least->wrong ||
            (one->wrong == least->wrong && one->last_ns < least->last_ns))
            least = one;
    }
    *least = (struct guesser){.from = from};
    return least;
}

void soft_cm_tcp_guessed(struct soft_cm_tcp_origin from, uint32_t wrong_keys) {
    if (from.low == 0 || wrong_keys == 0)
        return;
    struct guesser *one = find(from);
    if (!one)
        one = make_place(from);
    one->wrong = one->wrong > UINT32_MAX - wrong_keys ? UINT32_MAX : one->wrong + wrong_keys;
    one->last_ns = soft_now_ns();
}

bool soft_cm_tcp_guess_wait(struct soft_cm_tcp_origin from, uint64_t *wait_ns) {
    struct guesser *one = from.low != 0 ? find(from) : NULL;
    uint64_t now = soft_now_ns();
    *wait_ns = 0;
    if (!one || one->wrong < FREE_GUESSES)
        return true;
    if (one->next_ns < now)
        one->next_ns = now;
    if (one->next_ns - now > WAIT_MOST_NS)
        return false;
    *wait_ns = one->next_ns - now;
    one->next_ns += PACE_NS;
    return true;
}
