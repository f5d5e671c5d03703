/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * race.h - a dialer (dial.h) over TCP that has several addresses, and a test that holds what they answer: a held try
 * asks its host when the test lets it, so which answers when is no matter of time.
 */
#ifndef TESTS_SUPPORT_RACE_H
#define TESTS_SUPPORT_RACE_H

#include "support/dial.h"

#include <unistd.h>

extern struct race {
    uint32_t
        held; /* a bit for each try, in the order in which they ask their hosts, whose question is held */
    unsigned asked;
    struct rdma_cm_id *ids[DIALER_TRIES]; /* NULL: its question is not held any more */
    struct rdma_event_channel *channel;   /* of the dialer's connections */
    unsigned alive;                       /* its ids */
} race;

/* The set-up of PAIR_WITH: the dialer, over TCP. */
int race_opened(void **state);
struct cm_conn *race_conn(struct pair *p);
/* So many tries wait for their hosts. */
void race_await(struct pair *p, unsigned asked);
/* The question of that try is asked. */
void race_let(unsigned number);
/* The dialer has the id of its session and no other; the listener got one request, and its application one session. */
void race_expect_one_session(struct pair *p);

#endif
