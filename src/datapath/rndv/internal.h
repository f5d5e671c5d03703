/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * internal.h - what the files that move large messages share; docs/protocol.md has the rules.
 *
 *   rndv.c         what both directions need; posting
 *   rts.c     sender: announces
 *   outgoing.c      sender: messages that were announced, until the peer has them
 *   incoming.c      receiver: announcements, and the memory they go to
 *   again.c   both: what becomes of it when the connection is lost, and another one takes its place
 *   copy.c    receiver: those that it copies by itself
 *   ats.c  receiver: tells the sender which it has
 *   deliver.c      receiver: delivers in order; asks the application where a message goes
 *
 * A message at the sender is a `struct rndv_tx`: its index is its rendezvous number. At the receiver it is a
 * `struct rndv_rx` until it was delivered, which is in the order of the announcements; its number is the
 * sender's again earlier, with ATS or the last WRITE. So there are more of these than numbers; the
 * number is not given back while too many wait for the application.
 *
 * Everything is posted by rndv_flush(), at the end of a turn, as far as credits, send queue and this
 * turn's share of bytes go. An event that ends a wait makes the session dirty.
 *
 * Owner: the loop's thread.
 */
#ifndef DATAPATH_RNDV_INTERNAL_H
#define DATAPATH_RNDV_INTERNAL_H

#include "core/region.h"
#include "core/wire/frame.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/mw.h"

struct iov_part;
struct wr_batch;

#define RNDV_NUMBERS 32u     /* rendezvous numbers of one direction, at most */
#define RNDV_NUMBERS_FEW 16u /* of a peer that does not know of more, or whose memory is shared */
#define RNDV_RX_MAX 64u /* RNDV_NUMBERS under way, and as many again that wait to be delivered */
#define RNDV_CHUNK_COPIED (256u << 10) /* of one READ or WRITE, where it is a copy by this CPU */
#define RNDV_CHUNK (1u << 20)          /* of one that is none */
#define RNDV_SHARE (1u << 20)          /* READ or written for one session in one turn, about */
#define RNDV_AT_ONCE (16u << 10)       /* copied as soon as it is announced, if nothing waits */
#define RNDV_SHARE_COPIED                                                                          \
    (1u << 17) /* where a READ is a copy by this CPU: no more than its cache holds */
#define RNDV_BY_READ 1u
#define RNDV_BY_WRITE 2u
#define RNDV_BY_COPY 3u /* as READ, but without a key: fabric.h, fetch */
#define RNDV_OUTCOME_OK 0u
#define RNDV_OUTCOME_NO_MEMORY 1u
#define RNDV_OUTCOME_SEVERAL 2u /* OK, of the numbers whose bits are set */

enum rndv_tx_state {
    RNDV_TX_FREE,
    RNDV_TX_RTS,     /* the peer's answer is awaited */
    RNDV_TX_WRITING, /* RTR came */
    RNDV_TX_WRITTEN, /* the last WRITE is posted */
    RNDV_TX_ATS,     /* ATS came: the key is to be taken back */
    RNDV_TX_CLOSING, /* that is posted */
    RNDV_TX_STATES
};

struct rndv_tx {
    uint8_t state; /* enum rndv_tx_state */
    uint8_t way;
    bool reserves;         /* WRITE: a credit, until the last is posted */
    bool again;            /* announced again: the peer may have had it before */
    bool counted;          /* the window of the session has its bytes still */
    sluice_status outcome; /* from ATS on */
    struct sluice_msg *msg;
    const struct iov_part *parts; /* pieces: in the message; NULL: its payload is what is sent */
    uint32_t part_count;
    uint64_t offset; /* WRITE: posted so far */
    uint64_t address;
    uint32_t rkey;
    uint64_t order;
    uint32_t sequence; /* of its RTS */
    struct mw mw;      /* READ */
};

enum rndv_rx_state {
    RNDV_RX_FREE,
    RNDV_RX_ASK,     /* the application says where, once it is this one's turn */
    RNDV_RX_ASKED,   /* LARGE was delivered */
    RNDV_RX_WAITS,   /* for memory */
    RNDV_RX_BEGINS,  /* WRITE: RTR is to be posted */
    RNDV_RX_MOVES,   /* READs are posted, or the peer WRITEs */
    RNDV_RX_CLOSES,  /* WRITE: it is there, the key is to be taken back */
    RNDV_RX_CLOSING, /* that is posted */
    RNDV_RX_HERE,    /* complete */
    RNDV_RX_REFUSED, /* there can be no memory for it */
    RNDV_RX_FAILED,  /* the session ended before it was there */
    RNDV_RX_DONE,    /* delivered; its number is in use until its sender is told */
};

