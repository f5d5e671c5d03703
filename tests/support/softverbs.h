/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs.h - what the tests of the software device's verbs share: an end (context, PD, CQs,
 * QP, memory) with its whole life, posting and polling with a deadline, patterns.
 *
 * Everything here also works in a forked child: must.h.
 */
#ifndef TESTS_SUPPORT_SOFTVERBS_H
#define TESTS_SUPPORT_SOFTVERBS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/must.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/spinlock.h"
#include "soft/ipc/untrusted_fd.h"
#include "soft/object/mr.h"
#include "soft/object/qp.h"
#include "soft/soft.h"
#include "support/pattern.h"
#include "support/tasks.h"
#include "support/verdict.h"

/* A completion that succeeded, and is the right one: its order, size, sender. */
#define sv_right(wc, expr)                                                                         \
    do {                                                                                           \
        must((wc).status == IBV_WC_SUCCESS);                                                       \
        must_data(expr);                                                                           \
    } while (0)

#define SV_DEADLINE_NS 30000000000ull /* far above what a loaded machine with a sanitizer needs */

/* ---- one end ----------------------------------------------------------------------------------- */

struct sv_options {              /* 0 = the default in the comment */
    uint32_t sends, recvs;       /* 64, 64 */
    uint32_t send_sge, recv_sge; /* 4, 4 */
    uint32_t inline_bytes;       /* what the device gives anyway */
    int cqe;                     /* 256 */
    bool sig_all, one_cq, channel;
    uint8_t rnr_timer;          /* 1: 10 us */
    uint8_t timeout, retry_cnt; /* 14 (67 ms), 1 */
    bool finite_rnr;            /* rnr_retry as below instead of 7 (wait for ever) */
    uint8_t rnr_retry;
    size_t bytes;          /* 64 KiB of registered memory */
    bool mapped;           /* that peers map */
    enum ibv_qp_type type; /* RC */
};

struct sv_end {
    struct sv_options o;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *scq, *rcq;
    struct ibv_qp *qp;
    struct ibv_qp_cap cap;
    uint8_t *buf;
    struct ibv_mr *mr;
};

#define SV_OPTIONS(...) ((struct sv_options){__VA_ARGS__})

/* The device, opened. */
struct ibv_context *sv_context(void);
/* Another queue pair as the end's own. */
struct ibv_qp *sv_qp(struct sv_end *e);
/* Everything up to a queue pair in RESET. */
void sv_open(struct sv_end *e, struct sv_options o);
/* Frees all of it. */
void sv_close(struct sv_end *e);

/* ---- states ------------------------------------------------------------------------------------ */

