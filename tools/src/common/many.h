/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * many.h - the further sessions between a client and a server of these tools, beside the one over which they talk.
 *
 * The client's PLAN says how many sessions it wants. The server's READY gives it a token, which it shows with each further
 * dial: so the server knows whose these are. They live until the client leaves. The argument of a session is its number,
 * that of the one over which they talk is 0.
 *
 * Owner: the main thread.
 */
#ifndef MANY_H
#define MANY_H

#include <stdbool.h>
#include <stdint.h>

#include <sluice/sluice.h>

struct endpoint;

struct many {
    sluice_session *session; /* all, by number; NULL: there is only the one */
    uint32_t count;          /* of all; 0: there is only the one */
    uint32_t known;          /* of these, dialed or accepted */
    uint32_t up;             /* of these, without the first */
    uint64_t token;
    bool running; /* data is on its way: none of them may end */
};

static inline uint32_t many_number(const sluice_event *event) {
    return (uint32_t)(uintptr_t)event->arg;
}

#define MANY_DIAL_NS UINT64_C(60000000000) /* for all of them to be opened */
#define MANY_END_NS UINT64_C(20000000000)  /* and to be ended */

/* All of them can be sent on. */
static inline bool many_are_up(const struct many *m) {
    return m->up + 1 >= m->count;
}

/* Server: the client wants so many in all. 0, or a status after saying what is wrong, here and to the client. */
int many_expect(struct endpoint *ep, uint64_t count);
/* Client: opens them, and waits until all are up. 0, or a status after saying what went wrong. */
int many_dial(struct endpoint *ep, uint64_t count, uint64_t token);
/* Server: true if it is one of them that connects, and is accepted, or one of another client's, and is refused. */
bool many_takes(struct endpoint *ep, const sluice_event *event);
/* UP or CLOSED of a session whose number is not 0. */
void many_event(struct endpoint *ep, const sluice_event *event);
/* Ends all but the first, and waits for that for a bounded time: not for long behind a failure. */
void many_end(struct endpoint *ep);

#endif
