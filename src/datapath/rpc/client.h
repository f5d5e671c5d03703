/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * client.h - requests of this side: accepted, posted, answered, ended.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RPC_CLIENT_H
#define DATAPATH_RPC_CLIENT_H

#include "datapath/loop/loop.h"
#include "datapath/rx/recv_result.h"
#include "datapath/tx/post.h"

struct send_args;
struct wr_batch;

/*
 * Whether a request or a reply is accepted: 0, EAGAIN, ENOMEM, or EINVAL for a value that is no token.
 * The last check of a call; any thread that owns the session or holds a reference.
 */
int rpc_client_admit(struct session *s, const struct send_args *args, bool foreign);
/* It was not accepted after all. */
void rpc_client_admit_undo(struct session *s, const struct send_args *args, bool foreign);
/* One that was accepted ends before it was posted. */
void rpc_client_unsent(struct sluice_loop *l, struct session *s, const struct sluice_msg *msg);
/* Another thread was told EAGAIN; it, or the loop's own, is told when to come again. */
void rpc_client_want(struct sluice_loop *l, struct session *s);
/* Of mine without a reply. With a reference held. */
uint32_t rpc_client_count(struct session *s);
/* The request with this id never reached the device. */
void rpc_client_unposted(struct session *s, uint32_t id);
/* The slot is free, no thread is inside. */
void rpc_client_forget(struct session *s);
/* Sending. The room for the reply is taken with the request. */
enum build_result rpc_client_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                   struct sluice_msg *msg);

/*
 * For the code that builds a request or reply (a frame of its own, an item of a coalesced frame, an
 * RTS): the `total` of its header. A request takes its entry; a reply gives the peer's back.
 * False: no entry is free, or no room for the reply; the event that ends the wait makes the session dirty.
 */
bool rpc_client_assign(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                       uint64_t *total);
/*
 * For the code that receives a reply: delivers msg, which holds its bytes, or drops it and gives it back
 * (event_return). Room was checked.
 */
enum recv_result rpc_client_reply_deliver(struct sluice_loop *l, struct session *s,
                                          struct sluice_msg *msg, uint64_t total);
/* A request went as a copy: its buffer is not read any more. */
void rpc_client_copied(struct sluice_msg *msg);
/* The device is done with a request's buffer, which stays until its outcome. */
void rpc_client_completed(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                          sluice_status status);
/* The peer has no memory for it: it ends, and no reply will come. */
void rpc_client_refused(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                        sluice_status status);
/* The request with this id never reached the peer, and its buffer is not read: it ends EFENCED. */
void rpc_client_fenced(struct sluice_loop *l, struct session *s, uint32_t id);
/* A reply in a frame of its own, in order. */
enum recv_result rpc_client_reply_take(struct sluice_loop *l, struct session *s,
                                       struct sluice_msg *msg);
/* A frame that claims the room of a reply has arrived: false, there is none. */
bool rpc_client_reserved(struct session *s);
/* Another connection has receives for the replies that are awaited. False: no memory for them. */
bool rpc_client_reserve_again(struct sluice_loop *l, struct session *s);
uint32_t rpc_client_arrived(struct session *s); /* so many have, and were not looked at */
/* Deadlines; tells the loop the next. */
void rpc_client_expire(struct sluice_loop *l, struct session *s);
/* Whether requests of mine wait for a reply, or answers without a message to be posted. */
bool rpc_client_pending(struct session *s);
/* The queue pair is gone: every request ends, UNKNOWN. */
void rpc_client_end(struct sluice_loop *l, struct session *s);

#endif
