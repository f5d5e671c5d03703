/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * one_sided.h - the block of an operation, and the fields it shares with messages made of pieces.
 *
 * Both are several work requests that end together: every entry of the send queue has the message, and
 * the one that completes last ends it, with the first status that was not good.
 *
 * Owner: the call that makes it, then the loop's thread.
 */
#ifndef DATAPATH_RMA_ONE_SIDED_H
#define DATAPATH_RMA_ONE_SIDED_H

#include "datapath/rx/recv_result.h"
#include "datapath/tx/post.h"
#include "core/wire/token.h"
#include "core/region.h"

struct transfer {    /* at the start of either block */
    uint32_t posted; /* work requests that are not complete */
    int32_t status;  /* the first that failed */
    bool whole;      /* no more will be posted */
    bool begun;      /* something was posted */
};

#define SINKS_MAX 4u /* chunks of one operation that are posted at a time */

enum operation_code {
    OPERATION_PUT,
    OPERATION_GET,
    OPERATION_NOTIFY,
    OPERATION_ADD,
    OPERATION_SWAP,
    OPERATION_FENCE,
};

/* The block's payload; registered like any other, so `result` is where the device may write it. */
struct operation {
    struct transfer transfer;
    uint8_t code;                /* enum operation_code */
    bool notified;               /* the frame behind the put was posted */
    uint32_t lkey, rkey;         /* of the region here, and of the memory there */
    const sluice_region *region; /* held; NULL: none */
    uint64_t local, remote;      /* addresses */
    uint64_t compare_add, swap;  /* as a work request has them; NOTIFY: compare_add is the value */
    uint64_t result;
    /* GET, where what a READ goes to must be open to the peer: of the chunks posted, the oldest first */
    struct ibv_mr *sinks[SINKS_MAX];
    uint32_t sink_first, sink_count;
};

static inline struct transfer *transfer_of(struct sluice_msg *msg) {
    return (struct transfer *)(void *)msg->data;
}

/*
 * One work request of it has completed. True: it was the last, the window has its share back, regions are
 * dropped, and *status is its outcome.
 */
bool transfer_completed(struct session *s, struct sluice_msg *msg, sluice_status *status);

/*
 * Memory for a block, while the session is up; ENOMEM, ECLOSED. `fits` (may be NULL) is asked about the
 * session, which cannot end meanwhile.
 */
int transfer_open(sluice_session handle, size_t bytes,
                  int (*fits)(const struct session *s, const void *arg), const void *arg,
                  struct sluice_msg **out);

/* Once the peer's device has done it, nothing of it is still to come. */
bool one_sided_is_put(struct sluice_msg *msg);
/* The session's queue pair is about to go up: what its path allows is known. */
void one_sided_up(struct connection *c);
/* What the two ends can do is known. */
void one_sided_agreed(struct connection *c);
enum build_result one_sided_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                  struct sluice_msg *msg);
/* A work request of it, which was posted over this connection, ends. */
void one_sided_completed(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
                         sluice_status status);
enum recv_result notify_take(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);

/*
 * Stops posting a message of these kinds. True: the device has a part of it, and it ends
 * when that has completed. False: it may end now; *status becomes the status that is true for it.
 */
bool transfer_cut(struct sluice_msg *msg, sluice_status *status);

#endif
