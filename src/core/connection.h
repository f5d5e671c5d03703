/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connection.h - one queue pair to a peer: its rdma_cm id, its send queue, its receives and its credits.
 *
 * Of one session, which sends over one at a time (session.h) and may have others that come or go. It has a slot and a
 * generation (connection_table.h), which the wr_id of its sends names. Owner: the loop of the session, but for `cm`,
 * which is the CM thread's, and where marked.
 */
#ifndef CORE_CONNECTION_H
#define CORE_CONNECTION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/sluice.h>

#include "core/cm_conn.h"
#include "core/loop_msg.h"
#include "pool/pool.h"

#define CREDITS_INITIAL 4u /* credits every peer has at first; no more than CREDITS_MIN */
#define CREDITS_DEFAULT                                                                            \
    40u /* that a peer may come to have: enough for SWITCH_TCP_ALONE (rndv/rndv.c) */
#define CREDIT_RESERVE 2u /* kept back for CREDIT and BYE, so that credits can always flow back */
#define SQ_RESERVE 3u     /* send queue entries kept back for CREDIT, BYE and the drain marker */

/* Where a handshake is (handshake.c); frames other than the one awaited are refused. */
enum session_handshake {
    HANDSHAKE_NONE,   /* nothing was agreed, or it is done */
    HANDSHAKE_HELLO,  /* dialer: to be sent; listener: awaited */
    HANDSHAKE_HELD,   /* HELLO, or REFUSE at the dialer, came before the connection was announced */
    HANDSHAKE_ANSWER, /* dialer: WELCOME or REFUSE awaited; listener: the application decides */
    HANDSHAKE_RESUME, /* of a session that is down: any frame says that the connection is up */
    HANDSHAKE_MOVES,  /* of a session that moves to it: any frame says that the peer has */
    HANDSHAKE_OVER, /* it was given up on its way, and says nothing of its session, which has others */
};

/* One posted send: which message ends with it, and what the window gets back. */
struct sq_entry {
    struct sluice_msg *msg; /* NULL: nothing to give back */
    uint64_t bytes;         /* payload of the message that ends here, and the flags below */
};
#define SQ_COUNTED (1ull << 63)  /* a message ends here: the window shrinks */
#define SQ_FOREIGN (1ull << 62)  /* it was accepted from another thread */
#define SQ_FAILED (1ull << 61)   /* never reached the device */
#define SQ_BEHIND (1ull << 60)   /* confirm.c: it ends with its own READ, or with one behind it */
#define SQ_NUMBERED (1ull << 59) /* unacked.c: and when the peer has acknowledged it */
#define SQ_WHAT_SHIFT 56         /* enum sq_what, 3 bits */
#define SQ_WHAT_MASK 7
#define SQ_FRAMED (1ull << 55) /* of SQ_MESSAGE: the device has had its bytes from the start */
#define SQ_BYTES (SQ_FRAMED - 1)

/* The object that owns the entry: it is told of the completion. */
enum sq_what {
    SQ_MESSAGE,   /* post.c: the message ends with it */
    SQ_RNDV,      /* rndv.c */
    SQ_ONE_SIDED, /* one_sided.c: a part of the operation, which has the message */
    SQ_IOV,       /* iov.c: likewise of a message made of pieces */
    SQ_REQUEST,   /* client.c: the message stays until the reply */
    SQ_COALESCED, /* coalesce.c: several messages end with it; bytes is made otherwise */
    SQ_CONFIRM,   /* confirm.c: what was posted before it is the peer's */
};

/* The values of a session that keepalive.c keeps from check to check. */
struct keepalive {
    uint64_t interval_ns;      /* agreed; 0: not watched */
    uint64_t checked_ns;       /* the last look */
    uint64_t rx_ns, tx_ns;     /* the look that first saw the counts below */
    uint32_t rx_seen, tx_seen; /* frames received, frames posted */
    bool excused;              /* the silence was forgiven once, because the loop was away */
};

/* Receives posted ahead: a connection's own, or those that the connections of a loop share (srq.c). */
struct recv_queue {
    struct ibv_qp *qp;         /* own */
    struct ibv_srq *srq;       /* shared */
    struct sluice_msg *repost; /* buffers to be posted again */
    uint32_t waiting;          /* shared: about how many */
    uint32_t posted;           /* receives the device has */
    uint32_t spare;            /* of these: neither a credit nor reserved for a reply */
    uint32_t spare_max;        /* more are not posted again */
    uint32_t depth;            /* receives it can hold */
    /* own, where a device is silent in ERR: those posted lately, in order, the last of which it has */
    struct sluice_msg **trail;
    uint32_t trail_next;
};

