/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stranger.h - a peer made by hand, on the software device of this process: a queue pair, memory, and what
 * it has heard, so that what it says next is right unless the fuzzer changes it.
 *
 * What a frame is made of stands in docs/protocol.md. Whatever it sends as payload is made of bytes of one
 * table (stranger_pattern()), and of each message that is in order it remembers which.
 *
 * Owner: the fuzzer's thread. One of them, opened once; a connection for each run.
 */
#ifndef TESTS_FUZZ_STRANGER_H
#define TESTS_FUZZ_STRANGER_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "core/wire/private_data.h"
#include "core/wire/frame.h"
#include "fuzz/fuzz.h"

#define STRANGER_FRAME 1024u
#define STRANGER_PAYLOAD (STRANGER_FRAME - FRAME_BYTES)
#define STRANGER_SLOTS 64u
#define STRANGER_RECEIVES 64u
#define STRANGER_SOURCE (1u << 18) /* bytes that others may read, and that never change */
#define STRANGER_TARGET (1u << 16) /* bytes that others may write */
#define STRANGER_KEY 7u            /* which both sides have, where they authenticate */
#define STRANGER_SECRET "0123456789abcdef0123456789abcdef"
#define STRANGER_NUMBERS 16u
#define STRANGER_SAID 128u
#define STRANGER_ASKED 64u

/* A message that it sent, to be held against what is delivered. */
struct stranger_word {
    uint8_t type; /* DATA, REQUEST or REPLY; 0: it was delivered */
    bool loose;   /* not all of its bytes were sent: the rest is zero, or older ones of its own */
    uint32_t from;
    uint64_t bytes;
};

struct stranger_transfer {
    bool announced, ready;
    uint8_t way, type;
    uint32_t rkey, word; /* word: which message of mine; the id of their request */
    uint64_t address, bytes, done;
};

struct stranger {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener;
    uint16_t port;
    uint8_t *frames, *source, *target;
    struct ibv_mr *frames_mr, *source_mr, *target_mr;
    uint32_t runs;

    /* of a run, from here on */
    struct rdma_cm_id *id;
    bool up, gone, refused;
    struct private_data_req req;
    struct private_data_rep rep;
    uint32_t tx_sequence, rx_sequence, owed;
    int32_t credits, credits_max; /* below 0: it took some that it had not */
    uint32_t flying, next_slot;
    bool recalls, said_bye; /* RETURN is awaited; nothing may be said any more */
    int32_t recalled;       /* it may keep so many; 0: nobody asked */
    uint64_t partial, partial_done;
    uint32_t partial_word;
    uint32_t next_id, requests; /* of mine, without a reply */
    uint32_t asked[STRANGER_ASKED], asked_count;
    struct stranger_transfer mine[STRANGER_NUMBERS], theirs[STRANGER_NUMBERS];
    struct stranger_word said[STRANGER_SAID];
    uint32_t said_count, heard_next; /* ... of them delivered or passed over */
    bool trusted;                    /* nothing it has said so far was changed */
    uint32_t heard;                  /* frames */
    /* For rules.c. calm: all that was said was heard, on both sides; moving: of what is announced */
    bool calm, moving;
    bool broke;                        /* the last that it said breaks a rule for certain */
    uint32_t answering;                /* the request whose reply is being made */
    uint32_t answered, used;           /* bits: theirs that may be answered, mine that are in use */
    int32_t had_credits, was_recalled; /* before the frame that returns some */
};

/* One frame about to be said. */
struct stranger_frame {
    uint8_t *payload; /* STRANGER_PAYLOAD bytes */
    uint32_t slot;
    struct frame head; /* type, flags, length, total; the rest is seen to */
};

void stranger_open(struct stranger *st);
/* A fresh id that connects to this port with this REQ; or waits for a request, and answers it so. */
void stranger_dial(struct stranger *st, uint16_t port, const void *req, uint8_t bytes);
void stranger_answer(struct stranger *st, struct fuzz_input *in);
void stranger_expect(struct stranger *st); /* a connection: a run without dialing begins */
/* Whatever there is to hear, of the connection manager and of the queue pair. True: there was something. */
bool stranger_turn(struct stranger *st);
/* Something is on its way that somebody's poll will complete. */
bool stranger_busy(const struct stranger *st);
void stranger_leave(struct stranger *st);

const uint8_t *stranger_pattern(const struct stranger *st, uint32_t from);
/* Held against what it said. kind: frame_type of the message. */
void stranger_check(struct stranger *st, unsigned kind, const uint8_t *data, uint64_t bytes);

bool stranger_may(const struct stranger *st); /* its queue pair takes one more */
/* False: no room, or no credit, to say anything. flags: of the header; RESERVED takes no credit. */
bool stranger_begin(struct stranger *st, struct stranger_frame *f, unsigned type, unsigned flags,
                    struct fuzz_input *in);
/* Payload of so many bytes of the pattern; remembered as a message of that kind, if it is not 0. */
void stranger_fill(struct stranger *st, struct stranger_frame *f, uint32_t bytes, unsigned kind);
uint32_t stranger_note(struct stranger *st, unsigned kind, uint64_t bytes, uint32_t from);
/* Posts it, as the next bytes of the input have it changed. */
void stranger_say(struct stranger *st, struct stranger_frame *f, struct fuzz_input *in);
bool stranger_breaks(const struct stranger *st, const struct frame *f, const uint8_t *payload,
                     uint32_t bytes);
/* RDMA READ or WRITE, with immediate or not, at the other side's memory. */
void stranger_touch(struct stranger *st, enum ibv_wr_opcode opcode, uint64_t address, uint32_t rkey,
                    uint32_t from, uint32_t bytes, uint32_t immediate);

#endif
