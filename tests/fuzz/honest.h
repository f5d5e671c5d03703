/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * honest.h - a session of the real library and an application that uses it by the rules, turn by turn on the
 * fuzzer's thread, with a clock that stands still; and an account of what it is owed, which is settled at
 * the end of each run: one outcome for everything that was accepted, one CLOSED, nothing left.
 *
 * Everything the application writes is HONEST_SECRET bytes: none of it may come back to it as a message.
 */
#ifndef TESTS_FUZZ_HONEST_H
#define TESTS_FUZZ_HONEST_H

#include <sluice/memory.h>
#include <sluice/sluice.h>

#include "core/session.h"
#include "fuzz/fuzz.h"
#include "node/node.h"

#define HONEST_FRAME 1024u
#define HONEST_MESSAGE (1u << 17) /* the largest */
#define HONEST_RENDEZVOUS 4000u   /* above it */
#define HONEST_REGION (1u << 16)
#define HONEST_SECRET 0x5a
#define HONEST_TAGS 160u
#define HONEST_TOKENS 64u
#define HONEST_KEPT 24u

/* How it listens, and a dialer likewise. */
enum honest_link { LINK_PLAIN, LINK_FEW, LINK_PLACE, LINK_ASK, LINK_KEY, LINKS };

struct honest {
    sluice_node *node;
    sluice_loop *loop;
    sluice_region *region;
    uint16_t port[LINKS];

    /* of a run, from here on */
    sluice_session session; /* id 0: the application has none */
    bool up, asked, keeps;
    uint32_t closed;
    sluice_reason reason;
    char why[124];
    struct {
        uint8_t accepted, ended; /* enum honest_deed; times */
    } deed[HONEST_TAGS];
    uint32_t deeds;
    sluice_msg *kept[HONEST_KEPT];
    uint32_t kept_count;
    uint64_t token[HONEST_TOKENS], place[HONEST_TOKENS]; /* requests to answer; LARGE to place */
    uint32_t token_count, place_count;
    uint32_t messages, requests, replies, sent, done; /* events */
};

enum honest_deed { DEED_NONE, DEED_SEND, DEED_REQUEST, DEED_ONE_SIDED };

void honest_open(struct honest *h, sluice_rendezvous way);
void honest_begin(struct honest *h);
void honest_dial(struct honest *h, uint16_t port, enum honest_link link);
bool honest_turn(struct honest *h);
bool honest_busy(const struct honest *h);
bool honest_connected(const struct honest *h);
void honest_pass(uint64_t ns); /* time */
struct session *honest_session(const struct honest *h);
/* Nothing of the session is left; proves the account. */
bool honest_over(const struct honest *h);
void honest_settle(struct honest *h);
/* Holds in any moment between two turns. */
void honest_prove(const struct honest *h);
/* What is delivered is given to it. */
extern void (*honest_heard)(unsigned kind, const uint8_t *data, uint64_t bytes);

/* deed.c: what an application may do; each takes what it needs to know of the input. */
void honest_send(struct honest *h, uint64_t bytes, bool tagged, uint64_t deadline_ns, bool more);
void honest_request(struct honest *h, uint64_t bytes, uint64_t deadline_ns);
void honest_reply(struct honest *h, struct fuzz_input *in);
void honest_free(struct honest *h, struct fuzz_input *in);
void honest_cancel(struct honest *h, struct fuzz_input *in);
void honest_place(struct honest *h, struct fuzz_input *in);
void honest_decide(struct honest *h, struct fuzz_input *in);
/* An operation on memory of the peer's, of which it was given a token in some other way. */
void honest_reach(struct honest *h, uint64_t address, uint32_t rkey, struct fuzz_input *in);

#endif
