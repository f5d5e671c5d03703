/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp_guess.h - where wrong keys come from, and how long a connection from there is kept waiting.
 *
 * Each wrong key costs a peer its connection. An origin with 16 of them gets one connection a second; of further ones
 * only a few wait. Addresses of IPv6 count by their first 64 bits, of which one peer has all. A count ends ten minutes
 * after the last wrong key. The table is small: when it is full, the origin with the fewest wrong keys goes first.
 *
 * Control lock for everything.
 */
#ifndef SOFT_CM_TCP_GUESS_H
#define SOFT_CM_TCP_GUESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* An address as far as peers are told apart; all 0: none. */
struct soft_cm_tcp_origin {
    uint64_t high, low;
};

struct soft_cm_tcp_origin soft_cm_tcp_origin(const struct sockaddr *addr);
static inline bool soft_cm_tcp_same_origin(struct soft_cm_tcp_origin a,
                                           struct soft_cm_tcp_origin b) {
    return a.high == b.high && a.low == b.low;
}

/* A connection from there ended with so many wrong keys. */
void soft_cm_tcp_guessed(struct soft_cm_tcp_origin from, uint32_t wrong_keys);
/* How long a new connection from there waits. False: too many do already, it is not taken. */
bool soft_cm_tcp_guess_wait(struct soft_cm_tcp_origin from, uint64_t *wait_ns);

#endif
