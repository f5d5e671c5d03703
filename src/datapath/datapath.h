/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * datapath.h - what the files of the data path offer each other. Everything here runs on the thread
 * that owns the loop unless it says otherwise.
 */
#ifndef DATAPATH_DATAPATH_H
#define DATAPATH_DATAPATH_H

#include "core/wire/frame.h"
#include "datapath/loop/loop.h"

struct wr_batch; /* post.h */
struct iov_part; /* rndv.h */

enum build_result {
    BUILD_DONE,    /* wholly posted: it leaves the queue (its links are not touched before) */
    BUILD_PARTIAL, /* some of it: again, if there is room */
    BUILD_NONE, /* credits, room or memory are missing; what ends the wait makes the session dirty */
};

/* ---- wr_id: a receive's is its buffer (bit 0 clear), a send's its slot and queue index ------- */

static inline uint64_t wr_send_id(uint32_t slot, uint32_t index) {
    return (uint64_t)slot << 32 | (uint64_t)(index & 0xffff) << 8 | 1;
}

/* ---- send.c ---------------------------------------------------------------------------------- */

/* Posts what may be posted: queued messages, a CREDIT frame that is due. */
void send_flush(struct sluice_loop *l, struct session *s);
/* A message another thread handed over. */
void send_arrived(struct sluice_loop *l, struct sluice_msg *msg);
void send_completed(struct sluice_loop *l, const struct ibv_wc *wc);
/* Ends every queued message that is not posted yet with this status. */
void send_drop_queue(struct sluice_loop *l, struct session *s, sluice_status status);
/* Ends queued messages whose deadline passed; tells the loop the next deadline. */
void send_expire(struct sluice_loop *l, struct session *s);
/* What other threads were told EAGAIN for. */
void send_wait_requested(struct sluice_loop *l, struct session *s);
/* Posts a frame without payload, from the reserve. False: no credit, no room, or the QP is dead. */
bool send_control(struct sluice_loop *l, struct session *s, enum frame_type type);
/* The same with a total in its header. */
bool send_control_total(struct sluice_loop *l, struct session *s, enum frame_type type,
                        uint64_t total);
/* The same with a payload, which is copied; fails also for want of memory. */
bool send_control_with(struct sluice_loop *l, struct session *s, enum frame_type type,
                       const void *payload, uint32_t bytes);
/* After the QP went to ERR: its completion is the last of this QP's sends. */
bool send_marker(struct sluice_loop *l, struct session *s);
void send_nothing(struct sluice_loop *l, struct session *s); /* a WRITE of no bytes */
/* Gives back everything still in the send queue, as if it had completed with this status. */
void send_abandon(struct sluice_loop *l, struct session *s, sluice_status status);
/* Delivers WRITABLE if somebody waits for it and a quarter of the window is free. */
void send_check_writable(struct sluice_loop *l, struct session *s);

/* ---- receive.c ------------------------------------------------------------------------------- */

void receive_completed(struct sluice_loop *l, const struct ibv_wc *wc);
/* Looks at held frames again; returns how many it got through. */
unsigned receive_held(struct sluice_loop *l, struct session *s);
/* A peer that broke the protocol: the frame goes back, the session ends. Always true. */
bool receive_broken(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                    const char *text);

/* What became of a frame whose turn it was. */
enum recv_result {
    RECV_DONE,      /* done with: delivered, dropped, or the session is ending */
    RECV_NO_MEMORY, /* it stays first in line and is tried again */
    RECV_PENDING,   /* likewise, until what it waits for says event_notice(NOTICE_HELD) */
    RECV_NO_ROOM,   /* likewise, until the application takes events again */
};

/* ---- recv_queue.c: receive buffers -------------------------------------------------------------- */

