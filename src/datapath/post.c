/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * post.c - posting what is queued, control frames, and what happens when sends complete.
 *
 * A queued message that fits a frame is one work request with one sge: the header lies in front of
 * the payload. A larger one goes as fragments, each with two sges: a header from the session's ring
 * of headers (one place for every entry of the send queue, so a place is free when its entry is)
 * and a slice of the message. Up to LOOP_CHAIN requests are posted with one call.
 *
 * Signalling. Send completions of an RC queue pair come in order, and an error always completes: so
 * an entry is done, successfully, once a later one completed. One in signal_every is signalled, and
 * always the last of what somebody waits for: a tagged send, or a buffer the device still reads.
 *
 * Credits. A data frame leaves CREDIT_RESERVE untouched; CREDIT and BYE may use it. A CREDIT frame
 * is sent when half of the receives are owed and no data frame goes out that would carry them.
 * Every CREDIT frame returns at least one credit and arrives, so the two sides cannot both be
 * without: the one whose frame arrived last has some.
 *
 * Owner: the loop's thread.
 */
#include <string.h>

#include "datapath/post.h"
#include "node/node.h"

#define HEADER_BYTES 32u /* a place in the ring of headers: a frame header, aligned */

/* ---- building -------------------------------------------------------------------------------- */

struct chain {
    unsigned count;
    bool waited_for; /* somebody waits for an entry behind the last signalled one */
    unsigned done_count;
    struct sluice_msg *done[LOOP_CHAIN]; /* inline and untagged: free once posted */
};

static inline void chain_init(struct chain *chain, bool waited_for) {
    chain->count = chain->done_count = 0;
    chain->waited_for = waited_for;
}

static struct sq_entry *push_entry(struct session *s, struct sluice_msg *msg, uint64_t bytes) {
    struct sq_entry *entry = &s->sq[s->sq_tail & s->sq_mask];
    entry->msg = msg;
    entry->bytes = bytes;
    s->sq_tail++;
    s->tx_credits--;
    return entry;
}

static struct ibv_send_wr *next_wr(struct sluice_loop *l, struct session *s, struct chain *chain,
                                   unsigned sges, unsigned flags) {
    unsigned n = chain->count++;
    struct ibv_send_wr *wr = &l->send_wr[n];
    wr->wr_id = wr_send_id(s->slot, s->sq_tail);
    wr->sg_list = l->send_sge[n];
    wr->num_sge = (int)sges;
    wr->opcode = IBV_WR_SEND;
    wr->send_flags = flags;
    wr->next = NULL;
    if (n > 0)
        l->send_wr[n - 1].next = wr;
    return wr;
}

static void count_signal(struct session *s, struct chain *chain, struct ibv_send_wr *wr) {
    if (++s->unsignalled >= s->signal_every) {
        wr->send_flags |= IBV_SEND_SIGNALED;
        s->unsignalled = 0;
        chain->waited_for = false;
    }
}

static uint64_t counted(const struct sluice_msg *msg) {
    return msg->size | SQ_COUNTED | (msg->send_flags & MSG_FOREIGN ? SQ_FOREIGN : 0);
}

static void add_whole(struct sluice_loop *l, struct session *s, struct chain *chain,
                      struct sluice_msg *msg) {
    uint32_t size = (uint32_t)msg->size;
    uint8_t *at = msg->data - FRAME_BYTES;
    bool inlined = size + FRAME_BYTES <= s->inline_max;
    bool keep = msg->tag != 0 || !inlined;
    struct ibv_sge *sge = l->send_sge[chain->count];
    sge[0] = (struct ibv_sge){(uintptr_t)at, size + FRAME_BYTES, msg->lkey};
    struct ibv_send_wr *wr = next_wr(l, s, chain, 1, inlined ? IBV_SEND_INLINE : 0);
    s->tx_sequence++;
    post_header(s, at, FRAME_DATA, 0, size, 0);
    push_entry(s, keep ? msg : NULL, counted(msg));
    if (keep)
        chain->waited_for = true;
    else
        chain->done[chain->done_count++] = msg;
    count_signal(s, chain, wr);
    l->totals.messages_sent++;
    l->totals.bytes_sent += size;
}

