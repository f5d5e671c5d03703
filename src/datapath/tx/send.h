/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * send.h - the arguments of sluice_send(), and the window.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_TX_SEND_H
#define DATAPATH_TX_SEND_H

#include "datapath/loop/loop.h"

/* A message another thread handed over. */
void send_arrived(struct sluice_loop *l, struct sluice_msg *msg);
/* Takes over the limits for which other threads got EAGAIN. */
void send_wait_requested(struct sluice_loop *l, struct session *s);
/* Delivers WRITABLE if the application waits for it and a quarter of the window is free. */
void send_check_writable(struct sluice_loop *l, struct session *s);
/* The arguments of a call that sends. */
struct send_args {
    uint64_t tag, deadline_ns;
    uint64_t request_id; /* of the request a reply answers */
    uint32_t flags, id;
    uint8_t kind; /* enum msg_kind */
};

/* Takes the caller's options apart: 0 or EINVAL. */
int send_options(struct send_args *args, const sluice_send_options *o);
int iov_send_options(struct send_args *args,
                     const sluice_send_options *o); /* IN_PLACE is allowed */
/* sluice_send() for every kind of message; any thread. 0: taken. */
int send_submit(sluice_session handle, struct sluice_msg *msg, const struct send_args *args);

/* The share of the window of so many messages is free again. */
static inline void window_release(struct session *s, uint32_t count, uint64_t bytes, bool foreign) {
    if (foreign) {
        atomic_fetch_sub_explicit(&s->foreign.bytes, bytes, memory_order_relaxed);
        s->window.foreign_taken -= count;
        atomic_fetch_sub_explicit(&s->ref, count, memory_order_release);
        return;
    }
    /* One writer: plain loads and stores that others may read. */
    atomic_store_explicit(&s->window.own_messages,
                          atomic_load_explicit(&s->window.own_messages, memory_order_relaxed) -
                              count,
                          memory_order_relaxed);
    atomic_store_explicit(&s->window.own_bytes,
                          atomic_load_explicit(&s->window.own_bytes, memory_order_relaxed) - bytes,
                          memory_order_relaxed);
}

#endif
