/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rndv.h - what the files that move large messages share; docs/protocol.md has the rules.
 *
 *   rndv.c   what both directions need; posting
 *   rndv_tx.c     sender: places for messages that were announced, until the peer has them
 *   rndv_rx.c      receiver: announcements, and the memory they go to
 *   deliver.c      receiver: what is there, in its turn; where the application wants it
 *
 * A message at the sender is `departing`: its place is its rendezvous number. At the receiver it is an
 * `arrival` until it was delivered, which is in the order of the announcements; its number is the
 * sender's again earlier, with TAKEN or the last WRITE. So there are more arrivals than numbers; the
 * number is not given back while too many wait for the application.
 *
 * Everything is posted by rendezvous_flush(), at the end of a turn, as far as credits, send queue and this
 * turn's share of bytes go. What ends a wait makes the session dirty.
 *
 * Owner: the loop's thread.
 */
#ifndef DATAPATH_RNDV_RNDV_H
#define DATAPATH_RNDV_RNDV_H

#include "datapath/tx/post.h"
#include "datapath/rndv/mw.h"

#define NUMBERS 16u              /* rendezvous numbers of one direction */
#define ARRIVALS 48u             /* NUMBERS under way, and these many that wait to be delivered */
#define CHUNK_BYTES (256u << 10) /* of one READ or WRITE */
#define TURN_NIC (1u << 20)      /* READ or written for one session in one turn, about */
#define TURN_SOFTWARE                                                                              \
    (1u << 17) /* where a READ is a copy by this CPU: no more than its cache holds */
#define WAY_READ 1u
#define WAY_WRITE 2u
#define OUTCOME_TAKEN 0u
#define OUTCOME_NO_MEMORY 1u

/* Of a message made of pieces: where one lies. */
struct part {
    uint64_t addr, bytes;
    const struct sluice_region *region; /* held; NULL: in the message's block, or reg */
    struct reg *reg;                    /* pinned: of plain memory that is sent in place */
    uint32_t lkey;
};

enum departing_state {
    DEPARTING_FREE,
    DEPARTING_ANNOUNCED, /* the peer's answer is awaited */
    DEPARTING_WRITING,   /* READY came */
    DEPARTING_WRITTEN,   /* the last WRITE is posted */
    DEPARTING_TAKEN,     /* TAKEN came: the key is to be taken back */
    DEPARTING_CLOSING,   /* that is posted */
};

struct departing {
    uint8_t state; /* enum departing_state */
    uint8_t way;
    bool counted;          /* the window of the session has its bytes still */
    sluice_status outcome; /* from TAKEN on */
    struct sluice_msg *msg;
    const struct part *parts; /* pieces: in the message; NULL: its payload is what is sent */
    uint32_t part_count;
    uint64_t offset; /* WRITE: posted so far */
    uint64_t address;
    uint32_t rkey;
    uint64_t order;
    struct window window; /* READ */
};

enum arrival_state {
    ARRIVAL_FREE,
    ARRIVAL_ASK,     /* the application says where, once it is this one's turn */
    ARRIVAL_ASKED,   /* LARGE was delivered */
    ARRIVAL_WAITS,   /* for memory */
    ARRIVAL_BEGINS,  /* WRITE: READY is to be posted */
    ARRIVAL_MOVES,   /* READs are posted, or the peer WRITEs */
    ARRIVAL_CLOSES,  /* WRITE: it is there, the key is to be taken back */
    ARRIVAL_CLOSING, /* that is posted */
    ARRIVAL_HERE,    /* complete */
    ARRIVAL_REFUSED, /* there can be no memory for it */
    ARRIVAL_FAILED,  /* the session ended before it was there */
    ARRIVAL_DONE,    /* delivered; its number is in use until TAKEN is posted */
};

struct arrival {
    uint8_t state; /* enum arrival_state */
    uint8_t way, type, number;
    bool answer;     /* TAKEN is to be posted */
    bool numbered;   /* the number is in use */
    uint8_t outcome; /* of TAKEN */
    uint32_t rkey;
    uint32_t flying; /* READs posted and not completed */
    uint64_t address, bytes, total;
    uint64_t arrived_ns;          /* a request with a deadline was announced */
    uint64_t offset;              /* READ: posted so far */
    uint64_t wiped;               /* WRITE: so much of its memory is zeroed */
    struct sluice_msg *landing;   /* memory of the node */
    struct sluice_region *region; /* or of the application */
    uint64_t region_offset, token;
    struct window *window; /* WRITE, one of rendezvous.windows */
    struct window *sink;   /* READ: one of them too, where these must be opened to the peer */
    struct arrival *next;  /* in the order of the announcements */
};