struct rndv_rx {
    uint8_t state; /* enum rndv_rx_state */
    uint8_t way, type, number;
    bool answer;     /* its sender is to be told */
    bool numbered;   /* the number is in use */
    bool holds;      /* its landing counts as held: landing.c */
    bool stale;      /* its connection was lost, and its sender has not told where it is now */
    uint8_t outcome; /* of ATS */
    uint32_t rkey;
    uint32_t flying; /* READs posted and not completed */
    uint64_t address, bytes, total;
    uint32_t behind;              /* landing.begun, when it was announced */
    uint64_t arrived_ns;          /* a request with a deadline was announced */
    uint64_t offset;              /* READ: posted so far */
    uint64_t wiped;               /* WRITE: so much of its memory is zeroed */
    struct sluice_msg *landing;   /* memory of the node */
    struct sluice_region *region; /* or of the application */
    uint64_t region_offset, token;
    struct mw *mw;        /* WRITE, one of rndv.mws */
    struct mw *sink;      /* READ: one of them too, where these must be opened to the peer */
    struct rndv_rx *next; /* in the order of the announcements */
};

struct rndv {
    struct rndv_tx out[RNDV_NUMBERS];
    uint32_t out_in[RNDV_TX_STATES]; /* the numbers in each state, a bit each */
    uint32_t out_count, out_writes;  /* in use; of these by WRITE */
    uint32_t out_again, out_replay;  /* RTS: to be announced again; with their frames (again.c) */
    uint64_t out_order;              /* the last one announced */
    struct rndv_rx rx[RNDV_RX_MAX];
    struct rndv_rx *first, **last; /* those not delivered */
    struct rndv_rx *by_number[RNDV_NUMBERS];
    uint32_t taken;            /* numbers of messages that are here, of which to tell: a bit each */
    uint32_t refused;          /* numbers whose last message was, a bit each */
    uint32_t refuse;           /* of these, of which to tell again */
    uint32_t stale;            /* arrivals that are */
    uint32_t told_turn;        /* when an ATS told of some last */
    bool in_kind;              /* large messages follow large ones: of these the next RTS tells */
    bool is_late;              /* the session is in the loop's list of those that wait for it */
    struct session *late_next; /* in that list */
    uint32_t waiting;          /* arrivals without a number, not delivered */
    uint32_t ready;            /* RTR was posted, and not all was written */
    uint32_t flying;           /* READs posted and not completed */
    uint64_t landing_bytes;    /* of memory of the node, not delivered */
    uint64_t tokens;           /* given out with LARGE */
    bool todo;                 /* rndv_flush() may find something to post */
    bool goes_on;              /* in the next turn, which is soon: more to wipe or to copy */
    struct mw mws[RNDV_NUMBERS]; /* of arrivals */
};

_Static_assert(RNDV_NUMBERS == 32, "a bit each");

/* Where it goes to, and the key for that. */
static inline uint8_t *rndv_rx_place(const struct rndv_rx *a, uint32_t *lkey) {
    *lkey = a->region ? a->region->mr->lkey : a->landing->lkey;
    return a->region ? a->region->addr + a->region_offset : a->landing->data;
}

static inline void rndv_dirty(struct sluice_loop *l, struct session *s) {
    s->rndv->todo = true;
    loop_dirty(l, s);
}

/* The session has ended, or is without this connection, over which it posted just now. */
static inline bool rndv_is_over(const struct session *s, const struct connection *c) {
    return session_connection(s) != c || s->state < SESSION_UP || s->state > SESSION_FLUSHING;
}

/* How many rendezvous numbers the two sides agreed on, in each direction. */
uint32_t rndv_numbers(const struct session *s);
/* Answers may be gathered. */
bool rndv_agreed_answers(const struct session *s);

/* The session's, made with the first large message. NULL: no memory, tried again. */
struct rndv *rndv_get(struct sluice_loop *l, struct session *s);
/* The session waits for memory. */
void rndv_retry(struct sluice_loop *l, struct session *s);
/* READs that may be outstanding: what both sides agreed on. */
uint32_t rndv_depth(const struct session *s);

/*
 * Posting. Room for one more request of mine in this batch (posting what is there if it is full), and
 * with a credit for a control frame; false: not now.
 */
bool rndv_room(struct sluice_loop *l, struct session *s, struct wr_batch *batch);
bool rndv_room_control(struct sluice_loop *l, struct session *s, struct wr_batch *batch);
/* A work request with its entry: `whose` (NULL: no object) is told when it completed. */
struct ibv_send_wr *rndv_wr(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                            void *whose, uint64_t counted);
/* BIND or LOCAL_INV, as mw.c filled it in. */
void rndv_post_mw(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                  const struct ibv_send_wr *as, void *whose, uint64_t counted);
/* A frame of these few bytes behind its header; flags and total are the header's. */
bool rndv_post_frame(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                     struct frame f, const uint64_t *payload);
/*
 * Posts such a frame at once, where the device has a shorter way than a work request, nothing waits in a batch, and there
 * is a credit. False: nothing happened.
 */
bool rndv_post_words(struct sluice_loop *l, struct session *s, struct frame f,
                     const uint64_t *payload);

