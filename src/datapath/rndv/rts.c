/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rts.c - announces large messages of this side: by which way each goes, and the RTS.
 *
 * Owner: the loop's thread.
 */
#include "datapath/rndv/rts.h"
#include "core/context.h"
#include "core/wire/frame.h"
#include "datapath/loop/loop.h"
#include "datapath/loop/upward.h"
#include "datapath/rndv/internal.h"
#include "datapath/rndv/mw.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rpc/client.h"
#include "datapath/tx/iov.h"
#include "datapath/tx/post.h"
#include "fabric/fast.h"

static unsigned way_of(const struct session *s) {
    if (session_connection(s)->lacks & FABRIC_LACKS_IMMEDIATE)
        return RNDV_BY_READ;
    switch ((sluice_rendezvous)s->node->options.rendezvous) {
    case SLUICE_RENDEZVOUS_READ:
        return RNDV_BY_READ;
    case SLUICE_RENDEZVOUS_WRITE:
        return RNDV_BY_WRITE;
    case SLUICE_RENDEZVOUS_AUTO: /* READ is one message less; see docs/architecture.md */
        break;
    }
    return s->node->traits.reads_unsafe ? RNDV_BY_WRITE : RNDV_BY_READ;
}

/* Where announcements travel, more of them keep the READs going; where they do not, more only leave the cache. */
static struct rndv_tx *free_number(const struct session *s, struct rndv *r) {
    uint32_t most = session_connection(s)->copies ? RNDV_NUMBERS_FEW : rndv_numbers(s);
    uint32_t numbers = r->out_in[RNDV_TX_FREE] & (UINT32_MAX >> (RNDV_NUMBERS - most));
    return numbers ? &r->out[__builtin_ctz(numbers)] : NULL;
}

static enum frame_type type_of(const struct sluice_msg *msg) {
    return msg->kind == MSG_REQUEST ? FRAME_REQUEST
           : msg->kind == MSG_REPLY ? FRAME_REPLY
                                    : FRAME_DATA;
}

/* Two requests; a credit there is. */
static bool may_send_rts(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    struct connection *c = session_connection(s);
    uint32_t lkey;
    if (batch->count + 2 > LOOP_WR_BATCH) {
        loop_dirty(l, s); /* with the next batch, in this turn still */
        return false;
    }
    return sq_used(c) + 2 <= c->sq.limit && wr_batch_header(l, s, &lkey) != NULL;
}

/* Where the peer finds the bytes, unless they are written to it. */
struct rts_place {
    uint32_t key; /* READ: the rkey. COPY: the region */
    uint64_t at;
};

static struct frame header_of(const struct sluice_msg *msg) {
    return (struct frame){.type = FRAME_RTS,
                          .flags = msg->kind == MSG_REPLY ? FRAME_RESERVED : 0,
                          .length = FRAME_RTS_BYTES,
                          .total = msg->size};
}

static uint64_t first_word(const struct rndv *r, const struct rndv_tx *d, enum frame_type type,
                           uint32_t key) {
    uint64_t number = (uint64_t)(d - r->out);
    return htole64(number | (uint64_t)type << 16 | (uint64_t)d->way << 24 | (uint64_t)key << 32);
}

static void put_words(const struct session *s, const struct rndv_tx *d, struct rts_place place,
                      uint64_t total, uint32_t taken, uint64_t *payload) {
    payload[0] = first_word(s->rndv, d, type_of(d->msg), place.key);
    payload[1] = htole64(place.at);
    payload[2] = htole64(total);
    payload[3] = htole64(taken);
    payload[4] = 0;
}

static void post_rts(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                     struct rndv_tx *d, struct rts_place place, uint64_t total) {
    struct connection *c = session_connection(s);
    uint64_t payload[FRAME_RTS_BYTES / sizeof(uint64_t)];
    put_words(s, d, place, total, rndv_answer_take(l, s), payload);
    d->sequence = ++c->tx.sequence;
    /* Room for its header was made sure of. */
    rndv_post_frame(l, s, batch, header_of(d->msg), payload);
    /* The window is taken back behind it: by then it is acknowledged, and has not to be asked for. */
    batch->waited_for |= d->way == RNDV_BY_READ && !c->copies;
}

/*
 * The bytes that the peer is to READ: the message's payload, which is the library's by now, or its only part, which the
 * application should not change, but may.
 */
static struct mw_bytes readable(const struct sluice_msg *msg, const struct iov_part *part) {
    struct mw_bytes of = {
        .bytes = msg->size, .rights = IBV_ACCESS_REMOTE_READ, .still = part == NULL};
    of.addr = part ? (void *)(uintptr_t)part->addr : msg->data;
    of.mr = part ? part->region->mr : pool_mr(buffer_of(msg));
    return of;
}

/* Without a key, where the peer has this memory mapped. */
static bool may_copy(const struct session *s, const struct mw_bytes *of, struct rts_place *place) {
    const struct connection *c = session_connection(s);
    return c->shares && s->node->options.rendezvous == SLUICE_RENDEZVOUS_AUTO &&
           fabric_share(s->node->fabric, c->qp, of->mr, of->addr, of->bytes, &place->key,
                        &place->at);
}

