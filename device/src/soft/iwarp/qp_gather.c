/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_gather.c - see qp_gather.h.
 *
 * Owner: the QP's lock.
 */
#include "soft/iwarp/qp_gather.h"

#include "soft/iwarp/qp_heat.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/cq.h"

#define LITTLE_FRAMES 16u
#define LITTLE_BYTES 16384u
#define MUCH_BYTES 65536u
#define KEPT_TURNS 2u /* more would gain nothing, and less with a small window */
#define ARMED_TURNS                                                                                \
    64u /* so many turns after its CQ was armed, a thread is taken for one that spins */

bool soft_tcp_is_little(const struct iwarp_tx *tx) {
    return !tx->open && tx->frames < LITTLE_FRAMES && tx->framed - tx->sent < LITTLE_BYTES;
}

bool soft_tcp_gathers(struct soft_qp *qp) {
    struct soft_tcp_gather *g = &qp->tcp->gather;
    bool waits = (g->posted || g->streams || g->much) && qp->tcp->hot && !soft_tcp_armed(qp);
    g->many |= g->posted;
    g->posted = true;
    return waits;
}

bool soft_tcp_gathers_on(struct soft_qp *qp) {
    struct soft_tcp *tcp = qp->tcp;
    struct soft_tcp_gather *g = &tcp->gather;
    bool posted = g->posted;
    uint32_t arms =
        ld(soft_cq_of(qp->ibv.recv_cq)->tcp_arms) + ld(soft_cq_of(qp->ibv.send_cq)->tcp_arms);
    if (g->arms != arms) {
        g->arms = arms;
        g->armed_turn = tcp->turns;
    }
    g->much = tcp->tx.sent - g->sent >= MUCH_BYTES;
    g->sent = tcp->tx.sent;
    if (posted)
        g->streams = g->many;
    g->posted = g->many = false;
    if (!posted || !g->streams || !tcp->gathered || tcp->ack_count == 0 || tcp->by_engine ||
        g->kept == KEPT_TURNS || tcp->turns - g->armed_turn < ARMED_TURNS)
        return false;
    g->kept++;
    return true;
}
