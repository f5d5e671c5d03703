/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_tcp.h - a reliable connected queue pair over a TCP connection: the state that its files share, and the calls for
 * the rest of the device.
 *
 * qp_receive.c puts the peer's messages into receives and memory, qp_transmit.c puts work requests and answers into
 * frames, qp_end.c ends the queue pair, qp_heat.c chooses the thread that makes progress, qp_tcp.c has the queue pair's
 * life. Queues, posting, completion and flush are those of queue pairs over shared memory (rc/), with positions of the
 * stream in the place of slots.
 *
 * A queue pair is hot while its stream moved lately: every poll of its CQs then reads the socket. The engine watches
 * the cold ones. It hands a cold one with something to read to the pollers; if no thread polls, or a CQ is armed, the
 * engine makes the progress itself.
 *
 * Owner: the QP's lock, for all of struct soft_tcp; the control lock besides for `socket` and for qp->tcp.
 */
#ifndef SOFT_IWARP_QP_TCP_H
#define SOFT_IWARP_QP_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/iwarp/handshake.h"
#include "soft/iwarp/rdmap.h"
#include "soft/iwarp/rx.h"
#include "soft/iwarp/stream.h"
#include "soft/iwarp/tcp_guess.h"
#include "soft/iwarp/tx.h"
#include "soft/object/qp.h"

struct sink;
struct soft_mr;
struct soft_tcp_socket;

enum soft_tcp_sending { SOFT_TCP_NOTHING, SOFT_TCP_REQUEST, SOFT_TCP_ANSWER };

#define SOFT_TCP_ACKS 4u

/* In the place of the first frame, when that was sent: before the next request the peer is told what was taken (qp_ack.h). */
#define SOFT_TCP_TELL 8

/* An acknowledgement that was asked for: qp_ack.h. */
struct soft_tcp_ack {
    uint32_t end;    /* it acknowledges all up to this position */
    uint32_t at;     /* the end of the frame that asks */
    uint32_t behind; /* answers between the acknowledgement before it and this one */
};

/* Whether messages wait for others: qp_gather.h. */
struct soft_tcp_gather {
    bool posted;         /* since the last turn */
    bool many;           /* more than once */
    bool streams;        /* many were posted between the last two turns between which any was */
    bool much;           /* was sent between the last two turns */
    uint64_t sent;       /* the position at the last turn */
    uint8_t kept;        /* turns that did not send what waits */
    uint32_t arms;       /* how often its CQs were armed by the last turn */
    uint32_t armed_turn; /* the first one after a CQ was armed */
};

struct soft_tcp {
    struct soft_tcp_socket *socket; /* NULL: taken away, to be read and closed; qp_end.h */
    int fd;
    bool down;      /* ended: nothing is read or sent any more */
    bool hot;       /* pollers read the socket */
    bool dry;       /* the last read emptied the socket, and the CQ's set reported nothing since */
    bool left;      /* a turn of reading ended by its limit: there may be more */
    bool by_engine; /* the engine makes this turn */
    bool patient;   /* TCP's time limits are set */
    bool gathered;  /* messages wait for others, to be sent by one system call */
    bool more;      /* a turn of sending ended before all was sent */
    bool full;      /* a message waits for room in its CQ */
    bool answer_turn;  /* if a request and an answer wait, the answer goes first */
    bool listens;      /* the listener's end: the CM waits for the dialer's first frame */
    bool mute;         /* the listener's end, before that frame: nothing is sent */
    bool heard;        /* the CM was told of that frame */
    bool begun;        /* the dialer's end: its first frame may go without a message */
    bool rtr_answered; /* the first frame was a READ, whose answer has not come */
    bool acks;         /* constant: the peer is this device; qp_ack.h */
    bool ack_held;     /* answers to empty READs wait for the next turn */
    uint8_t ack_count; /* acknowledgements asked for that have not come */
    uint8_t ack_head;  /* the oldest of them */
    struct soft_tcp_ack ack[SOFT_TCP_ACKS];
    uint32_t signalled; /* the end of the last signalled request in frames that gets no answer */
    uint8_t
        rtr; /* the dialer's end: enum iwarp_rtr, until that frame is made; then 0 or SOFT_TCP_TELL */
    unsigned peer_says; /* the refusal in the peer's Terminate */
    bool guessed; /* the last segment has a key that does not open what it asks for: the end */
    struct soft_cm_tcp_origin origin; /* the peer's address, to count them by; control lock */
    int error;                        /* the errno that ended sending */
    uint32_t watched;                 /* events the engine watches for */
    bool rests;                       /* it does not watch the socket at all */
    bool end_only;                    /* the CQs' sets tell of its end alone */
    struct soft_tcp_gather gather;
    uint32_t turns;         /* of progress, by pollers and the engine */
    uint32_t empty;         /* turns since something moved */
    uint64_t moved_ns;      /* 0: something moved since the clock was last read */
    unsigned seen_polls[2]; /* counts of polls of both CQs, when last compared */
    uint8_t ord, ird;
    struct sink *sink; /* of the current turn */
    /* Effects of a fault plan, or of a port that is down; qp_fault.c. */
    bool dark;                 /* nothing is sent or received */
    bool send_held, take_held; /* a request, a message for a receive, is kept waiting */
    uint8_t take_status;       /* the status that the receive shall end with */
    uint64_t stalled_until_ns, dark_ns;
    /* The engine's ticks. */
    _Atomic unsigned tick_missed; /* in a row, as another thread had the lock; without the lock */
    uint32_t tick_turns;
    uint64_t tick_frames, inside_ns, starved_ns, measured_ns, tick_framed;