/* The first receives, before the QP may connect. False: no memory or the device refused. */
bool recv_queue_prime(struct sluice_loop *l, struct session *s);
/* Posts receives again, and grants the peer more if it wants more. */
void recv_queue_repost(struct sluice_loop *l, struct session *s);
/* Frees held frames, the partial message and buffers waiting to be posted. */
void recv_queue_drop(struct sluice_loop *l, struct session *s);
/* The queue pair is in ERR and its completions are back: receives that it will never give back. */
void recv_queue_swallowed(struct sluice_loop *l, struct session *s);
/* Where there is a trail: whether the device has it; if so, it counts as the oldest from here on. */
bool recv_queue_is_out(struct session *s, const struct sluice_msg *msg);
/* Tries again later, when there may be memory. */
void recv_queue_retry(struct sluice_loop *l, struct session *s);
/* One of the reserve, for receives. cache may be NULL: any thread. */
struct sluice_msg *recv_buffer_get(struct pool *pool, struct pool_cache *cache, uint32_t bytes);
/* A received message or receive buffer back to its pool. */
void recv_buffer_put(struct sluice_loop *l, struct sluice_msg *msg);
/* A new loop: what is the same in every list of receives it posts. */
void recv_queue_prepare(struct sluice_loop *l);
/* Posts all of a queue's repost list, for this session (NULL: none). False: the device refused. */
bool recv_queue_post(struct sluice_loop *l, struct recv_queue *q, const struct session *self);
/* Sees to spare receives; returns how many of those wanted there are. `sixteenths` of the reserve may
 * be receives for that. */
uint32_t recv_queue_spare(struct sluice_loop *l, struct session *s, uint32_t want,
                          unsigned sixteenths);

/* ---- srq.c: the receives that sessions of a loop share ------------------------------------ */

#define QP_CHUNKS 4096u
struct qp_chunk {
    uint32_t count;
    struct session *at[4096];
};

/* Without one (the device, the options), every session has its own. */
void srq_open(struct sluice_loop *l);
void srq_close(struct sluice_loop *l); /* gives it back to the device */
void srq_free(struct sluice_loop *l);  /* no session is left */
/* The session's QP uses them from now on, or no more. False: no memory, or its number is taken. */
bool srq_join(struct sluice_loop *l, struct session *s);
void srq_leave(struct sluice_loop *l, struct session *s, bool drained);
/* NULL: none has this number (any more). Only where the loop shares receives: shared.sessions. */
extern struct session srq_tombstone; /* of one whose queue pair was given up */
static inline struct session *srq_session(const struct sluice_loop *l, uint32_t qp_num) {
    const struct qp_chunk *chunk = l->srq.sessions[qp_num >> 12 & 0xfff];
    struct session *s = likely(chunk != NULL) ? chunk->at[qp_num & 0xfff] : NULL;
    return unlikely(s == &srq_tombstone) ? NULL : s;
}
/* A place for a buffer that joins; false: they are taken. Another in its place; none. */
bool srq_enter(struct sluice_loop *l, struct sluice_msg *msg);
void srq_put(struct sluice_loop *l, struct sluice_msg *msg, uint64_t place);
void srq_forget(struct sluice_loop *l, uint64_t place);
uint32_t srq_room(const struct sluice_loop *l);
/* A buffer that a frame took without a credit is posted again; stray: nobody knows whose it was. */
void srq_restore(struct sluice_loop *l, struct sluice_msg *msg);
void srq_stray(struct sluice_loop *l, struct sluice_msg *msg);
void srq_arm(struct sluice_loop *l);
void srq_low(struct sluice_loop *l);
void srq_say_low(struct sluice_loop *l); /* any thread */
/* A queue pair in ERR: it takes no more; it is to be drained; whether it is; it is given up. */
void srq_last(struct sluice_loop *l, struct session *s);
void srq_drain(struct sluice_loop *l, struct session *s);
unsigned srq_settle(struct sluice_loop *l);
/* Any queue pair: it is settled when the CQ was found empty once from now on; and that is over. */
void srq_await(struct sluice_loop *l, struct session *s);
void srq_unsettle(struct sluice_loop *l, struct session *s);

/* One that is or was the device's, of which there may be completions. */
static inline bool session_has_qp(const struct session *s) {
    return s->qp || s->qp_ended;
}

static inline bool session_takes_receives(const struct session *s) {
    return s->qp && s->state < SESSION_DRAINING;
}

