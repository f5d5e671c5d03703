/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * far_flow.h - messages of all sizes that go to the other host and come back, through whatever is done to the
 * network meanwhile: each comes back once, in its order and unchanged, and has one outcome. One thread.
 */
#ifndef TESTS_SUPPORT_FAR_FLOW_H
#define TESTS_SUPPORT_FAR_FLOW_H

#include "support/far.h"
#include "support/tally.h"

#define FLOW_AHEAD 24                     /* messages on their way and back */
#define FLOW_SILENCE_NS (150 * 1000 * MS) /* longer than anything that heals is away */

struct far_flow {
    struct side side;
    struct peer peer;
    struct tally seen;
    int port;
};

/* Sends on until so many are back, or the clock says so, or the session ended. */
void far_flow_on(struct far_flow *f, uint64_t goal, uint64_t until_ns);
/* That reason is what a lost peer gives. */
bool far_flow_lost(int reason);
/* How it ended, and how long after something. */
void far_flow_told(const struct far_flow *f, const char *what, uint64_t since_ns);
/* So many messages there and back. */
void far_flow_messages(struct far_flow *f, uint64_t count);
/* Asks for a new session; it is up, or `closed` says that it is not. */
void far_flow_try(struct far_flow *f, uint64_t keepalive_ns, uint64_t timeout_ns);

/* With time for hosts that do not know each other's MAC: the kernel's connection manager repeats what got
 * lost meanwhile every four seconds. */
void far_flow_dial(struct far_flow *f, uint64_t keepalive_ns);
/* The program over there that sends everything back, and a session with it. */
void far_flow_begin(struct far_flow *f, uint64_t keepalive_ns);
/* A session with an echo over there. */
void far_flow_open(struct far_flow *f, bool handlers, uint64_t keepalive_ns);
/* An orderly end of the session: what was sent is there, and came back. */
void far_flow_hang_up(struct far_flow *f);
/* Ends it. */
void far_flow_close(struct far_flow *f);

#endif
