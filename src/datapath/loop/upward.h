/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * upward.h - what the floors of the data path ask of those above them: declared below them all, and made where each line says.
 *
 * A session ends wherever something of it fails, what a floor has freed lets others go on, and a message may be the last of
 * its kind anywhere. Everything else is called downwards (tests/linking/layers.sh).
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_LOOP_UPWARD_H
#define DATAPATH_LOOP_UPWARD_H

#include "core/wire/frame.h"
#include "datapath/loop/loop.h"

struct wr_batch;

enum build_result {
    BUILD_DONE,    /* wholly posted: it leaves the queue (its links are not touched before) */
    BUILD_PARTIAL, /* some of it: again, if there is room */
    BUILD_NONE, /* credits, room or memory are missing; what ends the wait makes the session dirty */
};

/* progress/progress.c: one turn; returns how many things it found to do. */
unsigned loop_progress(struct sluice_loop *l);
/* session/close.c: ends the session for this reason, unless it is ending already. */
void session_close(struct sluice_loop *l, struct session *s, sluice_reason reason, uint32_t vendor,
                   const char *text);
/* session/close.c: a completion of the connection came back, whether its session sends over it or not. */
void connection_progress(struct sluice_loop *l, struct connection *c);
/* session/failure.c: the device refused to post. */
void session_post_refused(struct sluice_loop *l, struct session *s, int error, const char *what);
/* progress/receive.c: a peer that broke the protocol: the frame goes back, the session ends. Always true. */
bool receive_broken(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                    const char *text);
/* progress/receive.c: a frame of so many bytes came over the connection, and its receive is counted. */
void receive_frame(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
                   uint32_t bytes);
/* rx/loans.c: takes back the messages that events lent. */
void event_take_back(struct sluice_loop *l);
/* progress/flush.c: posts what may be posted: queued messages, a CREDIT frame that is due. */
void send_flush(struct sluice_loop *l, struct session *s);
/* progress/flush.c: the work requests of one message, or some of them: room and, where it needs one, a credit were checked. */
enum build_result wr_batch_message(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                   struct sluice_msg *msg);
/* progress/flush.c: the message ends before any of it was posted. */
void finish_unsent(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   sluice_status status);
/* tx/post.c: posts a frame without payload, from the reserve. False: no credit, no room, or the QP is dead. */
bool send_control_total(struct sluice_loop *l, struct session *s, enum frame_type type,
                        uint64_t total);

#endif
