/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ends.h - RC queue pairs without the CM: an end is a context, PD, CQs, QP and registered memory;
 * two of them in one process are connected by hand. Used by one thread.
 */
#ifndef CONTRACT_ENDS_H
#define CONTRACT_ENDS_H

#include "contract/contract.h"

#define CT_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define CT_BYTES 65536u /* of registered memory, with all rights */

struct ct_options {              /* 0 = the default in the comment */
    uint32_t sends, recvs;       /* 64, 64 */
    uint32_t send_sge, recv_sge; /* 4, 4 */
    uint32_t inline_bytes;       /* 0 */
    int cqe;                     /* 256 */
    bool sig_all, one_cq, channel;
    bool shared;    /* receives from an SRQ, which is made too: 16 receives, 2 sges */
    bool no_access; /* of the QP: access counts, even if 0; otherwise CT_REMOTE */
    unsigned access;
    bool no_depth;     /* no READs and atomics; otherwise 4 */
    uint8_t rnr_timer; /* 1: 10 us */
    bool finite_rnr;   /* rnr_retry counts; otherwise 7, for ever */
    uint8_t rnr_retry;
    uint8_t timeout, retry_cnt; /* 14 (67 ms), 7 */
};

struct ct_end {
    struct ct_options o;
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *scq, *rcq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_qp_cap cap;
    uint8_t *buf;
    struct ibv_mr *mr;
    union ibv_gid gid;
    uint8_t gid_index;
};

#define CT_OPTIONS(...) ((struct ct_options){__VA_ARGS__})

/* An own context on the device of CONTRACT_ADDRESS. */
struct ibv_context *ct_context(void);
void ct_open(struct ct_end *e, struct ct_options o); /* QP in RESET */
void ct_close(struct ct_end *e);
struct ibv_qp *ct_new_qp(struct ct_end *e);
void ct_open_pair(struct ct_end *a, struct ct_end *b, struct ct_options oa, struct ct_options ob);

/* ---- states ------------------------------------------------------------------------------------------ */

#define CT_INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define CT_RTR_MASK                                                                                \
    (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |                \
     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define CT_RTS_MASK                                                                                \
    (IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |         \
     IBV_QP_MAX_QP_RD_ATOMIC)

/* Everything that any of the three transitions needs. */
struct ibv_qp_attr ct_attr(const struct ct_end *e, enum ibv_qp_state state, uint32_t dest);
int ct_to(struct ct_end *e, enum ibv_qp_state state); /* with IBV_QP_STATE alone */
void ct_connect_qp(struct ct_end *e, uint32_t dest);  /* RESET to RTS */
/* It shows ERR, or will within the limit. */
void ct_wait_for_err(struct ibv_qp *qp);
/* It shows ERR, behind a completion that says why; some devices show it a moment later. */
void ct_in_err(struct ibv_qp *qp);

/* ---- work -------------------------------------------------------------------------------------------- */

struct ibv_sge ct_sge(const struct ct_end *e, size_t offset, size_t bytes);
int ct_recv(struct ct_end *e, uint64_t wr_id, size_t offset, size_t bytes);
int ct_send(struct ct_end *e, uint64_t wr_id, size_t offset, size_t bytes, unsigned flags);

/* The next completion; the test fails when none comes. */
#define ct_poll(cq) ct_poll_at(cq, CT_HERE)
/* It must be this. */
#define ct_wc(cq, wr_id, status) ct_wc_at(cq, wr_id, status, CT_HERE)
/* Nothing comes, as far as one can wait for nothing. */
#define ct_empty(cq) ct_empty_at(cq, CT_HERE)
struct ibv_wc ct_poll_at(struct ibv_cq *cq, struct ct_where at);
void ct_wc_at(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status, struct ct_where at);
void ct_empty_at(struct ibv_cq *cq, struct ct_where at);

/* The next asynchronous event of the context must be this; acknowledged. */
#define ct_async(ctx, type, element) ct_async_at(ctx, type, element, CT_HERE)
#define ct_no_async(ctx) ct_no_async_at(ctx, CT_HERE)
void ct_async_at(struct ibv_context *ctx, enum ibv_event_type type, const void *element,
                 struct ct_where at);
void ct_no_async_at(struct ibv_context *ctx, struct ct_where at);

void ct_fill(uint8_t *p, size_t bytes, unsigned seed);
void ct_check(const uint8_t *p, size_t bytes, unsigned seed);

#endif