/* A receive buffer whose frame is done with; its credit was counted. */
static inline void recv_queue_give_back(struct sluice_loop *l, struct session *s,
                                        struct sluice_msg *msg) {
    if (unlikely(!session_takes_receives(s))) {
        recv_buffer_put(l, msg);
        return;
    }
    struct recv_queue *q = s->rq;
    msg->state = MSG_RECEIVE;
    msg->next = q->repost;
    q->repost = msg;
    if (++s->repost_count + s->rx_missing >= s->repost_batch || s->rx_granted <= CREDIT_RESERVE)
        loop_dirty(l, s);
}

/* ---- retain.c: messages that were received and stay -------------------------------------------- */

/* The application is through with an event, and has kept its message. */
void retain_taken(struct sluice_loop *l, const struct loop_loan *loan);
/* Whether one more credit may be withheld: two are left to the peer. */
bool retain_may_withhold(const struct session *s);
/* A kept message that another thread freed. */
void retain_free_arrived(struct sluice_loop *l, struct sluice_msg *msg);
/* The queue pair is gone: nothing is withheld any more. */
void retain_end(struct sluice_loop *l, struct session *s);
/* The application frees a kept message. Any thread. */
void retain_free(struct sluice_msg *msg);
/* Whether another buffer must take its place when it is sent. */
static inline bool retain_holds(const struct sluice_msg *msg) {
    return msg->state == MSG_LOANED || (msg->flags & MSG_RETAINED);
}
/* Another thread has sent on what it kept of this session: its credit returns, by another buffer. */
void retain_moved(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* The message is sent on. 0, or ENOMEM and nothing has happened. The thread that has the message. */
int retain_pass(struct sluice_msg *msg);

/* ---- frame.c --------------------------------------------------------------------------------- */

/* NULL, or what is wrong with a frame of this type, DATA excepted. */
const char *frame_wrong(const struct frame *f);

/* ---- client.c and server.c: requests and their replies ------------------------------------- */

struct send_args; /* post.h */

/*
 * Whether a request is accepted, or who answers: 0, EAGAIN, ENOMEM, or EINVAL for a token that is none.
 * The last check of a call; any thread that owns the session or holds a reference.
 */
int rpc_client_admit(struct session *s, const struct send_args *args, bool foreign);
/* It was not accepted after all. */
void rpc_client_admit_undo(struct session *s, const struct send_args *args, bool foreign);
/* One that was accepted ends before it was posted. */
void rpc_client_unsent(struct sluice_loop *l, struct session *s, const struct sluice_msg *msg);
/* Another thread was told EAGAIN; it, or the loop's own, is told when to come again. */
void rpc_client_want(struct sluice_loop *l, struct session *s);
void rpc_client_check_writable(struct sluice_loop *l, struct session *s);
/* Of mine without a reply. With a reference held. */
uint32_t rpc_client_count(struct session *s);
/* LOOP_MSG_REQUESTS. */
void rpc_cancel_take_msg(struct sluice_loop *l, struct session *s);
/* Answers without a message (session->answers), and CANCELs (session->cancels). */
void rpc_server_flush(struct sluice_loop *l, struct session *s, struct wr_batch *batch);
void rpc_cancel_flush(struct sluice_loop *l, struct session *s);
/* The request with this id never reached the device. */
void rpc_client_unposted(struct session *s, uint32_t id);
/* The slot is free, nobody is inside. */
void rpc_client_forget(struct session *s);

/* Sending. The room for the reply is taken with the request. */
enum build_result rpc_client_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                   struct sluice_msg *msg);
/*
 * For whoever puts a request or reply on the wire (a frame of its own, an item of a coalesced frame, an
 * announcement): the `total` of its header. A request takes its entry; a reply gives the peer's back.
 * False: no entry is free, or no room for the reply; what ends the wait makes the session dirty.
 */
bool rpc_client_assign(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                       uint64_t *total);
/*
 * For whoever takes one off the wire: delivers msg, which holds its bytes, as REQUEST or REPLY; or
 * answers it, or drops it, and gives msg back (event_return). Room was checked. msg->deadline_ns: when
 * its frame arrived, 0 if just now.
 */
