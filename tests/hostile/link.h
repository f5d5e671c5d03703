/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * link.h - a connection to a victim's node made by hand: records, queue pair and frames are ours, so that each of
 * them can be wrong. One thread; a process has one event channel, and may have a listener.
 */
#ifndef HOSTILE_LINK_H
#define HOSTILE_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/wire/private_data.h"
#include "core/wire/frame.h"
#include "fabric/fabric.h"

#define LINK_STEP_NS 3000000000ull /* an answer takes that long at most */
#define LINK_END_NS 600000000ull   /* longer than the other side is patient */
#define LINK_FRAME 4096u           /* agreed: header and payload */
#define LINK_MESSAGE_MAX (1u << 20)

struct link_terms {
    uint32_t features;
    bool deaf; /* posts no receives */
    /* What is done to a record of at most so many bytes before it is sent. */
    void (*tamper)(uint8_t *data, uint8_t *bytes, unsigned most);
};

struct link {
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    uint8_t *buffer;
    uint8_t session_id[16]; /* of a dialer that asked */
    unsigned next;          /* of its places */
    uint32_t sequence;      /* of the last numbered frame that was posted in order */
    struct {                /* what came, by type: the last of them */
        unsigned count;
        struct frame frame;
        uint64_t word[5]; /* the beginning of its payload */
    } heard[FRAME_TYPES];
    unsigned done; /* one-sided operations that completed, however */
    enum ibv_wc_status status;
};

/* The process kills itself when it has come so far; the first ones are in link_dial() and link_establish(). */
void link_dies_at(unsigned step);
void link_step(unsigned step);

void link_start(void);
void link_stop(void);

/* The type of the next event of a connection within wait_ns, or -1. Ends the process when its input ends. */
int link_event(uint64_t wait_ns);
/* Until the other side has ended it, or wait_ns passed without an event. */
void link_wait_for_the_end(uint64_t wait_ns);
/* Whether there is an event. */
bool link_has_news(void);

/* True: it was answered, and link_establish() is what is missing. Either way to be closed. */
bool link_dial(struct link *l, unsigned port, const struct link_terms *terms);
bool link_establish(struct link *l);

/* Returns the port. */
unsigned link_listen(void);
void link_unlisten(void);
/* Waits for a request. False: whoever asked is gone. Either way to be closed. */
bool link_asked(struct link *l, const struct link_terms *terms);
bool link_accept(struct link *l, const struct link_terms *terms);
void link_refuse(struct link *l, const struct link_terms *terms);

/* The other side has had enough. */
bool link_ended(struct link *l);
void link_close(struct link *l);

/* A frame of so many bytes; what is behind its header is the caller's (link_place()), or whatever lay there. */
uint8_t *link_place(struct link *l);
bool link_post(struct link *l, const struct frame *f, size_t bytes, enum ibv_wr_opcode opcode);
/* Posts a frame with the next sequence number of its type, and exactly the payload that the header says. */
bool link_say(struct link *l, struct frame f, const void *payload);
/* WRITE of nothing with this immediate. */
bool link_write_nothing(struct link *l, uint32_t immediate);
/* An access of 8 bytes by key; its completion is counted in `done`. */
bool link_reach(struct link *l, enum ibv_wr_opcode opcode, uint64_t address, uint32_t rkey);
/* Takes what came. */
void link_poll(struct link *l);
/* Until a frame of that type has come, for a bounded time. */
bool link_hear(struct link *l, enum frame_type type);

#endif
