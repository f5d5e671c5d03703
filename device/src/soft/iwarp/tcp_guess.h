/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp_guess.h - where wrong keys come from, and how long a connection from there is kept waiting.
 *
 * Each wrong key costs a peer its connection, and counts against its address, the prefix of that (/24 of IPv4, /48 of
 * IPv6), and all of them together, over all listeners: the keys are the process's. Past a limit connections are taken at
 * a pace, and of further ones only a few wait:
 *
 *   16 of an address             one a second
 *   32 of a prefix               one a second of its addresses with wrong keys, and one of its others
 *   64 of all                    one a second of addresses with wrong keys, one of others in prefixes with some, and two
 *                                of prefixes without, which have sixteen at once besides
 *
 * So a host that guesses is in the way of no prefix without wrong keys, as long as it has no new ones; and however
 * many addresses guess, four connections a second is what they have. Of an address 16 count against its prefix, and of a
 * prefix 32 against all: one address does not slow its neighbours, one prefix not the rest.
 *
 * Addresses of IPv6 count by their first 64 bits, of which one peer has all. A count ends when no wrong key came for ten
 * minutes, or for as many seconds as there were wrong keys, up to a day. The tables are small: when one is full, the
 * origin with the fewest wrong keys goes first. What all have together needs no table.
 *
 * Control lock for everything. Times are soft_now_ns().
 */
#ifndef SOFT_IWARP_TCP_GUESS_H
#define SOFT_IWARP_TCP_GUESS_H

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

/* A connection from there ended with a wrong key. */
void soft_cm_tcp_guessed(struct soft_cm_tcp_origin from, uint64_t now_ns);
/* How long a new connection from there waits. False: too many do already, it is not taken. */
bool soft_cm_tcp_guess_wait(struct soft_cm_tcp_origin from, uint64_t now_ns, uint64_t *wait_ns);

#endif