enum recv_result rpc_server_deliver(struct sluice_loop *l, struct session *s,
                                    struct sluice_msg *msg, uint64_t total);
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
/* Receiving, in order. */
enum recv_result rpc_server_take(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
enum recv_result rpc_client_reply_take(struct sluice_loop *l, struct session *s,
                                       struct sluice_msg *msg);
/* A frame that claims the room of a reply has arrived: false, there is none. */
bool rpc_client_reserved(struct session *s);
uint32_t rpc_client_arrived(struct session *s); /* so many have, and were not looked at */
/* CANCEL: NULL, or what is wrong. */
const char *rpc_server_cancelled(struct sluice_loop *l, struct session *s, const struct frame *f);
/* Deadlines; tells the loop the next. */
void rpc_client_expire(struct sluice_loop *l, struct session *s);
/* Whether requests of mine wait for a reply, or answers without a message to be posted. */
bool rpc_client_pending(struct session *s);
/* The queue pair is gone: every request ends, UNKNOWN. */
void rpc_client_end(struct sluice_loop *l, struct session *s);

/* ---- rndv.c, rndv_tx.c, rndv_rx.c: messages too large for a frame --------------------- */

/* Above how many bytes this session's messages go by rendezvous. */
uint64_t rndv_threshold(const struct session *s);
enum build_result rndv_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                             struct sluice_msg *msg);
/*
 * The same of a message that is a list of pieces, which stays where it is until iov_regions_done(): written by
 * the sender, so that no key of this side's memory leaves.
 */
enum build_result rndv_build_iov(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                 struct sluice_msg *msg, const struct iov_part *parts,
                                 unsigned count);
/* False: not so on this device; they go as fragments, whatever their size. */
bool rndv_has_way(const struct session *s, const struct iov_part *parts, unsigned count);
/* Posts what may be posted of the transfers under way. */
void rndv_flush(struct sluice_loop *l, struct session *s);
/* An entry of the send queue that was rndv.c's. */
void rndv_completed(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                    sluice_status status);
/* An announcement arrived: reading may begin, ahead of its turn. False: refused. */
bool rndv_rts_arrived(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* Its turn has come: delivered, or PENDING until the bytes are here. */
enum recv_result rndv_take(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* RTR or ATS, with its payload (hostile, to be read once). NULL, or what is wrong. */
const char *rndv_answer_arrived(struct sluice_loop *l, struct session *s, const struct frame *f,
                                const uint8_t *payload);
/* A WRITE with this immediate arrived. NULL, or what is wrong. */
const char *rndv_write_arrived(struct sluice_loop *l, struct session *s, uint32_t immediate);
/* Whether messages of mine wait for the peer to take them. */
bool rndv_pending(const struct session *s);
/* Memory is being wiped: another turn goes on, without a wait. */
bool rndv_wiping(const struct session *s);
/* The queue pair is gone, and nothing of it moves any more. */
void rndv_end(struct sluice_loop *l, struct session *s);
/* Frees what was received and not delivered. */
void rndv_drop(struct sluice_loop *l, struct session *s);

/* ---- one_sided.c and iov.c ---------------------------------------------------------------- */

enum build_result one_sided_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                  struct sluice_msg *msg);
void one_sided_completed(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                         sluice_status status);
enum recv_result notify_take(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
enum build_result iov_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                            struct sluice_msg *msg);
void iov_completed(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   sluice_status status);
/* A message of kind PIECES or ONE_SIDED no longer uses its regions. */
void iov_regions_done(struct sluice_msg *msg);
/*
 * Nothing more of a message of these kinds will be posted. True: the device has a part of it, and it ends
 * when that has completed. False: it may end now, with *status, which is made what is true of it.
 */
bool transfer_cut(struct sluice_msg *msg, sluice_status *status);

/* ---- coalesce.c: several small messages in one frame --------------------------------------------- */

/* The bound of what goes into one: 0, none does. */
uint32_t coalesce_bound(const struct session *s);
/*
 * Sending: takes what fits one frame off the head of this queue; room and, unless all of it are
 * replies, a credit were checked. NOTHING: no entry for a request.
 */
enum build_result coalesce_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                 struct msg_queue *queue);
/* An entry of the send queue that was a coalesced frame. msg: the first of those that were to hear of it. */
void coalesce_completed(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                        uint64_t bytes, sluice_status status);
enum recv_result coalesce_take(struct sluice_loop *l, struct session *s, struct sluice_msg *frame);
/* A message that lies in a coalesced frame is no longer needed. */
void coalesce_return(struct sluice_loop *l, struct session *s, struct sluice_msg *view);
/* One of those that need this frame is done with it: messages in it, and whoever takes it apart. */
void coalesce_release(struct sluice_loop *l, struct session *s, struct sluice_msg *frame);
/* The application makes a message that lies in a coalesced frame its own: its bytes move to its own buffer. */
void coalesce_retain(struct sluice_msg *view);

