/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * server.h - requests of the peer, and their answers.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RPC_SERVER_H
#define DATAPATH_RPC_SERVER_H

#include "datapath/loop/loop.h"
#include "datapath/rx/recv_result.h"

struct frame;
struct wr_batch;

/* The code of a REPLY. */
enum reply_code {
    CODE_REPLY = 0,
    CODE_EXPIRED = 1,
    CODE_CANCELLED = 2,
    CODE_FAILED = 3,
    CODE_ENDED = 4,         /* hung up before it was answered */
    CODE_APPLICATION = 256, /* and above: refused by the application with what is above */
};

/* Posts answers without a message (session->rpc.answers). */
void rpc_server_flush(struct sluice_loop *l, struct session *s, struct wr_batch *batch);

/*
 * For the code that receives a request: delivers msg, which holds its bytes, as REQUEST; or
 * answers it, or drops it, and gives msg back (event_return). Room was checked. msg->rx.arrived_ns: when
 * its frame arrived, 0 if just now.
 */
enum recv_result rpc_server_deliver(struct sluice_loop *l, struct session *s,
                                    struct sluice_msg *msg, uint64_t total);
/*
 * The session was hung up: the application answers nothing any more, so what is open is answered for it, where the peer
 * knows that code. Else the peer's outcomes come with the end.
 */
void rpc_server_hungup(struct sluice_loop *l, struct session *s);
/*
 * The answer to the request with this id, or of this entry, will not reach the peer: its requester is told that it had none, or
 * this code, which was the answer.
 */
void rpc_server_fenced(struct sluice_loop *l, struct session *s, uint32_t id, uint32_t code);
/* Memory for what rpc_server_deliver() notes. Where this was true, that always ends with DONE. */
bool rpc_server_ready(struct session *s);
/* A request in a frame of its own, in order. */
enum recv_result rpc_server_take(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* CANCEL: NULL, or what is wrong. */
const char *rpc_server_cancelled(struct sluice_loop *l, struct session *s, const struct frame *f);

#endif