/*
 * The next slice of a message of parts: up to `max` bytes from `offset` on, in two sges at most. Returns
 * how many bytes; *count sges are filled in.
 */
uint32_t rndv_slice(const struct iov_part *parts, uint32_t part_count, uint64_t offset,
                    uint32_t max, struct ibv_sge out[2], unsigned *count);
/* How much of `bytes` the request at `offset` moves. */
static inline uint32_t rndv_chunk(const struct session *s, uint64_t bytes, uint64_t offset) {
    uint32_t most = session_connection(s)->copies ? RNDV_CHUNK_COPIED : RNDV_CHUNK;
    return bytes - offset < most ? (uint32_t)(bytes - offset) : most;
}

/* ---- outgoing.c ------------------------------------------------------------------------------ */

/* Posts what can be; `bytes` are left of this turn's share. */
void rndv_tx_flush(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                   uint32_t *bytes);
void rndv_tx_completed(struct sluice_loop *l, struct session *s, struct rndv_tx *d,
                       sluice_status status);
void rndv_tx_end(struct sluice_loop *l, struct session *s);
/* It is being announced: a free one, whose way, parts and window are set. */
void rndv_tx_begin(struct session *s, struct rndv_tx *d, struct sluice_msg *msg);
/* Of these numbers, in the order of the announcements, as the peer delivers them. NULL: there are none. */
struct rndv_tx *rndv_tx_oldest(struct rndv *r, uint32_t numbers);
/* Its connection is gone: it has no key, and is to be announced again, or has its outcome. */
void rndv_tx_lost(struct sluice_loop *l, struct session *s);
/* Its announcement, which was kept when the connection was lost, will not reach the peer: it ends EFENCED. */
void rndv_tx_fenced(struct sluice_loop *l, struct session *s, uint32_t number);
/* It is announced again, this way. */
void rndv_tx_again(struct session *s, struct rndv_tx *d, unsigned way);

/* ---- rts.c ------------------------------------------------------------------------------------ */

/*
 * A message that was announced gets a place in which it is found over this connection: the request that makes its key is
 * in the batch, which has room for one more, and `payload` (FRAME_RTS_BYTES) is what says so. False: not now, or the session is closed.
 */
bool rndv_rts_again(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                    struct rndv_tx *d, uint64_t *payload);
/* NULL, or what is wrong: whether a message may lie where these words of an RTS or AGAIN say. */
const char *rndv_wrong_way(const struct session *s, const uint64_t *word);
/* The peer has messages of these numbers. NULL, or what is wrong. */
const char *rndv_tx_taken(struct sluice_loop *l, struct session *s, uint64_t numbers);

/* ---- ats.c -------------------------------------------------------------------------- */

/* Messages that are here, or cannot be: of each one its sender is told, at once or with others. */
void rndv_answer(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                 struct rndv_rx *a);
/* Copied as soon as it was announced; false: rndv_answer() has to follow. */
bool rndv_answer_at_once(struct sluice_loop *l, struct session *s, struct rndv_rx *a);
/* At the end of a turn, those that wait for no RTS. */
void rndv_answer_flush(struct sluice_loop *l, struct session *s, struct wr_batch *batch);
/* What an RTS that is posted now tells the peer. */
uint32_t rndv_answer_take(struct sluice_loop *l, struct session *s);
void rndv_answer_forget(struct sluice_loop *l, struct session *s);
/* Of messages that could not be taken, of which the answer was lost. */
void rndv_answer_refused(struct sluice_loop *l, struct session *s, struct wr_batch *batch);

/* ---- incoming.c ------------------------------------------------------------------------------- */

void rndv_rx_flush(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                   uint32_t *bytes);
void rndv_rx_completed(struct sluice_loop *l, struct session *s, struct rndv_rx *a,
                       sluice_status status);
/* Its connection is gone: what is not whole begins anew when its sender has told where it is. */
void rndv_rx_lost(struct sluice_loop *l, struct session *s);
void rndv_rx_end(struct sluice_loop *l, struct session *s);
void rndv_rx_drop(struct sluice_loop *l, struct session *s);
/* Of one that is here, or cannot be: whether its number may be its peer's again (else too many wait to be delivered). */
bool rndv_rx_may_release(const struct rndv *r, const struct rndv_rx *a);
void rndv_rx_release(struct rndv *r, struct rndv_rx *a);
/* For deliver.c. It was delivered, or is dropped; the memory it was to go to, or lies in. */
void rndv_rx_done(struct sluice_loop *l, struct session *s, struct rndv_rx *a);
void rndv_rx_detach(struct sluice_loop *l, struct session *s, struct rndv_rx *a);
/* All of it is here. */
void rndv_rx_whole(struct sluice_loop *l, struct session *s, struct rndv_rx *a);
/* Its landing is another's from now on, and held no more. */
void rndv_rx_let_go(struct sluice_loop *l, struct session *s, struct rndv_rx *a);

#endif
