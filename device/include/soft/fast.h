/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fast.h - calls that no NIC has: shorter ways to send and to receive, memory that peers map, sleeping on a CQ without its
 * channel. Each can be left out: what verbs.h has does the same, and takes longer.
 */
#ifndef SOFT_FAST_H
#define SOFT_FAST_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Visible between the objects of the drop-in (device/dropin/); libsluice's map hides them again. */
#pragma GCC visibility push(default)

/* Messages so far that found no receive posted and had to wait (RNR), in all of this process. */
extern _Atomic uint64_t soft_rnr;

/* ---- order --------------------------------------------------------------------------------------- */

/*
 * Of this CQ's queue pairs, which are made later, a receive may be seen before the completion of the send that it answers,
 * in the same CQ or another. Every other CQ keeps the order that NICs keep.
 */
void soft_cq_any_order(struct ibv_cq *cq);

/* This queue gives the receive that was posted last, whose memory is warm, not the one that waits longest. */
void soft_srq_newest_first(struct ibv_srq *srq);

/* ---- posting ------------------------------------------------------------------------------------- */

/*
 * An inline SEND of a header of 24 bytes, the words given and a 0, and of up to SOFT_FRAMED bytes behind it; signalled with
 * SOFT_FRAMED_SIGNALED in `bytes`. Not 0: nothing happened, ibv_post_send() says why.
 */
#define SOFT_FRAMED 424u
#define SOFT_FRAMED_SIGNALED (1u << 31)
int soft_post_framed(struct ibv_qp *qp, uint64_t word0, uint64_t word1, const uint8_t *from,
                     uint32_t bytes, uint64_t wr_id);

/* Posts up to SOFT_WORDS words and nothing else, between two processes of one host alone. */
#define SOFT_WORDS 14u
int soft_post_words(struct ibv_qp *qp, const uint64_t *words, unsigned count, bool signalled,
                    uint64_t wr_id);

/* ---- memory -------------------------------------------------------------------------------------- */

/*
 * An access flag of MRs and of memory windows: the owner leaves the memory as it is while it is sent, or while the window is
 * bound. So it goes to a socket from where it lies. Else it is copied, as it may change between its sum and the socket.
 */
#define SOFT_ACCESS_STILL (1u << 28)

/*
 * Memory that peers of this user map, so that what is sent out of a registration in it is copied once; of huge pages, or not
 * at all. NULL and errno; ENOMEM also for more than the machine has. Any thread.
 */
void *soft_mem_alloc(size_t bytes);
void *soft_mem_alloc_huge(size_t bytes, unsigned page_log2);
void soft_mem_free(void *addr, size_t bytes);

/*
 * soft_share(): how the peer of a QP in RTS finds these bytes of an MR, if it has mapped them. soft_fetch(): the peer copies
 * sge->length of them into memory of its own. 0; EAGAIN: it is not known yet where they lie; ECONNRESET: their sender is down,
 * and what was copied is nothing; EINVAL: the sender shares no such bytes; EFAULT: `to` is no memory that may be written. Both:
 * any thread.
 */
bool soft_share(struct ibv_qp *qp, const struct ibv_mr *mr, const void *addr, uint64_t bytes,
                uint32_t *region, uint64_t *at);
int soft_fetch(struct ibv_qp *qp, uint32_t region, uint64_t at, const struct ibv_sge *to);

/* ---- sleeping ------------------------------------------------------------------------------------ */

/*
 * The calling thread polls this CQ, and is about to arm it and to sleep until something completes. fd: epoll sets that it
 * sleeps on besides, edge-triggered: what comes over a socket, or from a peer of this host, wakes it there and not by the
 * channel. -1 where there is none now; false: there is none at all. They are the device's, and stay the same while the CQ lives.
 * elsewhere: the thread may do something else when they wake it, so that sockets are read by the engine. It may be called
 * again before the thread polls for good.
 */
bool soft_sleep_begin(struct ibv_cq *cq, bool elsewhere, int fd[2]);
/* After true: the thread polls for good. True: the CQ is not armed any more. */
bool soft_sleep_end(struct ibv_cq *cq);
/*
 * True, once: a poll of this CQ left part of a long message in a socket, or has room for more of one in it. The thread polls
 * again before it sleeps, as no edge tells of that.
 */
bool soft_sleep_unfinished(struct ibv_cq *cq);

/* ---- who the peer is ----------------------------------------------------------------------------- */

/* A number of its process, or of its user if that is another one; 0: another host's. */
uint64_t soft_peer_number(struct ibv_qp *qp);
bool soft_over_tcp(struct ibv_qp *qp);
/* Over TCP, and not this device: it has iWARP's operations only, neither immediate data nor atomics. */
bool soft_peer_is_plain(struct ibv_qp *qp);

#pragma GCC visibility pop

#endif