    enum soft_tcp_sending sending; /* the kind of the message that is being put into frames */
    uint32_t answer_at;            /* answers before it are in frames */
    uint64_t answer_end[SOFT_RD_ATOMIC];
    struct iwarp_read asked[SOFT_RD_ATOMIC]; /* the requests that qp->answer[] answers */
    bool asked_atomic[SOFT_RD_ATOMIC];       /* an atomic, whose id is in asked[].sink_stag */
    struct iwarp_inbox inbox;
    struct iwarp_rx rx;
    struct iwarp_tx tx;
};

#define SOFT_TCP_QPN 0x800000u /* of the numbers that stand for connections over TCP */
static inline bool soft_tcp_is_qpn(uint32_t qpn) {
    return qpn & SOFT_TCP_QPN;
}

#define SOFT_TCP_TURN (256u << 10) /* bytes of one turn, each way */

/*
 * Control lock. Gives an RC queue pair in INIT a connected socket. The queue pair receives from RTR on and sends from
 * RTS on, as its application moves it there. 0: the socket belongs to the queue pair; an errno: to the caller.
 */
int soft_tcp_attach(struct soft_qp *qp, int fd, const struct iwarp_terms *terms);
/*
 * Control lock. Names the id of the connection (soft_cm_id.number), and the end. The listener's end sends nothing
 * before it received a frame. The dialer's end sends an empty frame (rtr) before its first message, or at
 * soft_tcp_begin().
 */
void soft_tcp_connects(struct soft_qp *qp, uint64_t cm, bool listener, enum iwarp_rtr rtr);
void soft_tcp_begin(struct soft_qp *qp); /* control lock: the dialer is ready */
void soft_tcp_speak(struct soft_qp *qp); /* control lock: the listener need not wait any more */
void soft_tcp_leave_sets(struct soft_qp *qp,
                         int fd); /* qp->lock: takes the socket out of the CQs' sets */
/* Control lock; no thread polls the QP any more. The engine reads the socket until the peer ends, and closes it. */
void soft_tcp_detach(struct soft_qp *qp);

/* Payload of a peer's WRITE is still to be written to memory. */
static inline bool soft_tcp_is_written(const struct soft_tcp *tcp) {
    return tcp->rx.ddp.opcode == IWARP_WRITE && iwarp_place_left(&tcp->rx.place) > 0;
}

/* qp->lock: makes a turn of progress, bounded each way. */
void soft_tcp_progress(struct soft_qp *qp, struct sink *sink);
/* qp->lock: work requests were posted. */
void soft_tcp_post(struct soft_qp *qp);
/* Takes qp->lock, if it is free. For a poller whose CQ's set reports these events: makes the QP hot. True: serve it. */
bool soft_tcp_seen(struct soft_qp *qp, uint32_t events);
/* qp->lock. Its CQs' sets tell when there is something to read, or of the connection's end alone. */
void soft_tcp_listen(struct soft_qp *qp, bool reads);
/* Takes qp->lock. A CQ is armed, as its poller goes to sleep: from now on the engine watches the socket, or its CQ's set. */
void soft_tcp_arm(struct soft_qp *qp);
/*
 * qp->lock, control lock. The key of a registration or a window becomes invalid. True: the peer was using it, and the
 * QP is in ERR.
 */
bool soft_tcp_take_back(struct soft_qp *qp, const struct soft_mr *mr, uint32_t key);
/* qp->lock. This window was taken back while the peer read it: none of its bytes is sent from now on. */
void soft_tcp_cut_off(struct soft_qp *qp, const struct soft_mr *window);

#endif
