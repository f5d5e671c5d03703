/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* stranger.c - the peer made by hand: its objects, its connection, and what it hears. */
#include "stranger.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include "core/auth/auth.h"
#include "datapath/rndv/internal.h"
#include "soft/cm/id.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/soft.h"

#define ALL_RIGHTS                                                                                 \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC)
#define FRAMES_BYTES ((size_t)(STRANGER_SLOTS + STRANGER_RECEIVES) * STRANGER_FRAME)
#define WR_RECEIVE 0x1000u

static uint8_t *memory(struct stranger *st, size_t bytes, int access, struct ibv_mr **mr) {
    uint8_t *at = soft_mem_alloc(bytes);
    PROVE(at);
    *mr = soft_reg_mr(st->pd, at, bytes, access);
    PROVE(*mr);
    return at;
}

void stranger_open(struct stranger *st) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    memset(st, 0, sizeof *st);
    st->channel = soft_create_event_channel();
    st->context = soft_cm_context_get();
    PROVE(st->channel && st->context);
    PROVE(fcntl(st->channel->fd, F_SETFL, O_NONBLOCK) == 0);
    st->pd = soft_alloc_pd(st->context);
    st->cq = soft_create_cq(st->context, 4 * STRANGER_SLOTS, NULL, NULL, 0);
    PROVE(st->pd && st->cq);
    st->frames = memory(st, FRAMES_BYTES, IBV_ACCESS_LOCAL_WRITE, &st->frames_mr);
    st->source = memory(st, STRANGER_SOURCE, IBV_ACCESS_REMOTE_READ, &st->source_mr);
    st->target = memory(st, STRANGER_TARGET, ALL_RIGHTS, &st->target_mr);
    for (size_t i = 0; i < STRANGER_SOURCE; i++) /* high bits set: nobody else writes such bytes */
        st->source[i] = (uint8_t)(0x80 | (i * 7 + (i >> 7)));
    PROVE(soft_create_id(st->channel, &st->listener, NULL, RDMA_PS_TCP) == 0);
    PROVE(soft_bind_addr(st->listener, (struct sockaddr *)&here) == 0);
    PROVE(soft_listen(st->listener, 16) == 0);
    st->port = ntohs(soft_get_src_port(st->listener));
}

