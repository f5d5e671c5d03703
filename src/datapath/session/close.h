/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * close.h - every way a session ends.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_SESSION_CLOSE_H
#define DATAPATH_SESSION_CLOSE_H

#include "datapath/loop/loop.h"

/* Moves the QP to another state; false and errno when the device refuses. */
bool session_modify(struct session *s, struct ibv_qp_attr *attr, int mask);
void session_hangup(struct sluice_loop *l, struct session *s, uint64_t grace_ns);
void session_down(struct sluice_loop *l, struct session *s);
void session_gone(struct sluice_loop *l, struct session *s);
/* Ends the session for this reason, unless it is ending already. */
void session_close(struct sluice_loop *l, struct session *s, sluice_reason reason, uint32_t vendor,
                   const char *text);
void session_peer_bye(struct sluice_loop *l, struct session *s);
/* Refuses a peer whose handshake is made. The session ends for `reason` on this side. */
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
/* CLOSED was delivered (or is not wanted): the slot is free as soon as no thread is inside. */
void session_free(struct sluice_loop *l, struct session *s);
/* Frees what session_free() marked, where no thread is inside any more. */
void session_reap(struct sluice_loop *l);
/* After a poll: sessions whose connection is down and for which nothing more comes. */
unsigned session_check_downs(struct sluice_loop *l);
/*
 * The device refused a work request: what that says of the peer or the device, with `what` it refused. Where the
 * kernel drives the QP (iWARP) it refuses as soon as the connection is down; any other error is the device's own.
 */
void session_post_refused(struct sluice_loop *l, struct session *s, int error, const char *what);
/* Instead of "lost", what is known by now. */
void close_settle(struct session *s, sluice_reason reason, uint32_t vendor, const char *text);

#endif
