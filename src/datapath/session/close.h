/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * close.h - every way a session ends.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_SESSION_CLOSE_H
#define DATAPATH_SESSION_CLOSE_H

#include "datapath/loop/upward.h"

void session_hangup(struct sluice_loop *l, struct session *s, uint64_t grace_ns);
/* Ends it, whatever may be hoped for: session_close() asks down.c first. */
void session_end(struct sluice_loop *l, struct session *s, sluice_reason reason, uint32_t vendor,
                 const char *text);
/* It was hung up, and is up: what was accepted is sent until then. */
void session_flush_until(struct sluice_loop *l, struct session *s, uint64_t due_ns);
void session_down(struct sluice_loop *l, struct session *s);
void session_gone(struct sluice_loop *l, struct session *s);
void session_peer_bye(struct sluice_loop *l, struct session *s);
/* Refuses a peer whose handshake is made. The session ends for `reason` on this side. */
void session_refuse(struct sluice_loop *l, struct session *s, sluice_reason reason,
                    const struct private_data_rej *rej);
/* From a listener with a handshake: no. */
void session_refused(struct sluice_loop *l, struct session *s, const struct private_data_rej *rej);
/* A completion came back while leaving or draining: on to the next step if it was the last. */
void session_progress(struct sluice_loop *l, struct session *s);
/* The session waits for a thread that is inside of a call: looked at again every turn. */
void session_wait_for_pins(struct sluice_loop *l, struct session *s);
/* A deadline of the session may have passed. */
void session_timer(struct sluice_loop *l, struct session *s);
/* After a poll: sessions whose connection is down and for which nothing more comes. */
unsigned session_check_downs(struct sluice_loop *l);
/* Instead of "lost", what is known by now. */
void close_settle(struct session *s, sluice_reason reason, uint32_t vendor, const char *text);
/*
 * Records what the stack reported of the end; -1: nothing of that kind. The first value of each kind is kept. A flush
 * tells no cause: a value that does replaces it.
 */
void close_note_cause(struct session *s, int32_t cm_event, int32_t cm_status, int32_t wc_status);
/*
 * A listener's session ends before its dialer's confirmation was seen. The dialer has outcomes of the frames that
 * arrived: so the session is up first.
 */
void close_adopt_heard(struct sluice_loop *l, struct session *s);
/* The connection is down, and nothing more had arrived. */
void close_down_now(struct sluice_loop *l, struct session *s);

#endif