/* ---- credits.c: how many credits the peer has -------------------------------------------------- */

/* RECALL or RETURN: NULL, or what is wrong. */
const char *credits_control(struct sluice_loop *l, struct session *s, const struct frame *f);
/* Gives back what the peer has recalled. */
void credits_return(struct sluice_loop *l, struct session *s);
/* Whether credits are owed that must be told now. */
bool credits_update_due(const struct session *s);
/* The session is up. */
void credits_start(struct sluice_loop *l, struct session *s);
/*
 * So much has come lately that receives should be posted again in larger batches, even if the peer
 * never has many frames on their way.
 */
static inline bool credits_are_used(const struct session *s) {
    return s->rx_sequence - s->credits_seen >= 256;
}
/* The peer has used much of what it had: more, if it may have more. */
void credits_grow(struct sluice_loop *l, struct session *s);
/* `credits_granted` or `retained` has changed; figures for other threads. */
void credits_changed(struct session *s);
void credits_publish(struct session *s);
/* Looks at the sessions if it is time to; l->now_ns was just read. */
void credits_check(struct sluice_loop *l);
/*
 * A receive for the reply of a request: false, none can be had now; what ends the wait makes the
 * session dirty. Its reply came: taken, in that receive (FRAME_RESERVED); else in another frame.
 */
bool credits_reserve(struct sluice_loop *l, struct session *s);
void credits_unreserve(struct sluice_loop *l, struct session *s, bool taken);

/* ---- keepalive.c ----------------------------------------------------------------------------- */

/* From now on the session says that it lives, and the peer must. */
void keepalive_start(struct sluice_loop *l, struct session *s);
/* Looks at the sessions if it is time to; l->now_ns was just read. */
void keepalive_check(struct sluice_loop *l);
/* Every 64th turn, l->now_ns just read: whether the turns became too slow to count them. */
void keepalive_pace(struct sluice_loop *l);

/* ---- events.c --------------------------------------------------------------------------------- */

