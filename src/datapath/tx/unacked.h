/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * unacked.h - frames that stay in the send queue until the peer has acknowledged them (PRIVATE_DATA_FEATURE_RESUME).
 *
 * Owner: the thread that owns the loop.
 */
#ifndef DATAPATH_TX_UNACKED_H
#define DATAPATH_TX_UNACKED_H

#include "datapath/tx/post.h"

/* From now on, before the first frame: those of this connection do. */
void unacked_begin(struct connection *c);
/* The numbers of its frames, of which it has sent none, go on from c->tx.sequence. */
void unacked_continue(struct connection *c);
/* The last entries of the send queue, so many, are about to be posted from l->send_wr[]. */
void unacked_batch(struct sluice_loop *l, struct session *s, unsigned count);

/*
 * A message, or bytes that are copied (msg: NULL), of such a session: framed (framed.h), and kept
 * besides. False: nothing happened; else the message is not the caller's any more.
 */
bool unacked_framed(struct sluice_loop *l, struct session *s, uint64_t id, struct sluice_msg *msg,
                    const uint8_t *data, uint64_t bytes, bool nested);

/* The place in the send queue up to which the device is done. */
static inline uint32_t unacked_done(const struct connection *c) {
    return connection_keeps(c) ? c->unacked.done : c->sq.head;
}

/* So many entries of its send queue are for frames, but for those of the reserve. */
uint32_t unacked_limit(const struct connection *c);
/* How many are for requests of any kind, also while only frames of before may be posted (replay.c). */
static inline uint32_t sq_places(const struct connection *c) {
    return c->sq.limit > 0 || !c->sq.entries || c->session->move.guest ? c->sq.limit
                                                                       : unacked_limit(c);
}
/* The slice of a message behind a header of the ring, as it was posted. */
struct ibv_sge unacked_slice(const uint8_t *header);

/* The place up to which the peer's device has what was sent, as far as that can be known. */
static inline uint32_t unacked_told(const struct connection *c) {
    return connection_keeps(c) && c->confirm.probe_known ? c->unacked.proved : unacked_done(c);
}

/* Frames were posted that the peer may not have. */
static inline bool unacked_some(const struct connection *c) {
    return connection_keeps(c) && c->tx.acked != c->tx.sequence;
}

#endif
