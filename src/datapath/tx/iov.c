/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iov.c - messages made of pieces that lie in memory of the application.
 *
 * The block has what the call copied (plain pieces, side by side) and a list of parts: where each lies, and
 * with which key. A frame is a header from the ring of headers and as many parts, or slices of them, as
 * fit into its payload and into a work request of this device. If that is all of them it is a message
 * in one frame, else the message goes as fragments; above the switch point it is announced, and written
 * from where it lies (outgoing.c). Small pieces are copied by the call and make a message like any other:
 * that is cheaper than to gather it.
 *
 * Plain memory that is sent in place is like a region that the message has pinned in the node's cache of
 * registrations; where it cannot be, it is copied.
 *
 * Owner: the loop's thread; the public calls are for any thread.
 */
#include <string.h>

#include "datapath/tx/iov.h"
#include "common/uncancelled.h"
#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/rma/one_sided.h"
#include "core/context.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/rndv.h"
#include "datapath/rndv/rts.h"
#include "datapath/tx/post.h"
#include "datapath/tx/send.h"
#include "core/forked.h"

#define COPIED_MAX 192u /* bytes of a message that is copied whole */

struct iov_msg {
    struct transfer transfer;
    struct regcache *cache; /* of the parts that have a reg */
    uint32_t count, next;   /* the part the next frame begins in ... */
    uint64_t skip;          /* ... and how far inside */
    struct iov_part part[];
};

static struct iov_msg *iov_of(struct sluice_msg *msg) {
    return (struct iov_msg *)(void *)msg->data;
}

void iov_regions_done(struct sluice_msg *msg) {
    if (msg->kind == MSG_ONE_SIDED) {
        struct operation *op = (struct operation *)(void *)msg->data;
        if (op->region)
            region_drop(op->region);
        return;
    }
    struct iov_msg *p = iov_of(msg);
    for (uint32_t i = 0; i < p->count; i++)
        if (p->part[i].region)
            region_drop(p->part[i].region);
        else if (p->part[i].reg)
            regcache_put(p->cache, p->part[i].reg);
    p->count = 0;
}

/* ---- building -------------------------------------------------------------------------------- */

/* Slices for one frame, behind the header's. Returns their bytes. */
static uint32_t gather(struct session *s, struct iov_msg *p, struct ibv_sge *sge, unsigned *count) {
    uint32_t bytes = 0;
    *count = 0;
    while (p->next < p->count && *count + 1 < session_connection(s)->sq.sges &&
           bytes < s->tx.frame_payload) {
        const struct iov_part *part = &p->part[p->next];
        uint64_t left = part->bytes - p->skip;
        uint32_t room = s->tx.frame_payload - bytes, size = left < room ? (uint32_t)left : room;
        sge[(*count)++] = (struct ibv_sge){part->addr + p->skip, size, part->lkey};
        bytes += size;
        p->skip += size;
        if (p->skip == part->bytes) {
            p->skip = 0;
            p->next++;
        }
    }
    return bytes;
}

enum build_result iov_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                            struct sluice_msg *msg) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    struct iov_msg *p = iov_of(msg);
    if (rndv_wanted(s, msg) && rndv_has_way(s, p->part, p->count))
        return rndv_build_iov(l, s, batch, msg, p->part, p->count);
    uint32_t lkey;
    uint8_t *header = wr_batch_header(l, s, &lkey);
    if (!header)
        return BUILD_NONE;
    struct ibv_sge *sge = l->iov_sge[batch->count];
    unsigned count;
    uint32_t size = gather(s, p, sge + 1, &count);
    bool first = msg->tx.sent == 0, last = msg->tx.sent + size == msg->size, whole = first && last;
    sge[0] = (struct ibv_sge){(uintptr_t)header, FRAME_BYTES, lkey};
    struct ibv_send_wr *wr = wr_batch_add(l, s, batch, count + 1, 0);
    wr->sg_list = sge;
    c->tx.sequence++;
    post_header(c, header, whole ? FRAME_DATA : FRAME_FRAG,
                whole ? 0 : (first ? FRAME_FIRST : 0) | (last ? FRAME_LAST : 0), size,
                first && !last ? msg->size : 0);
    c->tx.credits--;
    wr_batch_entry(s, msg, msg->tx.sent, SQ_IOV); /* where the slices begin: iov_again() */
    p->transfer.posted++;
    p->transfer.begun = true;
    p->transfer.whole = last;
    msg->tx.sent += size;
    batch->waited_for = true;
    wr_batch_signal(s, batch, wr);
    l->totals.messages_sent += last;
    l->totals.bytes_sent += size;
    return last ? BUILD_DONE : BUILD_PARTIAL;
}

