/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * srq.h - the shared receive queue of a loop.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RX_SRQ_H
#define DATAPATH_RX_SRQ_H

#include "datapath/loop/loop.h"

#define QP_CHUNKS 4096u

struct qp_entry {
    struct connection *conn;
    struct session *session; /* the connection's: to be fetched ahead with it */
};

struct qp_chunk {
    uint32_t count;
    struct qp_entry at[4096];
};

/* Without one (the device, the options), every session has its own. */
void srq_open(struct sluice_loop *l);
void srq_close(struct sluice_loop *l); /* gives it back to the device */
void srq_free(struct sluice_loop *l);  /* no session is left */
/* The connection's QP uses them from now on, or no more. False: no memory, or its number is taken. */
bool srq_join(struct sluice_loop *l, struct connection *c);
/* It is of another session of this loop now. */
void srq_renamed(struct sluice_loop *l, const struct connection *c);
void srq_leave(struct sluice_loop *l, struct connection *c, bool drained);
extern struct connection srq_tombstone; /* of one whose queue pair was given up */

/* NULL: none has this number (any more). Only where the loop shares receives: srq.connections. */
static inline const struct qp_entry *srq_entry(const struct sluice_loop *l, uint32_t qp_num) {
    const struct qp_chunk *chunk = l->srq.connections[qp_num >> 12 & 0xfff];
    const struct qp_entry *entry = likely(chunk != NULL) ? &chunk->at[qp_num & 0xfff] : NULL;
    return likely(entry && entry->conn) && likely(entry->conn != &srq_tombstone) ? entry : NULL;
}

static inline struct connection *srq_connection(const struct sluice_loop *l, uint32_t qp_num) {
    const struct qp_entry *entry = srq_entry(l, qp_num);
    return entry ? entry->conn : NULL;
}

/* A place for a buffer that joins; false: they are taken. Another in its place; none. */
bool srq_enter(struct sluice_loop *l, struct sluice_msg *msg);
void srq_put(struct sluice_loop *l, struct sluice_msg *msg, uint64_t place);
void srq_forget(struct sluice_loop *l, uint64_t place);
/* Places for more credits of those that share. Some are kept free, so that requests find receives for their replies. */
uint32_t srq_room(const struct sluice_loop *l);
/* Whether another connection may share: with its first credits, some places are left for all to have more. */
bool srq_takes_another(const struct sluice_loop *l);
/* A buffer that a frame took without a credit is posted again; stray: the session is not known. */
void srq_restore(struct sluice_loop *l, struct sluice_msg *msg);
void srq_stray(struct sluice_loop *l, struct sluice_msg *msg);
void srq_arm(struct sluice_loop *l);
void srq_low(struct sluice_loop *l);
void srq_say_low(struct sluice_loop *l); /* any thread */
void srq_say_last(struct sluice_loop *l, struct connection *c);
/* A queue pair in ERR: it takes no more; it is to be drained; whether it is; it is given up. */
void srq_last(struct sluice_loop *l, struct connection *c);
void srq_drain(struct sluice_loop *l, struct connection *c);
unsigned srq_settle(struct sluice_loop *l);
/* Any queue pair: it is settled when the CQ was found empty once from now on; and that is over. */
void srq_await(struct sluice_loop *l, struct connection *c);
void srq_unsettle(struct sluice_loop *l, struct connection *c);

#endif
