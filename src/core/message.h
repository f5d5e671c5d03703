/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * message.h - a message: the buffer that it lies in (pool/buffer.h), and what the data path knows of it.
 *
 * Owner: see enum msg_state.
 */
#ifndef CORE_MESSAGE_H
#define CORE_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/buffer.h"

/* The owner of a message. */
enum msg_state {
    MSG_FREE,    /* the pool */
    MSG_APP,     /* the application */
    MSG_LOANED,  /* on loan to the application until its handler returns or it polls again */
    MSG_SENDING, /* the data path, for sending: mailbox, queue, device or waiting outcome */
    MSG_RECEIVE, /* the data path, for receiving: posted, held, or being put together */
};

/* msg->flags */
#define MSG_RX 1u       /* a receive buffer: of the size of a frame, and posted again */
#define MSG_SHARED 2u   /* it belongs to the loop's shared queue; rx.srq_slot is its index there */
#define MSG_RESERVED 4u /* its receive is no credit: posted again it is spare */
#define MSG_RETAINED                                                                               \
    8u               /* the application's, and a credit of retained.session_id is withheld for it */
#define MSG_VIEW 32u /* its data lies in the coalesced frame it came with (coalesce.c) */
#define MSG_ESCORTED 16u /* next is the frame that announced or ended it, and goes back with it */
#define MSG_OPENED                                                                                 \
    64u /* a coalesced frame that is being taken apart, or in which lent messages lie */
/* of a request that has its entry in the table of requests: */
#define MSG_BUSY 128u   /* the device, or a transfer, still reads it */
#define MSG_ORPHAN 256u /* the outcome was told without it: to be freed when it is not busy */
#define MSG_LATE 512u   /* the outcome, in deadline_ns, is told when it is not busy */
/* of what waits in a queue of its session: */
#define MSG_BEHIND                                                                                 \
    1024u /* fence.c: an operation before it was on its way when the connection was lost */

/* The kind of a message that is sent, or was received: how post.c builds it, and which outcome it has. */
enum msg_kind {
    MSG_PLAIN,     /* a message */
    MSG_REQUEST,   /* client.c: its outcome is REPLY */
    MSG_REPLY,     /* client.c: no outcome, outside of the window */
    MSG_IOV,       /* iov.c: payload is a struct iov_msg, what is sent lies elsewhere */
    MSG_ONE_SIDED, /* one_sided.c: payload is a struct operation; its outcome is DONE */
    MSG_FRAME,     /* coalesce.c: several messages, in a frame that is queued and not full */
};

/*
 * The public sluice_msg. Its first part is what the pool knows of its buffer, under the same names; the pool reads and writes
 * it as a struct pool_buffer, which may alias it.
 */
struct sluice_msg {
    struct mpsc_queue_item item; /* cross-thread send */
    struct sluice_msg *next;     /* queues of its owner */
    struct pool *pool;
    uint8_t *data;
    uint32_t lkey;
    uint8_t size_class;
    uint8_t state; /* enum msg_state */
    uint16_t flags;
    uint64_t size, capacity;
    void *home;
    void *owner; /* received: the connection that it came by, whose credit it holds; else NULL */
    uint16_t cache, account;
    uint8_t kind;       /* enum msg_kind; set whenever it is sent */
    uint8_t frame_type; /* received: enum frame_type */
    bool foreign;       /* sent: accepted from a thread that does not own the loop */
    /* By what it is in just now: see enum msg_state. */
    union {
        struct { /* accepted, queued or posted */
            uint64_t tag, deadline_ns, session_id;
            uint64_t sent; /* payload bytes posted so far */
            uint32_t end;  /* a frame that is queued: of its payload */
            union {
                uint32_t id; /* of the request it is, or answers */
                struct
                { /* such a frame: messages in it; of these, requests, which the window counts apart */
                    uint16_t items, requests;
                };
            };
        } tx;
        struct { /* sent, or not: to be told; begins as tx does */
            uint64_t tag;
            int64_t late; /* MSG_LATE: the status, until the device is done with it */
            uint64_t session_id;
            uint64_t value; /* of an atomic operation */
            int32_t status;
            uint32_t id;
        } outcome;
        struct { /* a frame that arrived, or a message that lies in one */
            uint64_t total, arrived_ns;
            uint64_t srq_slot; /* MSG_SHARED: its index among the loop's shared receives */
            uint64_t unpacked; /* a coalesced frame: where the next item begins */
            uint32_t frame_flags;
            union {
                uint32_t users;      /* a coalesced frame: messages in it that are needed */
                uint32_t rndv_entry; /* an RTS: its entry of rndv.rx */
            };
        } rx;
        struct { /* lent to the application; total to unpacked are those of rx */
            uint64_t total, arrived_ns, srq_slot, unpacked;
            uint32_t index; /* among the loop's loans */
        } loan;
        struct { /* the application's, MSG_RETAINED */
            uint64_t unused[2];
            uint64_t session_id; /* of which a credit is withheld for it */
        } retained;
    };
} __attribute__((aligned(64)));

#define SAME_PLACE(field)                                                                          \
    _Static_assert(offsetof(struct sluice_msg, field) == offsetof(struct pool_buffer, field) &&    \
                       sizeof(((struct sluice_msg *)0)->field) ==                                  \
                           sizeof(((struct pool_buffer *)0)->field),                               \
                   "it is that field of the buffer")
SAME_PLACE(item);
SAME_PLACE(next);
SAME_PLACE(pool);
SAME_PLACE(data);
SAME_PLACE(lkey);
SAME_PLACE(size_class);
SAME_PLACE(state);
SAME_PLACE(flags);
SAME_PLACE(size);
SAME_PLACE(capacity);
SAME_PLACE(home);
SAME_PLACE(owner);
SAME_PLACE(cache);
SAME_PLACE(account);
#undef SAME_PLACE
_Static_assert(sizeof(struct sluice_msg) == sizeof(struct pool_buffer), "the rest is the user's");
_Static_assert(offsetof(struct sluice_msg, tx.tag) == offsetof(struct sluice_msg, outcome.tag) &&
                   offsetof(struct sluice_msg, tx.session_id) ==
                       offsetof(struct sluice_msg, outcome.session_id) &&
                   offsetof(struct sluice_msg, tx.id) == offsetof(struct sluice_msg, outcome.id),
               "an outcome is of what was sent");
_Static_assert(offsetof(struct sluice_msg, rx.srq_slot) ==
                   offsetof(struct sluice_msg, loan.srq_slot),
               "a message that is lent keeps its receive");

/* NULL is no message. */
static inline struct sluice_msg *message_of(struct pool_buffer *buffer) {
    return (struct sluice_msg *)(void *)buffer;
}

static inline struct pool_buffer *buffer_of(const struct sluice_msg *msg) {
    return (struct pool_buffer *)(uintptr_t)msg;
}

#endif