/* The next fragment; true when it was the last. */
static bool add_fragment(struct sluice_loop *l, struct session *s, struct chain *chain,
                         struct sluice_msg *msg) {
    uint64_t left = msg->size - msg->sent;
    uint32_t size = left < s->frame_payload ? (uint32_t)left : s->frame_payload;
    bool first = msg->sent == 0, last = left == size;
    uint8_t *header = s->headers->data + (s->sq_tail & s->sq_mask) * HEADER_BYTES;
    struct ibv_sge *sge = l->send_sge[chain->count];
    sge[0] = (struct ibv_sge){(uintptr_t)header, FRAME_BYTES, s->headers->lkey};
    sge[1] = (struct ibv_sge){(uintptr_t)(msg->data + msg->sent), size, msg->lkey};
    struct ibv_send_wr *wr = next_wr(l, s, chain, 2, 0);
    s->tx_sequence++;
    post_header(s, header, FRAME_FRAG, (first ? FRAME_FIRST : 0) | (last ? FRAME_LAST : 0), size,
                first ? msg->size : 0);
    push_entry(s, last ? msg : NULL, last ? counted(msg) : 0);
    msg->sent += size;
    if (last)
        chain->waited_for = true;
    count_signal(s, chain, wr);
    l->totals.messages_sent += last;
    l->totals.bytes_sent += size;
    return last;
}

static void finish_unsent(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                          sluice_status status) {
    window_release(s, msg->size, (msg->send_flags & MSG_FOREIGN) != 0);
    if (msg->tag)
        event_outcome(l, s, msg, status);
    else
        msg_discard(l, msg);
}

static bool have_headers(struct sluice_loop *l, struct session *s) {
    if (!s->headers)
        s->headers = pool_get(l->pool, l->cache, (size_t)s->sq_depth * HEADER_BYTES);
    if (s->headers)
        return true;
    if (!s->retry) {
        s->retry = true;
        l->retries++;
        l->totals.memory_stalls++;
    }
    return false;
}

static void build(struct sluice_loop *l, struct session *s, struct chain *chain) {
    struct sluice_msg *msg;
    while (chain->count < LOOP_CHAIN && (msg = s->queue.head)) {
        if (msg->deadline_ns && msg->sent == 0 && l->now_ns >= msg->deadline_ns) {
            finish_unsent(l, s, msg_queue_pop(&s->queue), SLUICE_ETIMEDOUT);
            continue;
        }
        if (s->tx_credits <= CREDIT_RESERVE) {
            l->totals.credit_stalls += !s->stalled;
            s->stalled = true;
            return;
        }
        if (sq_used(s) >= s->sq_limit)
            return;
        s->stalled = false;
        if (msg->size <= s->frame_payload) {
            msg_queue_pop(&s->queue); /* before it may be linked elsewhere */
            add_whole(l, s, chain, msg);
        } else {
            if (!have_headers(l, s))
                return;
            if (add_fragment(l, s, chain, msg))
                msg_queue_pop(&s->queue);
        }
    }
}

/* ---- posting --------------------------------------------------------------------------------- */

void post_failed(struct sluice_loop *l, struct session *s, uint32_t from, int error) {
    for (uint32_t i = from; i != s->sq_tail; i++)
        s->sq[i & s->sq_mask].bytes |= SQ_FAILED;
    session_close(l, s, SLUICE_REASON_DEVICE_ERROR, (uint32_t)error, "the device refused a send");
}

static void post_chain(struct sluice_loop *l, struct session *s, struct chain *chain) {
    struct ibv_send_wr *last = &l->send_wr[chain->count - 1], *bad = NULL;
    if (chain->waited_for && !(last->send_flags & IBV_SEND_SIGNALED)) {
        last->send_flags |= IBV_SEND_SIGNALED;
        s->unsignalled = 0;
    }
    uint32_t first = s->sq_tail - chain->count;
    int error = ibv_post_send(s->qp, l->send_wr, &bad);
    l->totals.posts++;
    l->totals.frames_sent += chain->count;
    l->totals_moved = true;
    if (unlikely(error != 0)) {
        uint32_t posted =
            bad >= l->send_wr && bad < l->send_wr + chain->count ? (uint32_t)(bad - l->send_wr) : 0;
        post_failed(l, s, first + posted, error);
    }
    for (unsigned i = 0; i < chain->done_count; i++)
        msg_discard(l, chain->done[i]);
}

