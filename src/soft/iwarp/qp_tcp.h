/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_tcp.h - a reliable connected queue pair over a TCP connection: what its parts share, and what the rest of the
 * device asks of it.
 *
 * qp_receive.c is the peer's messages into receives and memory, qp_transmit.c work requests and answers into frames,
 * qp_end.c how it ends, qp_heat.c who makes progress, qp_tcp.c its life. Queues, posting, completion and flush are those of the
 * ways through shared memory (rc/): positions of the stream take the place of slots.
 *
 * A queue pair is hot while its stream moved lately: every poll of its CQs reads the socket then. Cold ones are watched by the
 * engine, which hands one with something to read to the pollers if there are any, and else, or where a CQ is armed,
 * makes the progress itself.
 *
 * Owner: the QP's lock, for all of struct soft_tcp; the control lock besides for `socket` and for qp->tcp.
 */
#ifndef SOFT_IWARP_QP_TCP_H
#define SOFT_IWARP_QP_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/cm/tcp_guess.h"
#include "soft/iwarp/handshake.h"
#include "soft/iwarp/rdmap.h"
#include "soft/iwarp/rx.h"
#include "soft/iwarp/stream.h"
#include "soft/iwarp/tx.h"
#include "soft/verbs/qp.h"

struct sink;
struct soft_mr;
struct soft_tcp_socket;

enum soft_tcp_sending { SOFT_TCP_NOTHING, SOFT_TCP_REQUEST, SOFT_TCP_ANSWER };

#define SOFT_TCP_ACKS 4u

/* An acknowledgement that was asked for: qp_ack.h. */
struct soft_tcp_ack {
    uint32_t end;    /* what it acknowledges */
    uint32_t at;     /* the end of the frame that asks */
    uint32_t behind; /* answers that come before it, and behind the one before */
};

struct soft_tcp {
    struct soft_tcp_socket *socket; /* NULL: left for being read away; qp_end.h */
    int fd;
    bool down;         /* ended: nothing is read or sent any more */
    bool hot;          /* pollers read it */
    bool dry;          /* its socket had nothing more, and the CQ's set has not said otherwise */
    bool by_engine;    /* this turn is the engine's */
    bool patient;      /* TCP was told how patient to be */
    bool posted;       /* since the last turn */
    bool gathered;     /* what was posted behind that waits for the next turn */
    bool more;         /* a turn of sending ended before all was sent */
    bool full;         /* a message waits for room in its CQ */
    bool answer_turn;  /* of two that wait, an answer goes first */
    bool listens;      /* the listener's end: the dialer's first frame is of interest */
    bool mute;         /* the listener's, before that frame: nothing is sent */
    bool heard;        /* whoever connects it was told of that frame */
    bool begun;        /* the dialer's: its first frame goes, whether there is a message or not */
    bool rtr_answered; /* a READ as first frame: its answer is to come */
    bool acks;         /* constant: the peer is this device; qp_ack.h */
    bool ack_held;     /* answers of nothing wait for a turn */
    uint8_t ack_count; /* asked for, and to come */
    uint8_t ack_head;  /* the oldest of them */
    struct soft_tcp_ack ack[SOFT_TCP_ACKS];
    uint32_t
        signalled; /* the end of the last request that completes seen, without an answer of its own */
    uint8_t rtr;   /* the dialer's: enum iwarp_rtr, until that frame is made */
    unsigned peer_says; /* why it ended the stream */
    bool guessed;       /* the peer's present segment has a key that opens nothing here */
    uint32_t
        wrong_keys; /* of such the peer said, since the socket was given; a stream ends with one */
    struct soft_cm_tcp_origin origin; /* who said them; control lock */
    int error;                        /* errno that sending came to */
    uint32_t watched;                 /* events the engine watches for */
    uint32_t turns;                   /* of progress, by whomever */
    uint32_t empty;                   /* in which nothing moved */
    uint64_t moved_ns;
    unsigned seen_polls[2]; /* of both CQs, at the last event */
    uint8_t ord, ird;
    struct sink *sink; /* of the present turn */
    /* A fault plan's, or of a port that is down; qp_fault.c. */
    bool dark;                 /* nothing moves */
    bool send_held, take_held; /* a request, a message for a receive, is kept waiting */
    uint8_t take_status;       /* that the receive is to end with */
    uint64_t stalled_until_ns, dark_ns;
    /* The engine's ticks. */
    uint32_t tick_turns;
    uint64_t tick_frames, inside_ns, starved_ns, measured_ns, tick_framed;

    enum soft_tcp_sending sending; /* the message that is not in frames as a whole */
    uint32_t answer_at;            /* answers before it are in frames */
    uint64_t answer_end[SOFT_RD_ATOMIC];
    struct iwarp_read asked[SOFT_RD_ATOMIC]; /* what qp->answer[] answers */
    bool asked_atomic[SOFT_RD_ATOMIC];       /* an atomic, whose id is asked[].sink_stag */
    struct iwarp_inbox inbox;
    struct iwarp_rx rx;
    struct iwarp_tx tx;
};

#define SOFT_TCP_TURN (256u << 10) /* bytes of one turn, each way */

/*
 * Control lock. An RC queue pair in INIT sends and receives over this connected socket, from RTR on, as its application
 * takes it there; the socket is the queue pair's then. 0 or an errno, and the socket is the caller's.
 */
int soft_tcp_attach(struct soft_qp *qp, int fd, const struct iwarp_terms *terms);
/*
 * Control lock. Whose connection it is (soft_cm_id.number), and which end of it. The listener's sends nothing before it has a
 * frame; the dialer's sends that first frame, of nothing, before its first message, or when soft_tcp_begin() says so.
 */
void soft_tcp_connects(struct soft_qp *qp, uint64_t cm, bool listener, enum iwarp_rtr rtr);
void soft_tcp_begin(struct soft_qp *qp); /* control lock: the dialer is ready */
void soft_tcp_speak(struct soft_qp *qp); /* control lock: the listener need not wait any more */
void soft_tcp_leave_sets(struct soft_qp *qp,
                         int fd); /* qp->lock: pollers are not told of that socket any more */
/* Control lock; nobody polls it. The socket is read away and closed by the engine. */
void soft_tcp_detach(struct soft_qp *qp);

/* Payload of the peer's WRITE is still to be written. */
static inline bool soft_tcp_is_written(const struct soft_tcp *tcp) {
    return tcp->rx.ddp.opcode == IWARP_WRITE && iwarp_place_left(&tcp->rx.place) > 0;
}

/* qp->lock: what there is to be done, each way a bounded turn. */
void soft_tcp_progress(struct soft_qp *qp, struct sink *sink);
/* qp->lock: work requests were posted. */
void soft_tcp_post(struct soft_qp *qp);
/* Takes qp->lock, if it is free. A poller of its CQ: there is something to read, so it is hot. True: its turn is due. */
bool soft_tcp_seen(struct soft_qp *qp);
/* Takes qp->lock. Whoever polled is going to sleep: the engine is told of what comes from now on. */
void soft_tcp_arm(struct soft_qp *qp);
/* The engine's tick; true: again in a millisecond. */
bool soft_tcp_tick(struct soft_qp *qp, uint64_t now);
/* The engine: something is there. */
void soft_tcp_event(struct soft_qp *qp, uint32_t events);
/*
 * qp->lock, control lock. A registration's or a window's key opens nothing any more. True: the peer was using it, and the QP
 * is in ERR.
 */
bool soft_tcp_take_back(struct soft_qp *qp, const struct soft_mr *mr, uint32_t key);

#endif