unsigned iov_again(struct sluice_loop *l, struct session *s, struct sluice_msg *msg, uint64_t from,
                   uint32_t bytes, struct ibv_sge *sge) {
    struct iov_msg *p = iov_of(msg);
    uint32_t next = p->next;
    uint64_t skip = p->skip;
    unsigned count;
    loop_assert_inside(l);
    for (p->next = 0; p->next < p->count && from >= p->part[p->next].bytes; p->next++)
        from -= p->part[p->next].bytes;
    p->skip = from;
    uint32_t got = gather(s, p, sge, &count);
    p->next = next;
    p->skip = skip;
    ASSERT(got >= bytes);
    while (got > bytes) { /* the message ended there, or the frame was shorter */
        struct ibv_sge *last = &sge[count - 1];
        uint32_t over = got - bytes, less = last->length < over ? last->length : over;
        last->length -= less;
        got -= less;
        count -= last->length == 0;
    }
    return count;
}

void iov_completed(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                   sluice_status status) {
    loop_assert_inside(l);
    if (!transfer_completed(s, msg, &status))
        return;
    if (msg->tx.tag)
        event_outcome(l, s, msg, status);
    else
        msg_discard(l, msg);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* The size of the message, in bytes. EINVAL; EMSGSIZE: more than can be counted. */
static int measure(const sluice_piece *pieces, int count, uint64_t *total, uint64_t *copied) {
    *total = *copied = 0;
    for (int i = 0; i < count; i++) {
        const sluice_piece *piece = &pieces[i];
        const sluice_region *r = piece->region;
        uint64_t at = (uint64_t)(uintptr_t)piece->data;
        if (r ? at < (uintptr_t)r->addr || !region_has(r, at - (uintptr_t)r->addr, piece->bytes)
              : !piece->data && piece->bytes > 0)
            return SLUICE_EINVAL;
        if (piece->bytes > UINT64_MAX / 2 - *total)
            return SLUICE_EMSGSIZE;
        *total += piece->bytes;
        *copied += r ? 0 : piece->bytes;
    }
    return SLUICE_OK;
}

struct wanted {
    const sluice_piece *pieces;
    int count;
    uint64_t total;
    sluice_node *node; /* entered, where pieces are sent in place; else NULL */
    struct regcache_entry *reg[SLUICE_PIECES_MAX];
};

static int fits(const struct session *s, const void *arg) {
    const struct wanted *wanted = arg;
    for (int i = 0; i < wanted->count; i++)
        if (wanted->pieces[i].region && wanted->pieces[i].region->node != s->node)
            return SLUICE_EINVAL;
    return wanted->total > s->tx.message_max ? SLUICE_EMSGSIZE : SLUICE_OK;
}

/* Plain pieces that can be sent from where they lie. Returns the bytes that are not to be copied then. */
static uint64_t registrations(struct wanted *wanted, sluice_session s) {
    UNCANCELLED;
    uint64_t bytes = 0;
    sluice_node *n = context_at((uint32_t)(s.id >> 56));
    if (!context_call_begin(n))
        return 0; /* it is being closed, and its cache with it */
    wanted->node = n;
    if (wanted->total > n->options.message_bytes_max)
        return 0; /* no session carries it */
    for (int i = 0; i < wanted->count; i++) {
        const sluice_piece *piece = &wanted->pieces[i];
        if (piece->region || piece->bytes < SLUICE_IN_PLACE_MIN || piece->bytes > SIZE_MAX / 2)
            continue;
        wanted->reg[i] = regcache_lazy_get(n, piece->data, (size_t)piece->bytes);
        if (wanted->reg[i])
            bytes += piece->bytes;
    }
    return bytes;
}

/* Pins that no message took over, and the node. */
static void leave(struct wanted *wanted) {
    if (!wanted->node)
        return;
    for (int i = 0; i < wanted->count; i++)
        if (wanted->reg[i])
            regcache_put(atomic_load(&wanted->node->regcache.cache), wanted->reg[i]);
    context_call_end(wanted->node);
}

/* The next part lies where the application has it. */
static int add_part(struct iov_msg *p, struct wanted *wanted, int i) {
    const sluice_piece *piece = &wanted->pieces[i];
    struct iov_part part = {.addr = (uintptr_t)piece->data, .bytes = piece->bytes};
    if (piece->region) {
        int status = region_hold(piece->region);
        if (status != SLUICE_OK)
            return status;
        part.region = piece->region;
        part.lkey = atomic_load_explicit(&piece->region->lkey, memory_order_relaxed);
    } else {
        p->cache = atomic_load_explicit(&wanted->node->regcache.cache, memory_order_relaxed);
        part.reg = wanted->reg[i];
        part.lkey = part.reg->lkey;
        wanted->reg[i] = NULL; /* the message's now */
    }
    p->part[p->count++] = part;
    return SLUICE_OK;
}

/* Fills the block in, every region of it held. Another status: none is. */
static int fill(struct sluice_msg *msg, struct wanted *wanted) {
    struct iov_msg *p = iov_of(msg);
    uint8_t *copy = (uint8_t *)&p->part[wanted->count];
    *p = (struct iov_msg){.count = 0};
    msg->kind = MSG_IOV;
    for (int i = 0; i < wanted->count; i++) {
        const sluice_piece *piece = &wanted->pieces[i];
        struct iov_part *last = p->count > 0 ? &p->part[p->count - 1] : NULL;
        if (piece->bytes == 0)
            continue;
        if (piece->region || wanted->reg[i]) {
            int status = add_part(p, wanted, i);
            if (status != SLUICE_OK) {
                iov_regions_done(msg);
                return status;
            }
            continue;
        }
        memcpy(copy, piece->data, (size_t)piece->bytes);
        if (last && !last->region && !last->reg)
            last->bytes += piece->bytes;
        else
            p->part[p->count++] = (struct iov_part){
                .addr = (uintptr_t)copy, .bytes = piece->bytes, .lkey = msg->lkey};
        copy += piece->bytes;
    }
    return SLUICE_OK;
}

static void copy_whole(struct sluice_msg *msg, const struct wanted *wanted) {
    uint8_t *to = msg->data;
    for (int i = 0; i < wanted->count; i++) {
        if (wanted->pieces[i].bytes > 0)
            memcpy(to, wanted->pieces[i].data, (size_t)wanted->pieces[i].bytes);
        to += wanted->pieces[i].bytes;
    }
}

/* `copied` bytes of it go into the block. */
static int submit(sluice_session s, struct wanted *wanted, uint64_t copied,
                  struct send_args *args) {
    struct sluice_msg *msg;
    bool plain = wanted->total <= COPIED_MAX;
    uint64_t bytes =
        plain ? wanted->total
              : sizeof(struct iov_msg) + (unsigned)wanted->count * sizeof(struct iov_part) + copied;
    int status = transfer_open(s, (size_t)bytes, fits, wanted, &msg);
    if (status != SLUICE_OK)
        return status;
    args->kind = plain ? MSG_PLAIN : MSG_IOV;
    msg->size = wanted->total;
    if (plain)
        copy_whole(msg, wanted);
    else
        status = fill(msg, wanted);
    if (status == SLUICE_OK && (status = send_submit(s, msg, args)) != SLUICE_OK && !plain)
        iov_regions_done(msg);
    if (status != SLUICE_OK)
        sluice_free(msg);
    return status;
}

int sluice_send_pieces(sluice_session s, const sluice_piece *pieces, int count,
                       const sluice_send_options *o) {
    struct send_args args = {0};
    struct wanted wanted = {.pieces = pieces, .count = count};
    uint64_t copied;
    if (forked_id(s.id))
        return SLUICE_EFORKED;
    if (count < 0 || count > SLUICE_PIECES_MAX || (count > 0 && !pieces) ||
        (o && iov_send_options(&args, o) != 0))
        return SLUICE_EINVAL;
    int status = measure(pieces, count, &wanted.total, &copied);
    if (status != SLUICE_OK)
        return status;
    if (args.flags & SLUICE_IN_PLACE)
        copied -= registrations(&wanted, s);
    args.flags &= ~SLUICE_IN_PLACE;
    status = submit(s, &wanted, copied, &args);
    leave(&wanted);
    return status;
}