bool send_control(struct sluice_loop *l, struct session *s, enum frame_type type) {
    if (s->tx_credits == 0 || sq_used(s) >= s->sq_depth - 1 || !s->qp)
        return false;
    struct chain chain;
    uint64_t local[FRAME_BYTES / sizeof(uint64_t)];
    bool inlined = s->inline_max >= FRAME_BYTES;
    chain_init(&chain, type == FRAME_BYE);
    if (!inlined && !have_headers(l, s))
        return false;
    uint8_t *at =
        inlined ? (uint8_t *)local : s->headers->data + (s->sq_tail & s->sq_mask) * HEADER_BYTES;
    l->send_sge[0][0] =
        (struct ibv_sge){(uintptr_t)at, FRAME_BYTES, inlined ? 0 : s->headers->lkey};
    struct ibv_send_wr *wr = next_wr(l, s, &chain, 1, inlined ? IBV_SEND_INLINE : 0);
    post_header(s, at, type, 0, 0, 0);
    push_entry(s, NULL, 0);
    if (type != FRAME_BYE)
        count_signal(s, &chain, wr);
    s->bye_index = s->sq_tail - 1;
    post_chain(l, s, &chain);
    return s->state <= SESSION_LEAVING;
}

bool send_control_with(struct sluice_loop *l, struct session *s, enum frame_type type,
                       const void *payload, uint32_t bytes) {
    if (s->tx_credits == 0 || sq_used(s) >= s->sq_depth - 1 || !s->qp || bytes > s->frame_payload)
        return false;
    struct sluice_msg *msg = pool_get(l->pool, l->cache, bytes);
    if (!msg)
        return false;
    struct chain chain;
    uint8_t *at = msg->data - FRAME_BYTES;
    msg->state = MSG_SENDING;
    msg->tag = 0;
    memcpy(msg->data, payload, bytes);
    chain_init(&chain, true); /* the buffer is read until it completes */
    l->send_sge[0][0] = (struct ibv_sge){(uintptr_t)at, bytes + FRAME_BYTES, msg->lkey};
    next_wr(l, s, &chain, 1, 0);
    post_header(s, at, type, 0, bytes, 0);
    push_entry(s, msg, 0);
    s->bye_index = s->sq_tail - 1;
    post_chain(l, s, &chain);
    return s->state <= SESSION_LEAVING;
}

bool send_marker(struct sluice_loop *l, struct session *s) {
    /* An empty inline-less send: in ERR it is never executed, only flushed, after all others. */
    struct chain chain;
    chain_init(&chain, true);
    if (sq_used(s) >= s->sq_depth)
        return false;
    struct ibv_send_wr *wr = next_wr(l, s, &chain, 0, IBV_SEND_SIGNALED), *bad;
    wr->sg_list = NULL;
    push_entry(s, NULL, 0);
    s->tx_credits++; /* no frame */
    if (ibv_post_send(s->qp, wr, &bad) == 0)
        return true;
    s->sq_tail--;
    return false;
}

void send_flush(struct sluice_loop *l, struct session *s) {
    if (s->state == SESSION_UP || s->state == SESSION_FLUSHING) {
        while (s->queue.head) {
            struct chain chain;
            chain_init(&chain, false);
            build(l, s, &chain);
            if (chain.count == 0)
                break;
            post_chain(l, s, &chain);
            if (chain.count < LOOP_CHAIN || s->state > SESSION_FLUSHING)
                break;
        }
    }
    if (s->rx_owed * 2 >= s->credits && s->rx_owed > 0 && s->state >= SESSION_UP &&
        s->state <= SESSION_LEAVING && !s->bye_posted)
        send_control(l, s, FRAME_CREDIT);
}