static struct rdma_cm_event *event_of(struct stranger *st) {
    struct pollfd p = {.fd = st->channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    if (poll(&p, 1, 0) != 1 || soft_get_cm_event(st->channel, &event) != 0)
        return NULL;
    return event;
}

static void take(struct stranger *st, enum rdma_cm_event_type type) {
    struct rdma_cm_event *event = event_of(st);
    PROVE(event && event->event == type);
    soft_ack_cm_event(event);
}

void stranger_expect(struct stranger *st) {
    struct stranger clean = {0};
    memcpy(&st->id, &clean.id, sizeof *st - offsetof(struct stranger, id));
    memset(st->target, 0, STRANGER_TARGET);
    st->trusted = true;
    st->credits = 4;
    st->runs++;
}

static void receive(struct stranger *st, uint32_t slot) {
    struct ibv_sge sge = {(uintptr_t)st->frames +
                              (uint64_t)(STRANGER_SLOTS + slot) * STRANGER_FRAME,
                          STRANGER_FRAME, st->frames_mr->lkey};
    struct ibv_recv_wr *bad, wr = {.wr_id = WR_RECEIVE + slot, .sg_list = &sge, .num_sge = 1};
    (void)ibv_post_recv(st->id->qp, &wr, &bad);
}

static void make_qp(struct stranger *st) {
    struct ibv_qp_init_attr init = {.send_cq = st->cq,
                                    .recv_cq = st->cq,
                                    .cap = {.max_send_wr = STRANGER_SLOTS,
                                            .max_recv_wr = STRANGER_RECEIVES,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = 1};
    PROVE(soft_cm_create_qp(st->id, st->pd, &init) == 0);
    for (uint32_t i = 0; i < STRANGER_RECEIVES; i++)
        receive(st, i);
}

static struct rdma_conn_param param_of(const void *data, uint8_t bytes) {
    return (struct rdma_conn_param){.private_data = data,
                                    .private_data_len = bytes,
                                    .responder_resources = 4,
                                    .initiator_depth = 4,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7};
}

void stranger_dial(struct stranger *st, uint16_t port, const void *req, uint8_t bytes) {
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    stranger_expect(st);
    PROVE(soft_create_id(st->channel, &st->id, st, RDMA_PS_TCP) == 0);
    PROVE(soft_resolve_addr(st->id, NULL, (struct sockaddr *)&to, 1000) == 0);
    take(st, RDMA_CM_EVENT_ADDR_RESOLVED);
    PROVE(soft_resolve_route(st->id, 1000) == 0);
    take(st, RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_qp(st);
    struct rdma_conn_param param = param_of(req, bytes);
    PROVE(soft_connect(st->id, &param) == 0);
}

static void prove(struct stranger *st) {
    const struct auth_secret secret = {(const uint8_t *)STRANGER_SECRET, 32};
    struct auth_proof proof;
    uint8_t req[PRIVATE_DATA_REQ_BYTES], rep[PRIVATE_DATA_REP_BYTES];
    st->rep.features |= PRIVATE_DATA_FEATURE_HMAC;
    private_data_req_encode(&st->req, req);
    private_data_rep_encode(&st->rep, rep);
    auth_prove_listener(&proof, &secret, req, rep);
    memcpy(st->rep.check, proof.check, sizeof proof.check);
    memcpy(st->rep.mac, proof.mac, sizeof proof.mac);
}

/* The request was heard; what it says is the listener's to decide. */
void stranger_answer(struct stranger *st, struct fuzz_input *in) {
    uint8_t data[PRIVATE_DATA_REP_BYTES];
    st->rep = (struct private_data_rep){
        .version = 1,
        .features = st->req.features & (PRIVATE_DATA_FEATURE_HANDSHAKE |
                                        PRIVATE_DATA_FEATURE_SHARED | PRIVATE_DATA_FEATURE_ANSWERS),
        .eager_log2 = st->req.eager_log2,
        .message_log2 = st->req.message_log2,
        .depth_in = 4,
        .depth_out = 4,
        .credits = STRANGER_RECEIVES};
    memcpy(st->rep.session_id, st->req.session_id, sizeof st->rep.session_id);
    st->credits_max = st->req.credits;
    if (st->req.key_id)
        prove(st);
    private_data_rep_encode(&st->rep, data);
    if (in && fuzz_take(in, 1) > 200) {
        st->trusted = false;
        uint64_t at = fuzz_take(in, 1);
        data[at % sizeof data] ^= (uint8_t)fuzz_take(in, 1);
    }
    make_qp(st);
    struct rdma_conn_param param = param_of(data, sizeof data);
    PROVE(soft_accept(st->id, &param) == 0);
}

/* ---- hearing --------------------------------------------------------------------------------- */

static uint64_t word_at(const uint8_t *at, unsigned index) {
    uint64_t word;
    memcpy(&word, at + (size_t)index * 8, sizeof word);
    return le64toh(word);
}

static void hear_request(struct stranger *st, uint64_t total) {
    if (st->asked_count < STRANGER_ASKED)
        st->asked[st->asked_count++] = (uint32_t)total;
}

/* Of each of them it has said that it is here. */
static void hear_taken(struct stranger *st, uint64_t numbers) {
    PROVE(numbers >> STRANGER_NUMBERS == 0 &&
          (!numbers || st->rep.features & PRIVATE_DATA_FEATURE_ANSWERS));
    for (unsigned i = 0; i < STRANGER_NUMBERS; i++)
        if (numbers >> i & 1) {
            PROVE(!st->trusted || (st->mine[i].announced && st->mine[i].way != RNDV_BY_WRITE));
            st->mine[i].announced = false;
        }
}

static void hear_announce(struct stranger *st, const struct frame *f, const uint8_t *payload) {
    uint64_t word = word_at(payload, 0);
    unsigned number = word & 0xffff, type = word >> 16 & 0xff;
    PROVE(number < STRANGER_NUMBERS && (!st->trusted || !st->theirs[number].announced));
    hear_taken(st, word_at(payload, 3));
    st->theirs[number] = (struct stranger_transfer){.announced = true,
                                                    .type = (uint8_t)type,
                                                    .way = (uint8_t)(word >> 24),
                                                    .rkey = (uint32_t)(word >> 32),
                                                    .address = word_at(payload, 1),
                                                    .word = (uint32_t)word_at(payload, 2),
                                                    .bytes = f->total};
    if (type == FRAME_REQUEST)
        hear_request(st, word_at(payload, 2));
}

static void hear_pack(struct stranger *st, const uint8_t *payload, uint32_t bytes) {
    for (uint32_t at = 0; at + COALESCE_ITEM_BYTES <= bytes;) {
        uint64_t head = word_at(payload + at, 0);
        if ((head & 0xff) == FRAME_REQUEST)
            hear_request(st, word_at(payload + at, 1));
        else if ((head & 0xff) == FRAME_REPLY && st->requests > 0)
            st->requests--;
        at += COALESCE_ITEM_BYTES + (((uint32_t)(head >> 32) + 7) & ~7u);
    }
}

static void hear_answer(struct stranger *st, const struct frame *f, const uint8_t *payload) {
    struct stranger_transfer *t = &st->mine[f->total % STRANGER_NUMBERS];
    if (f->type == FRAME_ATS && f->total >> 32 == RNDV_OUTCOME_SEVERAL) {
        hear_taken(st, (uint32_t)f->total);
    } else if (f->type == FRAME_ATS) {
        t->announced = false;
    } else {
        t->ready = true;
        t->address = word_at(payload, 0);
        t->rkey = (uint32_t)word_at(payload, 1);
        /* Whatever the fuzzer makes of it, an honest side wants the bytes that were announced. */
        PROVE(!st->trusted || word_at(payload, 2) == t->bytes);
    }
}

static void hear_return(struct stranger *st, const struct frame *f) {
    PROVE(!st->trusted || (st->recalls && f->total <= STRANGER_RECEIVES));
    st->recalls = false;
}

/* The honest side keeps the rules, whatever it hears. */
static void hear(struct stranger *st, const uint8_t *frame, uint32_t bytes) {
    PROVE(bytes >= FRAME_BYTES && bytes <= STRANGER_FRAME);
    struct frame f = frame_get(frame);
    const uint8_t *payload = frame + FRAME_BYTES;
    PROVE(f.length == bytes - FRAME_BYTES && f.type > 0 && f.type < FRAME_TYPES);
    st->rx_sequence += FRAME_NUMBERED >> f.type & 1;
    PROVE(f.sequence == st->rx_sequence);
    st->heard++;
    st->credits += f.credits;
    PROVE(st->credits_max == 0 || st->credits <= st->credits_max);
    if (!(f.flags & FRAME_RESERVED))
        st->owed++;
    if (f.type == FRAME_REQUEST)
        hear_request(st, f.total);
    else if (f.type == FRAME_REPLY && st->requests > 0)
        st->requests--;
    else if (f.type == FRAME_COALESCED)
        hear_pack(st, payload, f.length);
    else if (f.type == FRAME_RTS)
        hear_announce(st, &f, payload);
    else if (f.type == FRAME_RTR || f.type == FRAME_ATS)
        hear_answer(st, &f, payload);
    else if (f.type == FRAME_RECALL)
        st->recalled = (int32_t)f.total;
    else if (f.type == FRAME_RETURN)
        hear_return(st, &f);
}

static void completed(struct stranger *st, const struct ibv_wc *wc) {
    if (wc->wr_id < WR_RECEIVE) {
        PROVE(st->flying > 0);
        st->flying--;
        return;
    }
    uint32_t slot = (uint32_t)wc->wr_id - WR_RECEIVE;
    if (wc->status != IBV_WC_SUCCESS)
        return;
    if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
        struct stranger_transfer *t = &st->theirs[be32toh(wc->imm_data) % STRANGER_NUMBERS];
        t->announced = t->ready = false;
        st->owed++;
    } else {
        hear(st, st->frames + (size_t)(STRANGER_SLOTS + slot) * STRANGER_FRAME, wc->byte_len);
    }
    receive(st, slot);
}

/* Operations of the peer need rights that rdma_cm gives only where resources were agreed on. */
static void on_event(struct stranger *st, const struct rdma_cm_event *event) {
    const struct rdma_conn_param *conn = &event->param.conn;
    switch ((int)event->event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        if (!st->id &&
            private_data_req_decode(&st->req, conn->private_data, conn->private_data_len) == 0)
            st->id = event->id;
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        st->up = true;
        if (event->id->context == st && conn->private_data &&
            private_data_rep_decode(&st->rep, conn->private_data, conn->private_data_len) == 0)
            st->credits_max = st->rep.credits;
        break;
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_CONNECT_ERROR:
        st->refused = true;
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT: /* alone where both sides disconnect at once */
        st->gone = true;
        break;
    default:
        break;
    }
}

bool stranger_turn(struct stranger *st) {
    struct ibv_wc wc[16];
    struct rdma_cm_event *event = event_of(st);
    bool moved = event != NULL;
    if (event) {
        on_event(st, event);
        soft_ack_cm_event(event);
    }
    int n = ibv_poll_cq(st->cq, 16, wc);
    PROVE(n >= 0);
    for (int i = 0; i < n; i++)
        completed(st, &wc[i]);
    return moved || n > 0;
}

bool stranger_busy(const struct stranger *st) {
    if (!st->id || !st->id->qp)
        return false;
    const struct soft_qp *qp = soft_qp_of(st->id->qp);
    const struct soft_ring *tx = atomic_load(&qp->tx);
    return qp->state == IBV_QPS_RTS && tx && qp->sq_head != qp->sq_tail &&
           atomic_load(&tx->rx.stalled) == 0;
}

void stranger_leave(struct stranger *st) {
    if (!st->id)
        return;
    soft_disconnect(st->id);
    if (st->id->qp)
        soft_cm_destroy_qp(st->id);
    soft_destroy_id(st->id);
    st->id = NULL;
    while (stranger_turn(st)) /* what nobody has fetched of it */
        ;
}
