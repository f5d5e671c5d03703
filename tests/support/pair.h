/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pair.h - two nodes in one thread: no thread of the library runs, the test takes every turn of
 * both CM threads and both loops itself, and owns the clock. Only the software device between them
 * works on its own, so waiting has a limit in real time.
 */
#ifndef TESTS_SUPPORT_PAIR_H
#define TESTS_SUPPORT_PAIR_H

#include "support/test.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cm/listen.h"
#include "core/techniques.h"
#include "node/node.h"
#include "soft/soft.h"
#include "support/verdict.h"
#include "core/wire/frame.h"
#include "datapath/rx/credits.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/tx/post.h"

#define PAIR_LIMIT_NS 20000000000ull /* far above what a loaded machine with a sanitizer needs */

extern uint64_t pair_clock;  /* nanoseconds the test has added to the real clock */
extern uint64_t pair_frozen; /* not 0: the time stands still there, but for what is added */
extern uint64_t pair_step;   /* added by every look at the clock */

/* Called by every look at the clock, but not by its own: in the middle of a turn, too. */
extern void (*pair_on_clock)(void);
/* The clock of both nodes. */
uint64_t pair_now(void *arg);

extern _Atomic uint32_t pair_random_next; /* set back, the same numbers come again */

/* Random numbers of both nodes: a sequence, not chance. */
bool pair_random(void *arg, void *out, size_t bytes);

extern const struct sluice_env pair_env;
/* No message ever finds no receive posted, but where a test brings that about and says so. */
extern bool pair_rnr_provoked;

struct side {
    sluice_node *node;
    sluice_loop *loop;
    sluice_session session;
    uint32_t closed;         /* CLOSED events of sessions seen */
    uint32_t listeners_lost; /* of listeners: they are counted, and come where they like */
};

struct pair {
    struct side a, b; /* a listens, b dials */
    sluice_listener listener;
    char address[64];
};

/* The software device is like that one. */
bool pair_is_like(const char *profile);

/* How large messages can go there: READ, and WRITE where a WRITE can bring immediate data. */
#define PAIR_WAYS (pair_is_like("iwarp") ? 1u : 2u)

/* Asked for, as it is on the software device: other devices have another switch. */
#define PAIR_LARGE 8192u

/* What the environment says, or the usual. */
const char *pair_env_or(const char *name, const char *usual);
/* A node without threads, and its loop. */
void pair_open_side(struct side *side, const sluice_node_options *given);
/* On p->a, at a free port; p->address says where. */
void pair_listen(struct pair *p, const sluice_link_options *given);
/* From p->b to p->address. */
void pair_dial(struct pair *p, const sluice_link_options *given);
/* One turn of everything that makes no events; the loops only make progress. */
void pair_turn(struct pair *p);
/* Of a listener whose device is gone. */
bool pair_of_listener(const sluice_event *event);
/* Keeps what an event says about this side. */
void pair_note(struct side *side, const sluice_event *event);
/* The next event of one side, the other making progress; false when the limit passed. */
bool pair_next(struct pair *p, struct side *side, sluice_event *event);
/* The next event of one side, which is of this type. */
sluice_event pair_expect(struct pair *p, struct side *side, sluice_event_type type);
/* Nothing comes on this side for a good number of turns. */
void pair_expect_nothing(struct pair *p, struct side *side);
/* What the nodes of the next pair_open() leave out: bits of core/techniques.h. */
void pair_without(uint32_t without);
/* Two nodes, the first listening. */
void pair_open(struct pair *p, const sluice_node_options *node, const sluice_link_options *link);
/* One session, UP on both sides. */
void pair_connect(struct pair *p, const sluice_link_options *link);
/* Closes both nodes; no message found no receive posted, but where that was provoked. */
void pair_close(struct pair *p);
/* A test that finds a pair in *state, with nothing asked for, opened or connected, and leaves it to be closed. */
#define PAIR_WITH(set_up, name) TEST_WITH(set_up, pair_closed, name)
int pair_opened(void **state);
int pair_connected(void **state);
int pair_closed(void **state);
/* The record of a side's session. */
struct session *pair_session(struct side *side);
/* What the session tells of itself. */
sluice_session_info pair_info(sluice_session session);
/* Dials that name at the listener's port. */
void pair_dial_name(struct pair *p, const char *name, const sluice_link_options *given);
/* So many turns of everything. */
void pair_turns(struct pair *p, unsigned count);

/*
 * Posts so many bytes of a frame by hand, the header first. Its buffer is left to the node, for the device may still
 * read it.
 */
void pair_raw_frame(struct side *side, const struct frame *f, size_t bytes);

/*
 * Posts a frame of this type as if the session had sent it last, with that much in its payload; sequence and credits
 * are the caller's. Returns its buffer, to be freed when the device has read it.
 */
sluice_msg *pair_forge(struct side *side, const struct frame *f, const void *payload, size_t bytes);

/* Turns of everything until that is so. */
#define pair_await(p, condition)                                                                   \
    do {                                                                                           \
        uint64_t limit_ = env_now(&env_default) + PAIR_LIMIT_NS;                                   \
        while (!(condition)) {                                                                     \
            pair_turn(p);                                                                          \
            sched_yield();                                                                         \
            if (env_now(&env_default) > limit_)                                                    \
                fail_msg("never came: %s", #condition);                                            \
        }                                                                                          \
    } while (0)

#define PAIR_NODE(...) (&(sluice_node_options){.size = 0, __VA_ARGS__})
#define PAIR_LINK(...) (&(sluice_link_options){.size = 0, __VA_ARGS__})

/*
 * Byte i of pattern `seed` is seed + i * 7 + (i >> 8), modulo 256. It repeats after PAIR_PATTERN bytes, and
 * a seed only moves its beginning, so that one table holds them all: megabytes are compared as memory.
 */
#define PAIR_PATTERN ((size_t)65536)

/* PAIR_PATTERN bytes of it. */
const uint8_t *pair_pattern(unsigned seed);
/* Writes the pattern. */
void pair_fill_bytes(uint8_t *at, size_t bytes, unsigned seed);
/* Whether it is there. */
bool pair_holds(const uint8_t *at, size_t bytes, unsigned seed);
/* Writes the pattern into a message. */
void pair_fill(sluice_msg *msg, unsigned seed);
/* Whether a message is of this size and pattern; else it is wrong data. */
bool pair_check(const sluice_msg *msg, size_t bytes, unsigned seed);
/* Sends a new message of that pattern; the status of sluice_send(). */
int pair_send(struct side *side, size_t bytes, unsigned seed, const sluice_send_options *o);

/*
 * The sender gets all the credits it can have, as if it had used what it had again and again, and
 * knows of them.
 */
void pair_grant_all(struct pair *p, struct session *sender, struct session *receiver);

#endif
