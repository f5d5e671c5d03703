/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * session_walk.h - two nodes and some sessions between them, what was accepted on each, what was told of it and what was
 * delivered: every event is judged when it comes. For a walk that chooses at random what both sides do.
 *
 * What is wrong is told by verdict_wrong_data(), with the seed and the plan of faults that find it again. One walk at a time.
 */
#ifndef TESTS_SUPPORT_SESSION_WALK_H
#define TESTS_SUPPORT_SESSION_WALK_H

#include "support/pair.h"

enum {
    WALK_SESSIONS = 3,
    WALK_MESSAGES = 512, /* of one direction */
    WALK_REQUESTS = 64,
    WALK_KEPT = 4,
    WALK_LARGE = 8000 /* nothing above it goes in one frame */
};
enum { WALK_UNTOLD = 1 }; /* no outcome yet: no status is positive */

/* What an end does, for a whole walk. */
enum walk_tags { TAGS_NONE, TAGS_HALF, TAGS_ALL, TAGS_KINDS };
enum walk_sizes { SIZES_MIXED, SIZES_SMALL, SIZES_SMALL_AND_LARGE, SIZES_KINDS };

/* One end of a session. */
struct walk_end {
    enum walk_tags tags;
    enum walk_sizes sizes;
    bool talks;  /* asks */
    bool silent; /* sends nothing of its own */
    sluice_session handle;
    bool dialed, up, closed, hungup, waits;
    bool gracious; /* it hung up with time enough */
    sluice_reason reason;
    unsigned sent, told, received; /* accepted; tagged outcomes; delivered */
    int8_t outcome
        [WALK_MESSAGES]; /* of a tagged send: 0, a status or WALK_UNTOLD; untagged: WALK_UNTOLD */
    bool tagged[WALK_MESSAGES];
    unsigned asked, answered; /* requests of mine */
    unsigned heard;           /* of the peer */
    bool has_answer[WALK_REQUESTS], is_large[WALK_REQUESTS];
    uint64_t tokens[WALK_REQUESTS]; /* of requests that are not answered yet */
    unsigned token_count;
    sluice_msg *kept[WALK_KEPT];
    unsigned kept_count;
};

struct walk {
    uint64_t seed, random;
    struct pair p;
    sluice_listener listeners[WALK_SESSIONS];
    char addresses[WALK_SESSIONS][64];
    struct walk_end ends[2][WALK_SESSIONS]; /* of a, of b */
    uint64_t resume_ns;                     /* kept until acknowledged, or not */
    uint64_t keepalive_ns;                  /* off, no word of its own helps what stands still */
    bool sleepers;                          /* sides sleep now and then */
    bool unconfirmed;                       /* a listener's session breaks before it is confirmed */
    bool breaks_nothing;                    /* the plan loses and delays what is made up for */
    bool stays;                             /* no side hangs up before all was tried */
    bool sleeps_first;                      /* the listener, when a dialer is up */
    bool one_way;       /* only dialers send, tag nothing, and have a window of bytes */
    unsigned asleep[2]; /* steps that a side has still to sleep */
    const char *plan;
    char plan_text[256];
};
extern struct walk walk;

/* Of all walks: that something was tried at all. */
extern struct walk_seen {
    unsigned sent, acknowledged, delivered, answers, waits, ups, broken;
} walk_seen;

/* The side of an end: 0 a, which listens; 1 b, which dials. */
struct side *walk_side(unsigned who);
/* The walk's next random number, below that. */
uint64_t walk_random(uint64_t below);
/* The size of a message of this end, by its number. */
size_t walk_size_of(unsigned who, unsigned i, unsigned number);
/* Sends the next message. False: no memory, or the session refused it. */
bool walk_send(unsigned who, unsigned i);
/* Sends a request; answers one, if there is any. */
void walk_ask(unsigned who, unsigned i);
void walk_answer(unsigned who, unsigned i);
/* Frees the messages that the end kept. */
void walk_drop_kept(struct walk_end *end);
/* The side goes on: its CM thread's turn, and a poll of its loop. */
void walk_turn(unsigned who);

#define WALK_WRONG(...)                                                                            \
    do {                                                                                           \
        print_error("SLUICE_TEST_SEED=%llu plan \"%s\"\n", (unsigned long long)walk.seed,          \
                    walk.plan);                                                                    \
        verdict_wrong_data(__VA_ARGS__);                                                           \
    } while (0)

#endif