#define SV_INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define SV_RTR_MASK                                                                                \
    (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                \
     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define SV_RTS_MASK                                                                                \
    (IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |         \
     IBV_QP_MAX_QP_RD_ATOMIC)

/* All attributes of a transition to that state. */
struct ibv_qp_attr sv_attr(const struct sv_end *e, enum ibv_qp_state state, uint32_t dest);
/* RESET to INIT; the status. */
int sv_to_init(struct sv_end *e);
/* INIT to RTR; the status. */
int sv_to_rtr(struct sv_end *e, uint32_t dest);
/* RTR to RTS; the status. */
int sv_to_rts(struct sv_end *e);
/* To that state with no other attribute; the status. */
int sv_to(struct sv_end *e, enum ibv_qp_state state);
enum sv_down { SV_TO_ERR, SV_TO_RESET, SV_DESTROYED, SV_DOWNS };

/* The queue pair is down in that way, and what it had posted is its owner's again. */
void sv_take_down(struct sv_end *e, enum sv_down how);
/* RESET to RTS. */
void sv_connect(struct sv_end *e, uint32_t dest);
/* sv_connect() for another queue pair of this end. */
void sv_connect_qp(struct sv_end *e, struct ibv_qp *qp, uint32_t dest);
/* The state of the queue pair, as it is queried. */
enum ibv_qp_state sv_state(struct sv_end *e);
/* Two connected ends in this process. */
void sv_pair(struct sv_end *a, struct sv_options oa, struct sv_end *b, struct sv_options ob);
/* Closes both. */
void sv_unpair(struct sv_end *a, struct sv_end *b);

/* ---- waiting ----------------------------------------------------------------------------------- */

/* Between two looks; fails when the deadline passed. */
void sv_pause(unsigned *turns, uint64_t since, const char *what, const char *file, int line);

#define sv_until(expr)                                                                             \
    do {                                                                                           \
        unsigned turns_ = 0;                                                                       \
        uint64_t since_ = soft_now_ns();                                                           \
        while (!(expr))                                                                            \
            sv_pause(&turns_, since_, "deadline: " #expr, __FILE__, __LINE__);                     \
    } while (0)

/* The next completion. */
struct ibv_wc sv_poll_at(struct ibv_cq *cq, const char *file, int line);

#define sv_poll(cq) sv_poll_at(cq, __FILE__, __LINE__)

/*
 * Nothing comes out of this CQ, however often it and the other one is looked at. How long is a
 * matter of taste: long enough for the engine to have had its turn many times.
 */
void sv_stays_empty(struct ibv_cq *cq, struct ibv_cq *other);
/* The ring of the other side arrived, so that a post goes out at once. */
void sv_wait_linked(struct sv_end *e);
/* The other side mapped this end's memory: what follows goes as descriptors. */
void sv_wait_mapped(struct sv_end *e);
/* The other side mapped the blocks for what is not mapped. */
void sv_wait_staged(struct sv_end *e);
/* What is not mapped goes through the ring, to this process: it has no block any more. */
void sv_only_ring(struct sv_end *e);
/* How many slots of its ring it has written. */
uint32_t sv_slots_written(struct sv_end *e);

/* ---- posting ----------------------------------------------------------------------------------- */

/* A part of its memory. */
struct ibv_sge sv_sge(const struct sv_end *e, size_t offset, size_t bytes);
/* Posts a receive; the status. */
int sv_recv(struct sv_end *e, uint64_t wr_id, size_t offset, size_t bytes);
/* Posts a SEND; the status. */
int sv_send(struct sv_end *e, uint64_t wr_id, size_t offset, size_t bytes, unsigned flags);
/* Posts a BIND_MW, number 5; the status. */
int sv_bind(struct ibv_qp *qp, struct ibv_mw *mw, uint32_t rkey, struct ibv_mw_bind_info info);
/* Posts a LOCAL_INV of that key, number 6; the status. */
int sv_invalidate(struct ibv_qp *qp, uint32_t rkey);

/* ---- events ------------------------------------------------------------------------------------ */

/* Waits for the next asynchronous event: it is this, of this object if one is given. */
void sv_async(struct ibv_context *ctx, enum ibv_event_type type, const void *element);
/* Waits for the next event of the channel; whose it is. */
struct ibv_cq *sv_cq_event(struct ibv_comp_channel *channel);

/* ---- patterns ---------------------------------------------------------------------------------- */

static inline uint8_t sv_byte(size_t i, uint32_t seed) {
    return pattern_byte(i, seed);
}

/* Writes the pattern. */
void sv_fill(uint8_t *p, size_t bytes, uint32_t seed);
/* The pattern is there; else it is wrong data. */
void sv_check(const uint8_t *p, size_t bytes, uint32_t seed);

/* ---- counts ------------------------------------------------------------------------------------ */

/* What the last peer left behind is closed by a thread of its own, in its own time. */
unsigned sv_fds(void);

/* The threads that close what peers left behind (untrusted_fd.h), which end when it is closed. */
#define SV_CLOSER "sluice-close"

/* How many of these threads there are. */
unsigned sv_closers(void);
/* All others. The engine starts the former with the lock held: none is without its name. */
unsigned sv_threads(void);

/* ---- other processes --------------------------------------------------------------------------- */

struct sv_child {
    pid_t pid;
    int fd; /* socket to it */
};

/*
 * Runs fn in a forked process with one end of a socket pair. Its exit status 0 means that all went
 * well. The parent may or may not have used the device before.
 */
struct sv_child sv_fork(void (*fn)(int fd));
/* Waits for its end; the status as waitpid() gives it. */
int sv_join(struct sv_child *child);
/* Sends a number over the socket. */
void sv_tell(int fd, uint32_t value);
/* Receives one. */
uint32_t sv_hear(int fd);
/* Both sides came so far. */
void sv_barrier(int fd);

/*
 * Exchanges queue pair numbers over the socket and connects. Both sides call it, and both answer when it
 * returns: what is sent to a number that nobody answers for yet exhausts its retries.
 */
void sv_meet(struct sv_end *e, int fd);
/* What two children tell each other once. */
void sv_relay(const struct sv_child *left, const struct sv_child *right);
/* And what they do in sv_meet(). */
void sv_introduce(const struct sv_child *left, const struct sv_child *right);

#endif