/* ---- completion ------------------------------------------------------------------------------ */

static void retire(struct sluice_loop *l, struct session *s, sluice_status status) {
    struct sq_entry *entry = &s->sq[s->sq_head++ & s->sq_mask];
    uint64_t bytes = entry->bytes;
    struct sluice_msg *msg = entry->msg;
    if (bytes & SQ_FAILED)
        status = SLUICE_ECLOSED;
    if (bytes & SQ_COUNTED)
        window_release(s, bytes & SQ_BYTES, (bytes & SQ_FOREIGN) != 0);
    if (!msg)
        return;
    if (msg->tag)
        event_outcome(l, s, msg, status);
    else
        msg_discard(l, msg);
}

/* What a failed completion says of the message: whether it arrived is mostly not known. */
static sluice_status wc_outcome(enum ibv_wc_status status) {
    switch (status) {
    case IBV_WC_SUCCESS:
        return SLUICE_OK;
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
    case IBV_WC_BAD_RESP_ERR:
        return SLUICE_EUNKNOWN;
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_MW_BIND_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_LOC_RDD_VIOL_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
    case IBV_WC_INV_EECN_ERR:
    case IBV_WC_INV_EEC_STATE_ERR:
    case IBV_WC_FATAL_ERR:
    case IBV_WC_GENERAL_ERR:
    case IBV_WC_TM_ERR:
    case IBV_WC_TM_RNDV_INCOMPLETE:
        return SLUICE_EDEVICE;
    }
    return SLUICE_EDEVICE;
}

void send_completed(struct sluice_loop *l, const struct ibv_wc *wc) {
    struct session *s = slot_find(handle_make(l->node->index, (uint32_t)(wc->wr_id >> 32), 0));
    uint16_t ahead = (uint16_t)((uint16_t)(wc->wr_id >> 8) - (uint16_t)s->sq_head);
    if (unlikely(ahead >= sq_used(s)))
        return; /* of a queue pair that was given up */
    while (ahead-- > 0)
        retire(l, s, SLUICE_OK);
    retire(l, s, wc_outcome(wc->status));
    if (unlikely(wc->status != IBV_WC_SUCCESS))
        session_wc_error(l, s, wc);
    if (s->want_writable)
        send_check_writable(l, s);
    if (s->queue.head)
        loop_dirty(l, s);
    if (s->state >= SESSION_FLUSHING)
        session_progress(l, s);
}

void send_abandon(struct sluice_loop *l, struct session *s, sluice_status status) {
    while (s->sq_head != s->sq_tail)
        retire(l, s, status);
}

void send_drop_queue(struct sluice_loop *l, struct session *s, sluice_status status) {
    struct sluice_msg *msg = s->queue.head;
    if (msg && msg->sent > 0 && s->sq_head != s->sq_tail) {
        /* The device may still read the fragments posted: the message goes with the last entry. */
        struct sq_entry *entry = &s->sq[(s->sq_tail - 1) & s->sq_mask];
        if (!entry->msg && !(entry->bytes & SQ_COUNTED)) {
            msg_queue_pop(&s->queue);
            entry->msg = msg;
            entry->bytes = counted(msg) | SQ_FAILED;
        }
    }
    while ((msg = msg_queue_pop(&s->queue)))
        finish_unsent(l, s, msg, status);
}

void send_expire(struct sluice_loop *l, struct session *s) {
    struct msg_queue left;
    struct sluice_msg *msg;
    msg_queue_init(&left);
    while ((msg = msg_queue_pop(&s->queue))) {
        if (msg->deadline_ns && msg->sent == 0 && l->now_ns >= msg->deadline_ns) {
            finish_unsent(l, s, msg, SLUICE_ETIMEDOUT);
            continue;
        }
        if (msg->deadline_ns && msg->sent == 0)
            loop_deadline(l, msg->deadline_ns);
        msg_queue_push(&left, msg);
    }
    if (left.head)
        s->queue = left;
    if (s->want_writable)
        send_check_writable(l, s);
}
