/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * internal.h - what only the files of verbs/ share: the calls that the device's table has, and
 * the parts of QPs and CQs.
 */
#ifndef SOFT_VERBS_INTERNAL_H
#define SOFT_VERBS_INTERNAL_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct soft_context;
struct soft_cq;
struct soft_qp;

/* ---- poll.c ---------------------------------------------------------------------------------- */

int soft_poll_cq(struct ibv_cq *cq, int ne, struct ibv_wc *wc);
/* Takes what there is of one that has work, of many. poll_lock held. */
int soft_serve(struct soft_qp *qp, struct soft_cq *cq, struct ibv_wc *wc, int ne);

/* ---- notify.c -------------------------------------------------------------------------------- */

int soft_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* ---- post_send.c ----------------------------------------------------------------------------- */

int soft_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* Posts all of them or none. 0 or an errno. */
int soft_post_all(struct soft_qp *qp, struct ibv_send_wr *wr);
/* qp->lock, which it gives back: sends requests that were recorded, the last part of a call that posts. */
void soft_post_recorded(struct soft_qp *qp);

/* ---- context_ex.c ---------------------------------------------------------------------------- */

/* Zeroed, with the extended slots in front of it that the headers' inline calls look for. */
struct soft_context *soft_context_alloc(void);
void soft_context_free(struct soft_context *ctx);

/* ---- cq_ex.c, an extended CQ's reader -------------------------------------------------------- */

/* Frees what an extended CQ has beyond a plain one; nothing for a plain one. No thread uses the CQ. */
void soft_reader_free(struct soft_cq *cq);

/* ---- qp_ex.c, an extended QP's batch --------------------------------------------------------- */

void soft_batch_free(struct soft_qp *qp); /* as soft_reader_free() */
/* Makes a plain QP that no thread uses yet an extended one. 0 or an errno. */
int soft_qp_extend(struct ibv_qp *qp, uint64_t send_ops);

#endif
