/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * side.h - a side of an integration test or of its peer: a node, and a loop or worker handlers behind the
 * same calls; events that can be kept, patterns. Public interface only.
 *
 * Waiting never sleeps for a fixed time: it waits for events, up to LIMIT_NS.
 */
#ifndef TESTS_SUPPORT_SIDE_H
#define TESTS_SUPPORT_SIDE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sluice/memory.h>
#include <sluice/sluice.h>

#include "support/must.h"
#include "support/pattern.h"
#include "support/verdict.h"
#include "support/where.h"

#define LIMIT_NS 60000000000ull
#define MS 1000000ull

/* ---- patterns ----------------------------------------------------------------------------------- */

static inline uint8_t it_byte(size_t i, uint64_t seed) {
    return pattern_byte(i, seed);
}

/* A part of the pattern, in memory of this thread's own. */
#define IT_PART ((size_t)16384)

/* Until the next call of this thread, and IT_PART bytes at most. */
const uint8_t *it_pattern(size_t from, size_t bytes, uint64_t seed);
/* Writes the pattern into a message. */
void it_fill(sluice_msg *msg, uint64_t seed);
/* Whether a message is of this size and pattern; else it is wrong data. */
bool it_matches(const sluice_msg *msg, size_t bytes, uint64_t seed);
/* Sizes of a mixed stream: empty, tiny, one frame, several frames. */
size_t it_mixed(uint64_t i);

/* ---- a side ------------------------------------------------------------------------------------- */

struct note { /* an event with what it lent */
    sluice_event event;
    sluice_msg *msg; /* ours */
    char peer[64];
    sluice_session_info info; /* UP and CLOSED */
    struct note *next;
};

struct side {
    bool handlers; /* a worker calls; else the test polls the loop */
    sluice_node *node;
    sluice_loop *loop;
    struct side *partner; /* polled while we wait, if it has a loop */
    _Atomic unsigned
        listeners_lost; /* events of listeners: they are counted, and come where they like */
    pthread_mutex_t lock;
    struct note *head, **tail; /* handlers: what was delivered */
    int bell;                  /* eventfd, one count per note */
};

/* Of a listener whose device is gone: there is no session with that id. */
bool side_of_listener(const sluice_event *event);
/* A node with one worker, or with a loop that the test polls. */
void side_open(struct side *side, bool handlers, const sluice_node_options *given);
/* Options for sessions of this side. */
sluice_link_options side_link(struct side *side, const sluice_link_options *given);
/* The next event if there is one now. */
bool side_take(struct side *side, struct note *out);
/* Readable when there may be an event. */
int side_fd(struct side *side);
/* Closes the node; no message found no receive posted, but where that was provoked. */
void side_close(struct side *side, uint64_t grace_ns);
/* Frees the note's message. */
void note_free(struct note *note);

/*
 * The next event, sleeping on the descriptor meanwhile; false when limit_ns passed. A partner that
 * is polled by the same thread makes progress, and its events wait there.
 */
bool side_next(struct side *side, struct note *out, uint64_t limit_ns);
/* The next event, which is of this type. */
struct note side_expect(struct side *side, sluice_event_type type);
/* Whether it is of this type; if not, says what it is. */
bool side_is(const struct note *note, sluice_event_type type);
/* CLOSED for this reason, and nothing else. */
void side_expect_closed(struct side *side, sluice_reason reason);

/*
 * No event, not in the loop's next turns either: what was put off by a turn would come before the second wake. Handlers
 * run on loops that nobody else can wake: there it is no event for a while that is long for any hand-over.
 */
void side_expect_nothing(struct side *side);
/* So many sessions end with the device, the one send with that tag has its outcome, and nothing more comes. */
void side_expect_removed(struct side *side, unsigned sessions, uint64_t tag);
/* So many listeners ended with the device, and no more. */
void side_expect_listeners_lost(struct side *side, unsigned count);
/* Listens on a free port, which it returns. */
int side_listen(struct side *side, const sluice_link_options *given, sluice_listener *out);
/* Dials that port of it_host(). */
sluice_session side_dial(struct side *side, int port, const sluice_link_options *given);
/* Sends a message of that pattern; the status of sluice_send(). */
int side_send(struct side *side, sluice_session session, size_t bytes, uint64_t seed, uint64_t tag);
/* What a node tells of itself. */
sluice_node_info side_node_info(sluice_node *node);

/* Two sides of one process, connected. */
struct couple {
    struct side a, b; /* a listens, b dials */
    sluice_session at_a, at_b;
    sluice_listener listener;
    int port;
};

/* Two sides. */
void couple_open(struct couple *c, bool handlers, const sluice_node_options *node);
/* A session between them, UP on both. */
void couple_connect(struct couple *c, const sluice_link_options *link);
/* Closes both. */
void couple_close(struct couple *c);

/* A test that is run in both modes: polled, and by handlers. */
#define BOTH_MODES(name)                                                                           \
    TEST_EACH(name, {#name "/polled", name, NULL, NULL, (void *)(uintptr_t)0},                     \
              {#name "/handlers", name, NULL, NULL, (void *)(uintptr_t)1})
#define handlers_of(state) (*(state) != NULL)

#endif
