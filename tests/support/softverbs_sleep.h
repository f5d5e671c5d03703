/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_sleep.h - what the tests of sleeping threads share: a pair of queue pairs over sockets or rings, and a thread
 * that sleeps on what its CQ's queue pairs are told by, itself (soft_sleep_begin).
 */
#ifndef TESTS_SUPPORT_SOFTVERBS_SLEEP_H
#define TESTS_SUPPORT_SOFTVERBS_SLEEP_H

#include "support/softverbs_tcp.h"

enum sleep_way { SLEEP_ON_SOCKETS, SLEEP_ON_BELLS };

extern const struct tcp_options sleep_options;
extern struct tcp_pair sleep_pair;

/* Setup and teardown; *state points to the way. */
int sleep_open(void **state);
int sleep_shut(void **state);
#define SLEEP_TEST(fn, way)                                                                        \
    { #fn " (" #way ")", fn, sleep_open, sleep_shut, &(way) }

/* The thread that polls this end may sleep; *fd, what it sleeps on besides. */
bool sleep_end_may(struct sv_end *e, enum sleep_way way, int *fd);
/* sleep_end_may() of b. */
bool sleep_may(enum sleep_way way, int *fd);
/* This end has a bell, and the other knows. */
bool sleep_has_bell(struct sv_end *e, const struct sv_end *other);
/* What the page says of b's CQ. */
uint32_t sleep_armed_word(void);

struct sleeper {
    enum sleep_way way;
    struct sv_end *e;
    pthread_t thread;
    int epoll_fd, set; /* what it sleeps on, and what is in that of the device's; -1: nothing yet */
    struct ibv_wc wc;
    _Atomic unsigned naps; /* it is asleep, or about to be, for so many times */
    bool told;             /* the channel had an event */
    _Atomic bool over;
};

void sleeper_open(struct sleeper *s, struct sv_end *e, enum sleep_way way);
/* Sleeps until something completed. */
void sleep_until_completion(struct sleeper *s);
/* A thread of its own does that at b; when it returns it is about to sleep. */
void sleeper_start(struct sleeper *s, void **state);
/* It is over; meanwhile a is polled. */
void sleeper_join(struct sleeper *s);

#endif
