/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * datapath.h - what the files of the data path offer each other. Everything here runs on the thread
 * that owns the loop unless it says otherwise.
 */
#ifndef DATAPATH_DATAPATH_H
#define DATAPATH_DATAPATH_H

#include "datapath/frame.h"
#include "datapath/loop.h"

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
/* Posts a frame without payload, from the reserve. False: no credit, no room, or the QP is dead. */
bool send_control(struct sluice_loop *l, struct session *s, enum frame_type type);
/* The same with a payload, which is copied; fails also for want of memory. */
bool send_control_with(struct sluice_loop *l, struct session *s, enum frame_type type,
                       const void *payload, uint32_t bytes);
/* After the QP went to ERR: its completion is the last of this QP's sends. */
bool send_marker(struct sluice_loop *l, struct session *s);
/* Gives back everything still in the send queue, as if it had completed with this status. */
void send_abandon(struct sluice_loop *l, struct session *s, sluice_status status);
/* Delivers WRITABLE if somebody waits for it and a quarter of the window is free. */
void send_check_writable(struct sluice_loop *l, struct session *s);

/* ---- receive.c ------------------------------------------------------------------------------- */

void receive_completed(struct sluice_loop *l, const struct ibv_wc *wc);
/* Looks at held frames again; returns how many it got through. */
unsigned receive_held(struct sluice_loop *l, struct session *s);
/* The first receives, before the QP may connect. False: no memory or the device refused. */
bool receive_prime(struct sluice_loop *l, struct session *s);
/* The receives that were kept back from a peer that had not greeted yet. */
bool receive_prime_rest(struct sluice_loop *l, struct session *s);
/* Posts receives again and replaces buffers the application kept. */
void receive_repost(struct sluice_loop *l, struct session *s);
/* A receive buffer that is no longer needed by anybody. */
void receive_give_back(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* Frees held frames, the partial message and buffers waiting to be posted. */
void receive_drop(struct sluice_loop *l, struct session *s);

/* ---- keepalive.c ----------------------------------------------------------------------------- */

/* From now on the session says that it lives, and the peer must. */
void keepalive_start(struct sluice_loop *l, struct session *s);
/* Looks at the sessions if it is time to; l->now_ns was just read. */
void keepalive_look(struct sluice_loop *l);
/* Every 64th turn, l->now_ns just read: whether the turns became too slow to count them. */
void keepalive_pace(struct sluice_loop *l);

/* ---- event.c --------------------------------------------------------------------------------- */

void event_message(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* The outcome of a send is known; the SENT event follows when there is room. */
void event_outcome(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   sluice_status status);
void event_notice(struct sluice_loop *l, struct session *s, unsigned notices);
/* Delivers outcomes, notices and wakes as far as there is room; returns how many. */
unsigned event_deliver(struct sluice_loop *l);
/* Takes back what was lent, and frees sessions whose CLOSED was delivered. */
void event_take_back(struct sluice_loop *l);
/* The application makes a borrowed message its own. Its thread, see sluice_keep(). */
void event_unlend(struct sluice_msg *msg);

/* ---- open.c and close.c ---------------------------------------------------------------------- */

/* Moves the QP to another state; false when the device refuses. */
bool session_modify(struct session *s, struct ibv_qp_attr *attr, int mask);
void session_prepare(struct sluice_loop *l, struct session *s);
void session_apply(struct sluice_loop *l, struct session *s);
void session_adopt(struct sluice_loop *l, struct session *s);
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
/* To a peer that has greeted: no. The session ends for `reason` on this side. */
void session_refuse(struct sluice_loop *l, struct session *s, sluice_reason reason,
                    const struct record_rej *rej);
/* From a listener that was greeted: no. */
void session_refused(struct sluice_loop *l, struct session *s, const struct record_rej *rej);
/* A completion failed: what that says of the peer or the device. */
void session_wc_error(struct sluice_loop *l, struct session *s, const struct ibv_wc *wc);
/* A completion came back while leaving or draining: on to the next step if it was the last. */
void session_progress(struct sluice_loop *l, struct session *s);
/* The session waits for a thread that is inside of a call: looked at again every turn. */
void session_part(struct sluice_loop *l, struct session *s);
/* A deadline of the session may have passed. */
void session_timer(struct sluice_loop *l, struct session *s);
/* CLOSED was delivered (or is not wanted): the slot is free as soon as nobody is inside. */
void session_free(struct sluice_loop *l, struct session *s);
/* Frees what session_free() marked, as far as nobody is inside any more. */
void session_bury(struct sluice_loop *l);
void session_attach(struct sluice_loop *l, struct session *s);
/* After a poll: sessions whose connection is down and for which nothing more comes. */
unsigned session_check_downs(struct sluice_loop *l);
void session_down_now(struct sluice_loop *l, struct session *s);

/* ---- greet.c --------------------------------------------------------------------------------- */

/* Listener, before it answers: its proof, into conn->rep. NONE, or why the peer is refused. */
sluice_reason greet_prove(struct session *s);
/* Dialer, before its QP can receive: whether the listener has proven itself. */
sluice_reason greet_verify(struct session *s);
/* The connection is there: the dialer says HELLO, the listener looks whether it came already. */
void greet_begin(struct sluice_loop *l, struct session *s);
/* NULL, or what is wrong with this frame while greeting. */
const char *greet_check(const struct session *s, const struct frame *f);
void greet_arrived(struct sluice_loop *l, struct session *s, struct sluice_msg *msg);
/* The application's answer. */
void greet_answered(struct sluice_loop *l, struct session *s);

#endif