/* How it goes, and where it lies; *bind: by a key that this request makes. False: no memory for a key now. */
static bool find_place(struct sluice_loop *l, struct session *s, struct rndv_tx *d,
                       const struct sluice_msg *msg, unsigned *way, struct rts_place *place,
                       struct ibv_send_wr *wr, bool *bind) {
    struct mw_bytes of;
    *bind = false;
    *place = (struct rts_place){0};
    if (*way != RNDV_BY_READ)
        return true;
    of = readable(msg, d->parts);
    if (may_copy(s, &of, place)) {
        *way = RNDV_BY_COPY;
        return true;
    }
    if (!mw_open(l->node, &d->mw, &of, wr, bind)) {
        rndv_retry(l, s);
        return false;
    }
    *place = (struct rts_place){d->mw.rkey, (uintptr_t)of.addr};
    return true;
}

static enum build_result send_rts(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                  struct sluice_msg *msg, unsigned way,
                                  const struct iov_part *parts, uint32_t part_count) {
    struct rndv *r = rndv_get(l, s);
    struct rndv_tx *d = r ? free_number(s, r) : NULL;
    if (!d || !may_send_rts(l, s, batch))
        return BUILD_NONE;
    struct ibv_send_wr wr;
    bool bind;
    uint64_t total = 0;
    struct rts_place place;
    d->parts = parts;
    d->part_count = part_count;
    if (!find_place(l, s, d, msg, &way, &place, &wr, &bind))
        return BUILD_NONE;
    if ((msg->kind == MSG_REQUEST || msg->kind == MSG_REPLY) &&
        !rpc_client_assign(l, s, msg, &total)) {
        mw_forget(l->node, &d->mw);
        return BUILD_NONE;
    }
    d->way = (uint8_t)way;
    rndv_tx_begin(s, d, msg);
    if (bind)
        rndv_post_mw(l, s, batch, &wr, NULL, 0);
    post_rts(l, s, batch, d, place, total);
    l->totals.messages_sent++;
    l->totals.bytes_sent += msg->size;
    return BUILD_DONE;
}

bool rndv_rts_again(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                    struct rndv_tx *d, uint64_t *payload) {
    loop_assert_inside(l);
    struct ibv_send_wr wr;
    struct rts_place place;
    bool bind;
    bool one = !d->parts || (d->part_count == 1 && d->parts->region);
    unsigned way = one ? way_of(s) : RNDV_BY_WRITE;
    if (way == RNDV_BY_WRITE && (session_connection(s)->lacks & FABRIC_LACKS_IMMEDIATE)) {
        session_close(l, s, SLUICE_REASON_UNSUPPORTED, 0,
                      "a message of several pieces cannot be written over this connection");
        return false;
    }
    if (!find_place(l, s, d, d->msg, &way, &place, &wr, &bind))
        return false;
    rndv_tx_again(s, d, way);
    if (bind)
        rndv_post_mw(l, s, batch, &wr, NULL, 0);
    put_words(s, d, place, 0, 0, payload);
    return true;
}

bool rndv_announce(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    struct rndv_tx *d = r ? free_number(s, r) : NULL;
    struct mw_bytes of = readable(msg, NULL);
    struct rts_place place;
    ASSERT(!s->tx.queue.head && c->tx.credits > c->tx.reserve);
    if (!d || !may_copy(s, &of, &place))
        return false;
    d->way = RNDV_BY_COPY;
    const uint64_t payload[FRAME_RTS_BYTES / sizeof(uint64_t)] = {
        first_word(r, d, FRAME_DATA, place.key), htole64(place.at), 0, htole64(r->taken)};
    if (!rndv_post_words(l, s, header_of(msg), payload))
        return false;
    rndv_answer_take(l, s);
    d->parts = NULL;
    rndv_tx_begin(s, d, msg);
    l->totals.messages_sent++;
    l->totals.bytes_sent += msg->size;
    return true;
}

enum build_result rndv_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                             struct sluice_msg *msg) {
    loop_assert_inside(l);
    return send_rts(l, s, batch, msg, way_of(s), NULL, 0);
}

const char *rndv_wrong_way(const struct session *s, const uint64_t *word) {
    unsigned way = word[0] >> 24 & 0xff;
    if (way != RNDV_BY_READ && (way != RNDV_BY_COPY || !rndv_agreed_copy(s)) &&
        (way != RNDV_BY_WRITE || word[0] >> 32 || word[1]))
        return "an RTS of an unknown way";
    if (way == RNDV_BY_WRITE && (session_connection(s)->lacks & FABRIC_LACKS_IMMEDIATE))
        return "an RTS of a way that these devices do not have";
    return NULL;
}

bool rndv_has_way(const struct session *s, const struct iov_part *parts, unsigned count) {
    return !(session_connection(s)->lacks & FABRIC_LACKS_IMMEDIATE) ||
           (count == 1 && parts->region);
}

enum build_result rndv_build_iov(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                 struct sluice_msg *msg, const struct iov_part *parts,
                                 unsigned count) {
    loop_assert_inside(l);
    /* A key opens one range, and only regions are registered so that a window can be bound on them. */
    unsigned way = count == 1 && parts->region ? way_of(s) : RNDV_BY_WRITE;
    return send_rts(l, s, batch, msg, way, parts, count);
}