/* send_queue.follow: what looks at each batch that was posted, and at each completion. */
#define SQ_CONFIRMS 1u /* confirm.c */
#define SQ_ACKS                                                                                    \
    2u /* unacked.c; also in `blocked`: every frame that arrives is looked at for its acknowledgement */
#define SQ_WAITS 1u /* send_queue.blocked: rndv.c waits for credits or room in it */

/* The send queue: a ring of what was posted, and how it is posted. */
struct send_queue {
    struct sq_entry *entries;
    uint32_t head, tail;
    uint16_t mask;
    uint16_t quick; /* limit, or 0: nothing is posted but as a batch */
    uint16_t unsignalled, signal_every;
    uint32_t limit;
    uint32_t inline_max; /* bytes of a frame that goes inline */
    uint32_t depth;
    uint32_t frameless;         /* work requests posted so far that were no frames */
    uint32_t sges;              /* pieces of memory one send can be made of */
    uint8_t blocked, follow;    /* see above */
    struct sluice_msg *headers; /* registered memory for the headers of fragments */
};

/* Frames of this side. */
struct connection_tx {
    uint32_t credits; /* frames that may be sent now */
    uint32_t sequence;
    uint32_t credits_max;
    uint32_t acked;
    bool stalled; /* there was something to send and no credit */
    /* So many credits messages leave: CREDIT_RESERVE, and one for each WRITE announced. */
    uint8_t reserve;
};

/* Frames of the peer, and what they have used. */
struct connection_rx {
    uint32_t sequence;
    uint32_t updated;                    /* sequence when the last frame was posted */
    uint32_t unreported;                 /* receives posted again and not told to the peer yet */
    uint32_t granted;                    /* frames the peer may still send */
    struct recv_queue *queue;            /* its own, or the loop's */
    uint32_t repost_count, repost_batch; /* buffers of its frames that are to be posted again */
    uint32_t payload_max;                /* of a message in one frame: as tx.frame_payload */
};

/* The buffers that frames of the peer come in. */
struct connection_recv {
    uint32_t missing;      /* buffers that could not be replaced for want of memory */
    uint32_t controls;     /* CREDIT and ALIVE frames: what rx.sequence does not count */
    uint32_t reserved;     /* receives set aside for replies */
    uint32_t frame_bytes;  /* of one receive buffer */
    bool heard;            /* the queue pair can receive: frames may have come */
    bool primed;           /* it has had its first receives, and counts in the node's `primed` */
    struct recv_queue own; /* unused where they are shared */
};

/* credits.c and retain.c: how many frames the peer may send. */
struct credits {
    uint32_t low;     /* below so many rx.granted the peer wants more */
    uint32_t granted; /* credits the peer has, wherever they are just now; see credits.c */
    uint32_t
        withheld_due;  /* still to be withheld for some of `retained`; for a moment one too few */
    bool update_due;   /* credits are returned even if they are few */
    uint32_t retained; /* messages of the peer the application keeps; likewise */
    uint32_t max;      /* the most it will ever have */
    uint32_t seen;     /* rx.sequence when checked_ns was, less 1 for RTRs and ATSs since */
    uint32_t recall, returned; /* credits the peer was asked to keep; or that I was; 0: none */
    uint64_t checked_ns;       /* when it was looked at last */
    _Atomic uint32_t published_retained, published_granted; /* for any thread */
};

/* confirm.c: a completion says only that this side has sent something; a READ behind it says more. */
struct confirm {
    bool on;
    bool owed;        /* something was sent that a READ is wanted behind */
    bool probe_known; /* the byte that the peer has named */
    uint8_t flying;
    uint32_t probe_rkey;
    uint32_t sent_tail; /* entries before it were sent */
    uint64_t probe_address;
};

/* unacked.c: a frame that was posted stays in the send queue until the device is done with it and the peer has it. */
struct unacked {
    uint32_t done;      /* the device is done with entries before it */
    uint32_t ended;     /* no numbered frame is left before it */
    uint32_t proved;    /* entries before it that wait for a READ (SQ_BEHIND) have ended */
    uint32_t next;      /* number of the first numbered frame that is still in the send queue */
    uint32_t asked;     /* the frame with which the peer was asked last */
    uint32_t had;       /* the last numbered frame that has ended is before it: the peer has that */
    uint32_t failed_at; /* fence.c: the first operation that has ended with an error */
    bool failed;        /* there is one */
    uint16_t framed_end; /* plain messages of fewer bytes may be framed, and are kept */
    uint16_t ask_every;  /* so many of those on their way: one asks */
};

