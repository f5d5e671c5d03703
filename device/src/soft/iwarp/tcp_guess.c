/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tcp_guess.c - see tcp_guess.h.
 *
 * Control lock for everything. What a prefix has is remembered for as long as what any address of it has, and what all
 * have for as long as either: each wrong key counts for the time in all three.
 */
#include "soft/iwarp/tcp_guess.h"

#include <endian.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

#define ADDRESSES 256u
#define PREFIXES 1024u
#define ADDRESS_FREE 16u
#define PREFIX_FREE 32u
#define ALL_FREE 64u
#define SECOND_NS 1000000000ull
#define WAIT_MOST_NS 4000000000ull /* the request is waited for besides */
#define FORGET_S 600u
#define FORGET_MOST_S 86400u
#define IPV4 ((uint64_t)1 << 32)
#define IPV6 ((uint64_t)2 << 32)

/* What is known of an address whose connection is to be taken. */
enum standing { GUESSED, NEIGHBOUR, UNKNOWN, STANDINGS };

struct pace {
    uint64_t each_ns, at_once_ns;
};

static const struct pace paces[STANDINGS] = {
    [GUESSED] = {SECOND_NS, 0},
    [NEIGHBOUR] = {SECOND_NS, 0},
    [UNKNOWN] = {SECOND_NS / 2, 15 * (SECOND_NS / 2)},
};

struct guesser {
    struct soft_cm_tcp_origin from;
    uint32_t wrong;   /* wrong keys: for so long they are remembered; 0: the place is free */
    uint32_t counted; /* those that count, up to the limit */
    uint64_t last_ns;
    uint64_t next_ns[STANDINGS]; /* when the next connection may be read */
};

static struct guesser addresses[ADDRESSES], prefixes[PREFIXES], all;

struct soft_cm_tcp_origin soft_cm_tcp_origin(const struct sockaddr *addr) {
    struct soft_cm_tcp_origin origin = {0};
    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)addr;
        origin.low = IPV4 | ntohl(four->sin_addr.s_addr);
    } else if (addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)addr;
        memcpy(&origin.high, six->sin6_addr.s6_addr, sizeof origin.high);
        origin.high = be64toh(origin.high);
        origin.low = IPV6;
    }
    return origin;
}

static struct soft_cm_tcp_origin prefix_of(struct soft_cm_tcp_origin from) {
    if (from.low == IPV6)
        from.high &= ~(uint64_t)0xffff;
    else
        from.low &= ~(uint64_t)0xff;
    return from;
}

/* ---- who is remembered --------------------------------------------------------------------------------------- */

static bool is_remembered(const struct guesser *one, uint64_t now) {
    uint64_t seconds = one->wrong < FORGET_S ? FORGET_S : one->wrong;
    if (seconds > FORGET_MOST_S)
        seconds = FORGET_MOST_S;
    return one->wrong > 0 && now - one->last_ns <= seconds * SECOND_NS;
}

static struct guesser *find(struct guesser *table, unsigned places, struct soft_cm_tcp_origin from,
                            uint64_t now) {
    for (unsigned i = 0; i < places; i++) {
        if (soft_cm_tcp_same_origin(table[i].from, from))
            return is_remembered(&table[i], now) ? &table[i] : NULL;
    }
    return NULL;
}

/*
 * Its own place, if it has one; or that of an origin that is forgotten; or that of the origin with the fewest wrong keys,
 * and of those the one that was wrong longest ago.
 */
static struct guesser *place(struct guesser *table, unsigned places, struct soft_cm_tcp_origin from,
                             uint64_t now) {
    struct guesser *least = NULL;
    for (unsigned i = 0; i < places; i++) {
        struct guesser *one = &table[i];
        if (!is_remembered(one, now))
            one->wrong = 0;
        if (soft_cm_tcp_same_origin(one->from, from)) {
            least = one;
            break;
        }
        if (!least || one->wrong < least->wrong ||
            (one->wrong == least->wrong && one->last_ns < least->last_ns))
            least = one;
    }
    if (least->wrong == 0 || !soft_cm_tcp_same_origin(least->from, from))
        *least = (struct guesser){.from = from};
    return least;
}

/* ---- counting ------------------------------------------------------------------------------------------------ */

/* A wrong key, which counts against the limit or not. True: it counts where this is a part of, too. */
static bool add(struct guesser *one, bool counts, uint32_t limit, uint64_t now) {
    bool below = one->counted < limit;
    one->wrong += one->wrong < UINT32_MAX;
    one->counted += counts && below;
    one->last_ns = now;
    return counts && below;
}

void soft_cm_tcp_guessed(struct soft_cm_tcp_origin from, uint64_t now_ns) {
    if (from.low == 0)
        return;
    if (!is_remembered(&all, now_ns))
        all = (struct guesser){0};
    struct guesser *address = place(addresses, ADDRESSES, from, now_ns);
    struct guesser *prefix = place(prefixes, PREFIXES, prefix_of(from), now_ns);
    bool counts = add(address, true, ADDRESS_FREE, now_ns);
    counts = add(prefix, counts, PREFIX_FREE, now_ns);
    (void)add(&all, counts, ALL_FREE, now_ns);
}

/* ---- waiting ------------------------------------------------------------------------------------------------- */

/* The next after one that is read at `start`. What was not used for a while may come at once. */
static uint64_t next_after(uint64_t next, uint64_t start, uint64_t now, enum standing standing) {
    const struct pace *pace = &paces[standing];
    uint64_t since = now > pace->at_once_ns ? now - pace->at_once_ns : 0;
    if (start > now)
        return start + pace->each_ns;
    return (next > since ? next : since) + pace->each_ns;
}

bool soft_cm_tcp_guess_wait(struct soft_cm_tcp_origin from, uint64_t now_ns, uint64_t *wait_ns) {
    struct guesser *slow[3];
    unsigned count = 0;
    *wait_ns = 0;
    if (from.low == 0 || !is_remembered(&all, now_ns))
        return true;
    struct guesser *address = find(addresses, ADDRESSES, from, now_ns);
    struct guesser *prefix = find(prefixes, PREFIXES, prefix_of(from), now_ns);
    enum standing standing = address ? GUESSED : prefix ? NEIGHBOUR : UNKNOWN;
    if (address && address->counted >= ADDRESS_FREE)
        slow[count++] = address;
    if (prefix && prefix->counted >= PREFIX_FREE)
        slow[count++] = prefix;
    if (all.counted >= ALL_FREE)
        slow[count++] = &all;
    uint64_t start = now_ns;
    for (unsigned i = 0; i < count; i++) {
        if (slow[i]->next_ns[standing] > start)
            start = slow[i]->next_ns[standing];
    }
    if (start - now_ns > WAIT_MOST_NS)
        return false;
    for (unsigned i = 0; i < count; i++) {
        uint64_t *next = &slow[i]->next_ns[standing];
        *next = next_after(*next, start, now_ns, standing);
    }
    *wait_ns = start - now_ns;
    return true;
}