void event_message(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* The same as another event (REQUEST, REPLY), which the caller began to fill in. Room was checked. */
void event_loan(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                sluice_event *event);
/* A message that was received and is not lent after all. */
void event_return(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* Before it is delivered: the frame whose credit it holds is given back when it is, not before. */
static inline void event_escort(struct sluice_msg *msg, struct sluice_msg *frame) {
    msg->next = frame;
    msg->flags = MSG_ESCORTED;
}
/* An event without a message (NOTIFIED, LARGE). Room was checked. */
void event_plain(struct sluice_loop *l, struct session *s, sluice_event *event);
/* The outcome of a send is known; the SENT event follows when there is room. */
void event_outcome(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   sluice_status status);
void event_notice(struct sluice_loop *l, struct session *s, unsigned notices);
/* Delivers outcomes, notices and wakes as far as there is room; returns how many. */
unsigned event_deliver(struct sluice_loop *l);
unsigned event_listeners(struct sluice_loop *l); /* those whose device is gone */
/* Takes back what was lent, and frees sessions whose CLOSED was delivered. */
void event_take_back(struct sluice_loop *l);
/* The application makes a loaned message its own. Its thread, see sluice_keep(). */
void event_retain(struct sluice_msg *msg);

/* ---- landing.c ------------------------------------------------------------------------------- */

/* A buffer in which a message of this size is received; NULL: no memory now, or EMSGSIZE never. */
struct sluice_msg *landing_get(struct sluice_loop *l, uint64_t bytes);
/* The same for a message that this session's peer takes its time for, until landing_done(). */
struct sluice_msg *landing_for(struct sluice_loop *l, struct session *s, uint64_t bytes);
void landing_done(struct sluice_loop *l, struct session *s, uint64_t bytes);
/* Whether a session that has a landing may have another one. */
bool landing_may(const struct sluice_loop *l, uint64_t bytes);
/* A part came. */
static inline void landing_moved(struct session *s) {
    s->landing_moves++;
}
/* Now and then: whether the peer goes on. */
void landing_check(struct sluice_loop *l, struct session *s);

/* ---- open.c and close.c ---------------------------------------------------------------------- */

/* Moves the QP to another state; false and errno when the device refuses. */
bool session_modify(struct session *s, struct ibv_qp_attr *attr, int mask);
void session_prepare(struct sluice_loop *l, struct session *s);
void session_apply(struct sluice_loop *l, struct session *s);
void session_adopt(struct sluice_loop *l, struct session *s);
void session_arrived(struct sluice_loop *l, struct session *s); /* before it was adopted; once */
/* The dialer is welcome: regions are open to it. False: the device refuses. */
bool session_admit(struct session *s);
void session_begin(struct sluice_loop *l, struct session *s);
/* A peer waits for the application's decision: CONNECT. */
void session_ask(struct sluice_loop *l, struct session *s);
void session_hangup(struct sluice_loop *l, struct session *s, uint64_t grace_ns);
void session_down(struct sluice_loop *l, struct session *s);
void session_drain(struct sluice_loop *l, struct session *s);
void session_gone(struct sluice_loop *l, struct session *s);
/* Ends the session for this reason, unless it is ending already. */
void session_close(struct sluice_loop *l, struct session *s, sluice_reason reason, uint32_t vendor,
                   const char *text);
void session_peer_bye(struct sluice_loop *l, struct session *s);
/* To a peer whose handshake is made: no. The session ends for `reason` on this side. */
void session_refuse(struct sluice_loop *l, struct session *s, sluice_reason reason,
                    const struct private_data_rej *rej);
/* From a listener with a handshake: no. */
void session_refused(struct sluice_loop *l, struct session *s, const struct private_data_rej *rej);
/* A completion failed: what that says of the peer or the device. */
void session_wc_error(struct sluice_loop *l, struct session *s, const struct ibv_wc *wc);
/* The peer's device did not allow an operation of the application. */
void session_access_error(struct sluice_loop *l, struct session *s, const struct ibv_wc *wc);
/* The same of a large message that was announced, or of the memory for one. */
void session_withdrawn(struct sluice_loop *l, struct session *s, const struct ibv_wc *wc);
/* A completion came back while leaving or draining: on to the next step if it was the last. */
void session_progress(struct sluice_loop *l, struct session *s);
/* The session waits for a thread that is inside of a call: looked at again every turn. */
void session_wait_for_pins(struct sluice_loop *l, struct session *s);
/* A deadline of the session may have passed. */
void session_timer(struct sluice_loop *l, struct session *s);
/* CLOSED was delivered (or is not wanted): the slot is free as soon as nobody is inside. */
void session_free(struct sluice_loop *l, struct session *s);
/* Frees what session_free() marked, as far as nobody is inside any more. */
void session_reap(struct sluice_loop *l);
void session_attach(struct sluice_loop *l, struct session *s);
/* After a poll: sessions whose connection is down and for which nothing more comes. */
unsigned session_check_downs(struct sluice_loop *l);
void session_down_now(struct sluice_loop *l, struct session *s);

/* ---- handshake.c --------------------------------------------------------------------------------- */

/* Listener, before it answers: its proof, into conn->rep. NONE, or why the peer is refused. */
sluice_reason handshake_prove(struct session *s);
/* Dialer, before its QP can receive: whether the listener has proven itself. */
sluice_reason handshake_verify(struct session *s);
extern const char greet_no_key[]; /* to prove with */
/* The connection is there: the dialer says HELLO, the listener looks whether it came already. */
void handshake_begin(struct sluice_loop *l, struct session *s);
/* NULL, or what is wrong with this frame during the handshake. */
const char *handshake_check(const struct session *s, const struct frame *f);
void handshake_arrived(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* Dialer: what it said has had no answer for a while. */
void handshake_nudge(struct sluice_loop *l, struct session *s);
/* The application's answer. */
void handshake_answered(struct sluice_loop *l, struct session *s);

#endif