/* acks.c: what of the peer's frames it is to be told of. */
struct acks {
    bool asked;                /* it wants to know now */
    bool listed;               /* it is told when it is time to, at the latest */
    uint32_t returned;         /* rx.sequence when credits were returned last (credits.c) */
    uint64_t due_ns;           /* then */
    struct cds_list_head link; /* among those of the loop */
};

/* drain.c: the end of the queue pair. */
struct drain {
    bool renewing;      /* OPENING: the queue pair is being drained, for the next try's */
    bool began;         /* the queue pair went into ERR, and is not gone */
    bool asked, over;   /* of one that its session does not send over: it is to end; to be freed */
    bool ended;         /* the QP is gone, its completions are still to be polled */
    bool last, settled; /* it takes no more shared receives; their completions were polled */
    uint8_t extensions;
    uint8_t down_polls;   /* the connection is down; polls until that is acted upon */
    uint64_t deadline_ns; /* for the device, to give back what it has; 0: none */
    uint32_t lasts_seen;  /* the loop's, when `last` was given or the drain began */
    uint32_t last_poll;   /* the poll before that was known */
};

/* one_sided.c: its work requests that are not complete; of them those that READ, and the large. */
struct connection_rma {
    uint32_t posted, reads, large;
    uint32_t read_bytes; /* of one READ of a get, at most */
};

/* A plain message, in either direction, touches the first line and that of rx, and of its session two (session.h). */
struct connection {
    /* Every frame that is sent reads this line. */
    struct ibv_qp *qp;
    struct connection_tx tx;
    bool extended;         /* extended verbs can post to qp */
    _Atomic uint64_t name; /* slot and generation, as the wr_id of its sends has them */
    struct send_queue sq;  /* what few frames need of it begins another line */

    /* Every frame, sent or received, reads this line. */
    struct session *session __attribute__((aligned(64))); /* whose it is; constant */
    struct connection_rx rx;
    struct credits credits;

    struct connection_recv recv;
    struct confirm confirm;
    struct unacked unacked;
    struct acks acks;
    struct drain drain;
    struct connection_rma rma;
    struct keepalive keepalive;
    uint64_t nudge_ns;            /* handshake.c: to the next nudge */
    struct connection *next;      /* of its session: the first one is what that sends over */
    struct connection *kept_next; /* replay.c: the next one that has frames to be sent again */
    struct sluice_msg *hello;     /* listener: HELLO came before the connection was announced */
    bool served;                  /* messages went over it */
    bool
        broke; /* dialer, before UP: a completion said so, and what the CM thread hears is awaited */
    bool unused; /* the CM thread does not know of it: it stands in for one that is to come */
    bool waits;  /* of a guest (guest.c): it is up, and frames that come over it are held */
    uint8_t early_count;
    struct sluice_msg *early, **early_tail; /* these, in order */
    bool coming;       /* its session's loop does not know of it: the CM thread made it */
    uint32_t slot;     /* constant */
    sluice_loop *loop; /* whose completion queue it uses; constant once the CM thread knows it */
    uint32_t cq_share; /* entries of the CQ set aside for it */
    uint8_t handshake; /* enum session_handshake */
    uint8_t lacks;     /* enum fabric_lack, of one of the two ends; constant from RTR on */
    bool copies;       /* a READ or WRITE is a copy by this CPU; constant while the session is up */
    bool shares;       /* and both sides know how to do without them; the same */

    /* The CM thread's; accessed: the device says that the peer accessed what it may not; moved: an address of this
     * side is not what it was when the connection was made. */
    _Atomic bool accessed __attribute__((aligned(64)));
    _Atomic bool moved;
    _Atomic bool last_posted; /* LAST_WQE is in the mailbox of the loop */
    struct mpsc_queue_item to_loop[LOOP_MSG_CONNECTION_END - LOOP_MSG_SESSION_COUNT];
    struct mpsc_queue_item to_cm[CM_MSG_CONNECTION_COUNT];
    struct cm_conn cm;
} __attribute__((aligned(64)));

_Static_assert(offsetof(struct connection, sq.limit) == 64, "what a small send needs of the ring");
_Static_assert(offsetof(struct connection, session) / 64 ==
                   offsetof(struct connection, credits.update_due) / 64,
               "what a frame that arrives needs is in one line, and so is what posts its buffer");
_Static_assert(offsetof(struct connection, accessed) % 64 == 0,
               "the CM thread writes no line of the loop");

#endif