struct rendezvous {
    struct departing out[NUMBERS];
    uint32_t out_count, out_writes; /* in use; of these by WRITE */
    uint64_t out_order;             /* the last one announced */
    struct arrival arrivals[ARRIVALS];
    struct arrival *first, **last; /* those not delivered */
    struct arrival *by_number[NUMBERS];
    uint32_t waiting;               /* arrivals without a number, not delivered */
    uint32_t ready;                 /* READY was posted, and not all was written */
    uint32_t flying;                /* READs posted and not completed */
    uint64_t landing_bytes;         /* of memory of the node, not delivered */
    uint64_t tokens;                /* given out with LARGE */
    bool todo;                      /* rendezvous_flush() may find something to post */
    bool wiping;                    /* goes on in the next turn, which is soon */
    struct window windows[NUMBERS]; /* of arrivals */
};

static inline void rendezvous_dirty(struct sluice_loop *l, struct session *s) {
    s->rendezvous->todo = true;
    loop_dirty(l, s);
}

/* The session's, made with the first large message. NULL: no memory, tried again. */
struct rendezvous *rendezvous_get(struct sluice_loop *l, struct session *s);
/* The session waits for memory. */
void rendezvous_retry(struct sluice_loop *l, struct session *s);
/* READs that may be outstanding: what both sides agreed on. */
uint32_t rendezvous_depth(const struct session *s);

/*
 * Posting. Room for one more request of mine in this batch (posting what is there if it is full), and
 * with a credit for a control frame; false: not now.
 */
bool rendezvous_room(struct sluice_loop *l, struct session *s, struct wr_batch *batch);
bool rendezvous_room_control(struct sluice_loop *l, struct session *s, struct wr_batch *batch);
/* A request with its entry: whose (NULL: nobody's) is told when it completed. */
struct ibv_send_wr *rendezvous_wr(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                  void *whose, uint64_t counted);
/* BIND or LOCAL_INV, as mw.c filled it in. */
void rendezvous_post_window(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                            const struct ibv_send_wr *as, void *whose, uint64_t counted);
/* A frame of these few bytes behind its header; flags and total are the header's. */
bool rendezvous_post_frame(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                           struct frame f, const uint64_t *payload);

/*
 * The next slice of a message of parts: up to `max` bytes from `offset` on, in two sges at most. Returns
 * how many bytes; *count sges are filled in.
 */
uint32_t rendezvous_slice(const struct part *parts, uint32_t part_count, uint64_t offset,
                          uint32_t max, struct ibv_sge out[2], unsigned *count);
/* How much of `bytes` the request at `offset` moves. */
static inline uint32_t rendezvous_chunk(uint64_t bytes, uint64_t offset) {
    uint64_t left = bytes - offset;
    return left < CHUNK_BYTES ? (uint32_t)left : CHUNK_BYTES;
}

/* ---- rndv_tx.c ------------------------------------------------------------------------------ */

/* Posts what can be; `bytes` are left of this turn's share. */
void departing_flush(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                     uint32_t *bytes);
void departing_completed(struct sluice_loop *l, struct session *s, struct departing *d,
                         sluice_status status);
void departing_end(struct sluice_loop *l, struct session *s);

/* ---- rndv_rx.c ------------------------------------------------------------------------------- */

void arrival_flush(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                   uint32_t *bytes);
void arrival_completed(struct sluice_loop *l, struct session *s, struct arrival *a,
                       sluice_status status);
void arrival_end(struct sluice_loop *l, struct session *s);
void arrival_drop(struct sluice_loop *l, struct session *s);
/* For deliver.c. It was delivered, or nobody gets it; the memory it was to go to, or lies in. */
void arrival_done(struct sluice_loop *l, struct session *s, struct arrival *a);
void arrival_let_go(struct sluice_loop *l, struct session *s, struct arrival *a);

#endif
