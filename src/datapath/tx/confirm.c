/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * confirm.c - proves that the peer's device has the bytes that were sent, where a completion does not.
 *
 * On iWARP a SEND or a WRITE completes when this side's TCP has its bytes: its memory is free then, but
 * the peer's may never have them, or refuse them. Only the answer to a READ proves that, of all that was
 * sent before. So a READ of a byte that the peer has named (core/probe.h) goes behind each request whose
 * outcome is wanted, and the request's entry waits for it (SQ_BEHIND). A few READs are on their way at a time; what
 * is sent meanwhile is confirmed by one more, as soon as one of them is back. READs complete when their answer is
 * there, and other requests behind them before that, so their own entries wait in the same way.
 *
 * Where the peer named no byte, or the two agreed on no READs, only the completions are left.
 *
 * Owner: the loop's thread.
 */
#include "datapath/tx/confirm.h"
#include "datapath/tx/post.h"
#include "core/context.h"
#include "datapath/loop/loop.h"

void confirm_init(struct connection *c) {
    c->confirm.on = true;
    c->sq.follow |= SQ_CONFIRMS;
    c->confirm.probe_known = false;
    c->confirm.sent_tail = c->sq.head;
    c->sq.limit -= CONFIRMS_MAX;
    c->sq.quick = 0;
}

void confirm_begin(struct session *s, uint64_t address, uint32_t rkey) {
    struct connection *c = session_connection(s);
    if (!c->confirm.on)
        return; /* the completions say it */
    c->confirm.probe_known = (c->cm.passive ? c->cm.rep.depth_out : c->cm.rep.depth_in) > 0;
    c->confirm.probe_address = address;
    c->confirm.probe_rkey = rkey;
}

static void post(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    const struct ibv_mr *own = s->node->probe.sink;
    struct ibv_sge sink = {(uintptr_t)own->addr, 1, own->lkey};
    struct ibv_send_wr wr = {.wr_id = wr_send_id(c, c->sq.tail),
                             .sg_list = &sink,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {c->confirm.probe_address, c->confirm.probe_rkey}};
    struct ibv_send_wr *bad;
    uint32_t at = c->sq.tail;
    wr_batch_entry(s, NULL, 0, SQ_CONFIRM)->bytes |= SQ_BEHIND;
    c->confirm.flying++;
    c->confirm.owed = false;
    c->sq.frameless++;
    l->totals.posts++;
    l->totals.send_wrs++;
    int error = post_wrs(c, &wr, &bad);
    if (unlikely(error != 0))
        post_failed(l, s, at, error);
}

static void want(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    if (c->confirm.flying == CONFIRMS_MAX || sq_used(c) >= c->sq.depth)
        c->confirm.owed = true;
    else
        post(l, s);
}

bool confirm_is_wanted(const struct sq_entry *entry) {
    const struct sluice_msg *msg = entry->msg;
    switch ((enum sq_what)(entry->bytes >> SQ_WHAT_SHIFT & SQ_WHAT_MASK)) {
    case SQ_MESSAGE:
    case SQ_IOV:
        return msg && msg->tx.tag != 0;
    case SQ_ONE_SIDED:
        return true;
    case SQ_COALESCED: /* the frame itself has no tag, those that are told have */
        return msg && (msg->tx.tag != 0 || msg->next);
    case SQ_RNDV:
    case SQ_REQUEST:
    case SQ_CONFIRM:
        return false;
    }
    return false;
}

void confirm_batch(struct sluice_loop *l, struct session *s, unsigned count) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    bool wanted = false;
    for (unsigned i = 0; i < count; i++) {
        struct sq_entry *entry = &c->sq.entries[(c->sq.tail - count + i) & c->sq.mask];
        if (l->send_wr[i].opcode == IBV_WR_RDMA_READ) {
            entry->bytes |= SQ_BEHIND;
            wanted = false; /* it stands for what is before it */
        } else if (c->confirm.probe_known && !(entry->bytes & SQ_NUMBERED) &&
                   ((entry->bytes & SQ_BEHIND) || confirm_is_wanted(entry))) {
            entry->bytes |= SQ_BEHIND;
            wanted = true;
        }
    }
    if (wanted)
        want(l, s);
}

void confirm_again(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if (c->confirm.owed && c->qp && s->state < SESSION_DRAINING)
        want(l, s);
}
