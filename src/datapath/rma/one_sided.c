/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * one_sided.c - put, get, atomics, put with notify, fence: operations on memory the peer named.
 *
 * An operation is a block of the pool that goes the way of a message: it is checked by the call, counted
 * by the window, waits in the session's queue, and is made into work requests by the loop. It needs no
 * credit, except for the frame behind a put with notify.
 *
 * Large ones are cut into chunks, of which a few are posted at a time, so that neither a turn (the
 * software device copies while it posts) nor the sends of other sessions wait for gigabytes. READs and
 * atomics are posted as far as the agreed depth allows; so a fence, and operations that wait for the depth, wait in
 * our queue, and a completion goes on with them.
 *
 * Every one of them is signalled at the end of its batch: a region is in use until then.
 *
 * Owner: the loop's thread; the public calls are for any thread.
 */
#include "datapath/rma/one_sided.h"

#include <errno.h>

#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/rx/loans.h"
#include "datapath/rx/alloc_wait.h"
#include "core/context.h"
#include "datapath/loop/loop.h"
#include "datapath/rx/message.h"
#include "datapath/loop/upward.h"
#include "datapath/tx/iov.h"
#include "datapath/tx/post.h"
#include "datapath/tx/send.h"
#include "core/forked.h"

#define CHUNK (256u << 10)
#define PACKET(mtu) (128u << (mtu)) /* bytes in a packet of enum ibv_mtu */
#define LARGE (16u << 10)           /* operations above that count as large ... */
#define LARGE_MAX SINKS_MAX         /* ... of whose chunks so many are posted at a time */
#define BYTES_MAX (1ull << 30)

static struct operation *operation_of(struct sluice_msg *msg) {
    return (struct operation *)(void *)msg->data;
}

static bool is_read(const struct operation *op) {
    return op->code == OPERATION_GET || op->code == OPERATION_ADD || op->code == OPERATION_SWAP;
}

bool one_sided_is_put(struct sluice_msg *msg) {
    const struct operation *op = operation_of(msg);
    return op->code == OPERATION_PUT || op->code == OPERATION_NOTIFY;
}

/* READs and atomics of ours the peer serves at a time: `in` and `out` are the listener's. */
static uint32_t depth_of(const struct connection *c) {
    return c->cm.passive ? c->cm.rep.depth_out : c->cm.rep.depth_in;
}

/* ---- building -------------------------------------------------------------------------------- */

/* A work request with one piece of memory, none if it has no bytes. */
static struct ibv_send_wr *add(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                               struct sluice_msg *msg, enum ibv_wr_opcode opcode, uint64_t addr,
                               uint32_t bytes, uint32_t lkey) {
    struct connection *c = session_connection(s);
    struct operation *op = operation_of(msg);
    bool sends = opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_WRITE;
    bool inlined = sends && bytes > 0 && bytes <= c->sq.inline_max;
    l->send_sge[batch->count][0] = (struct ibv_sge){addr, bytes, lkey};
    struct ibv_send_wr *wr =
        wr_batch_add(l, s, batch, bytes > 0 ? 1 : 0, inlined ? IBV_SEND_INLINE : 0);
    wr->opcode = opcode;
    wr_batch_entry(s, msg, 0, SQ_ONE_SIDED);
    op->transfer.posted++;
    op->transfer.begun = true;
    c->rma.posted++;
    batch->frameless += opcode != IBV_WR_SEND;
    batch->waited_for = true;
    if (!is_read(op)) {
        wr_batch_signal(s, batch, wr);
        return wr;
    }
    /* The next one waits for this one's place. */
    c->rma.reads++;
    wr->send_flags |= IBV_SEND_SIGNALED;
    c->sq.unsignalled = 0;
    batch->waited_for = false;
    return wr;
}

/*
 * The memory a READ goes to, where the peer's answer is a WRITE like another's: a registration of exactly
 * these bytes, open to the peer until the READ is complete. NULL: the device has no more, now.
 */
static struct ibv_mr *open_sink(const struct session *s, struct operation *op, uint64_t at,
                                uint32_t bytes) {
    const sluice_node *n = s->node;
    struct ibv_mr *mr = n->fabric->reg_mr(n->pd, (void *)(uintptr_t)at, bytes,
                                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (mr)
        op->sinks[(op->sink_first + op->sink_count++) % SINKS_MAX] = mr;
    return mr;
}

static void close_sink(const struct session *s, struct operation *op) {
    if (op->sink_count == 0)
        return;
    if (s->node->fabric->dereg_mr(op->sinks[op->sink_first]) != 0)
        log_write(&s->node->log, SLUICE_LOG_ERROR, "a registration cannot be ended");
    op->sink_first = (op->sink_first + 1) % SINKS_MAX;
    op->sink_count--;
}

/* It leaves the queue with this outcome: EDEVICE, if what the call has checked is not so over another connection. */
static enum build_result end_unsent(struct sluice_loop *l, struct session *s,
                                    struct sluice_msg *msg, sluice_status status) {
    msg_queue_pop(&s->tx.queue);
    finish_unsent(l, s, msg, status);
    if (s->window.waits_writable)
        send_check_writable(l, s);
    return BUILD_PARTIAL; /* look at the queue again */
}

/* It goes on when some of it, or of another, is complete; with nothing under way there is no memory for it. */
static enum build_result no_sink(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    l->totals.alloc_stalls++;
    l->totals_moved = true;
    if (session_connection(s)->rma.reads > 0)
        return BUILD_NONE;
    return end_unsent(l, s, msg, SLUICE_ENOMEM);
}

/* Where a READ may deliver wrong bytes when some of its packets are lost, each has one packet. */
void one_sided_up(struct connection *c) {
    enum ibv_mtu mtu = c->cm.rtr.path_mtu;
    bool alone = c->session->node->traits.reads_unsafe && mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096;
    c->rma.read_bytes = alone ? PACKET(mtu) : CHUNK;
}

void one_sided_agreed(struct connection *c) {
    atomic_store_explicit(&c->session->reads, depth_of(c) > 0, memory_order_relaxed);
    atomic_store_explicit(&c->session->atomics, !(c->lacks & FABRIC_LACKS_ATOMICS),
                          memory_order_relaxed);
}

static uint32_t chunk_bytes(const struct session *s, const struct operation *op) {
    return op->code == OPERATION_GET ? session_connection(s)->rma.read_bytes : CHUNK;
}

/* The next chunk of a put or a get. */
static enum build_result build_chunk(struct sluice_loop *l, struct session *s,
                                     struct wr_batch *batch, struct sluice_msg *msg) {
    struct connection *c = session_connection(s);
    struct operation *op = operation_of(msg);
    bool get = op->code == OPERATION_GET, large = msg->size > LARGE;
    if (get && depth_of(c) == 0)
        return end_unsent(l, s, msg, SLUICE_EDEVICE);
    if ((large && c->rma.large >= LARGE_MAX) || (get && c->rma.reads >= depth_of(c)))
        return BUILD_NONE;
    uint64_t left = msg->size - msg->tx.sent;
    uint32_t most = chunk_bytes(s, op), bytes = left < most ? (uint32_t)left : most;
    uint32_t lkey = op->lkey;
    if (get && bytes > 0 && s->node->traits.sink_is_target) {
        const struct ibv_mr *sink = open_sink(s, op, op->local + msg->tx.sent, bytes);
        if (!sink)
            return no_sink(l, s, msg);
        lkey = sink->lkey;
    }
    struct ibv_send_wr *wr =
        add(l, s, batch, msg, get && bytes > 0 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
            op->local + msg->tx.sent, bytes, lkey);
    wr->wr.rdma.remote_addr = op->remote + msg->tx.sent;
    wr->wr.rdma.rkey = op->rkey;
    c->rma.large += large;
    msg->tx.sent += bytes;
    if (bytes < left || op->code == OPERATION_NOTIFY)
        return BUILD_PARTIAL;
    op->transfer.whole = true;
    return BUILD_DONE;
}

static enum build_result build_notify(struct sluice_loop *l, struct session *s,
                                      struct wr_batch *batch, struct sluice_msg *msg) {
    struct connection *c = session_connection(s);
    struct operation *op = operation_of(msg);
    if (msg->tx.sent < msg->size)
        return build_chunk(l, s, batch, msg);
    if (c->tx.credits <= c->tx.reserve) {
        l->totals.credit_stalls += !c->tx.stalled;
        c->tx.stalled = true;
        return BUILD_NONE;
    }
    uint8_t *at = msg->data - FRAME_BYTES;
    c->tx.sequence++;
    post_header(c, at, FRAME_NOTIFY, 0, 0, op->compare_add);
    c->tx.credits--;
    op->transfer.whole = op->notified = true;
    add(l, s, batch, msg, IBV_WR_SEND, (uintptr_t)at, FRAME_BYTES, msg->lkey);
    return BUILD_DONE;
}

static enum build_result build_atomic(struct sluice_loop *l, struct session *s,
                                      struct wr_batch *batch, struct sluice_msg *msg) {
    struct operation *op = operation_of(msg);
    const struct connection *c = session_connection(s);
    if (depth_of(c) == 0 || (c->lacks & FABRIC_LACKS_ATOMICS))
        return end_unsent(l, s, msg, SLUICE_EDEVICE);
    if (c->rma.reads >= depth_of(c))
        return BUILD_NONE;
    struct ibv_send_wr *wr =
        add(l, s, batch, msg,
            op->code == OPERATION_ADD ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP,
            (uintptr_t)&op->result, sizeof op->result, msg->lkey);
    wr->wr.atomic.remote_addr = op->remote;
    wr->wr.atomic.rkey = op->rkey;
    wr->wr.atomic.compare_add = op->compare_add;
    wr->wr.atomic.swap = op->swap;
    op->transfer.whole = true;
    return BUILD_DONE;
}

/* It is no work request: it ends, and leaves the queue, as soon as nothing before it is left. */
static enum build_result build_fence(struct sluice_loop *l, struct session *s,
                                     struct sluice_msg *msg) {
    if (session_connection(s)->rma.posted > 0)
        return BUILD_NONE;
    return end_unsent(l, s, msg, SLUICE_OK);
}

enum build_result one_sided_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                  struct sluice_msg *msg) {
    loop_assert_inside(l);
    if (s->move.step == MOVE_QUIETS && msg->tx.sent == 0)
        return BUILD_NONE; /* none is begun over the connection that is about to be left */
    switch ((enum operation_code)operation_of(msg)->code) {
    case OPERATION_PUT:
    case OPERATION_GET:
        return build_chunk(l, s, batch, msg);
    case OPERATION_NOTIFY:
        return build_notify(l, s, batch, msg);
    case OPERATION_ADD:
    case OPERATION_SWAP:
        return build_atomic(l, s, batch, msg);
    case OPERATION_FENCE:
        return build_fence(l, s, msg);
    }
    return BUILD_NONE; /* cannot be */
}

/* ---- completion ------------------------------------------------------------------------------ */

bool transfer_completed(struct session *s, struct sluice_msg *msg, sluice_status *status) {
    struct transfer *t = transfer_of(msg);
    t->posted--;
    if (t->status == SLUICE_OK)
        t->status = *status;
    if (t->posted > 0 || !t->whole)
        return false;
    *status = (sluice_status)t->status;
    window_release(s, 1, msg->size, msg->foreign);
    iov_regions_done(msg);
    return true;
}

bool transfer_cut(struct sluice_msg *msg, sluice_status *status) {
    struct transfer *t = transfer_of(msg);
    /* Of a message half of its frames are nothing to the peer; of an operation they are something. */
    if (t->begun && msg->kind == MSG_ONE_SIDED)
        *status = SLUICE_EUNKNOWN;
    if (t->status != SLUICE_OK)
        *status = (sluice_status)t->status;
    t->whole = true;
    t->status = *status;
    return t->posted > 0;
}

void one_sided_completed(struct sluice_loop *l, struct connection *c, struct sluice_msg *msg,
                         sluice_status status) {
    struct session *s = c->session;
    loop_assert_inside(l);
    struct operation *op = operation_of(msg);
    bool first = op->transfer.status == SLUICE_OK;
    c->rma.posted--;
    c->rma.reads -= is_read(op);
    close_sink(s, op);
    /* In order: the frame behind a put completes last. */
    c->rma.large -= msg->size > LARGE && !(op->notified && op->transfer.posted == 1);
    /* Never posted, but other parts of it were. */
    bool alone = op->transfer.posted == 1 && msg->tx.sent <= chunk_bytes(s, op) &&
                 !(op->notified && msg->size > 0);
    if ((status == SLUICE_ECLOSED || status == SLUICE_EFENCED) && first && !alone)
        status = SLUICE_EUNKNOWN;
    if (!transfer_completed(s, msg, &status))
        return;
    bool fetched = op->code == OPERATION_ADD || op->code == OPERATION_SWAP;
    msg->outcome.value = fetched && status == SLUICE_OK ? op->result : 0;
    if (msg->tx.tag)
        event_outcome(l, s, msg, status);
    else
        msg_discard(l, msg);
}

enum recv_result notify_take(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    loop_assert_inside(l);
    sluice_event event = {.type = SLUICE_NOTIFIED, .value = msg->rx.total};
    if (msg->rx.total > UINT32_MAX) {
        receive_broken(l, s, msg, "a notification of more than 32 bits");
        return RECV_DONE;
    }
    event_return(l, msg);
    event_plain(l, s, &event);
    return RECV_DONE;
}

/* ---- calls ----------------------------------------------------------------------------------- */

int transfer_open(sluice_session handle, size_t bytes,
                  int (*fits)(const struct session *s, const void *arg), const void *arg,
                  struct sluice_msg **out) {
    struct session *s = session_table_find(handle.id);
    if (!s)
        return SLUICE_ECLOSED;
    /* The owner needs no pin: while it is inside, only it could end the session. */
    struct sluice_loop *l = atomic_load_explicit(&s->loop, memory_order_relaxed);
    bool nested, own = l && loop_enter(l, &nested);
    if (!own && !session_ref_tryget(&s->ref, (uint32_t)handle.id, SESSION_REF_OPEN, 0))
        return SLUICE_ECLOSED;
    int status = SLUICE_OK;
    if (own && (!session_accepts(s) || session_ref_hungup(&s->ref) ||
                atomic_load_explicit(&s->id, memory_order_relaxed) != handle.id))
        status = SLUICE_ECLOSED;
    else if (fits)
        status = fits(s, arg);
    struct sluice_msg *msg = NULL;
    if (status == SLUICE_OK) {
        msg = own ? message_of(pool_get(l->pool, l->cache, bytes)) : message_get(s->pool, bytes);
        status = msg ? SLUICE_OK : errno == EMSGSIZE ? SLUICE_EMSGSIZE : SLUICE_ENOMEM;
    }
    if (msg)
        msg->state = MSG_APP;
    if (own)
        loop_leave(l, nested);
    else
        session_ref_put(&s->ref);
    if (unlikely(status == SLUICE_ENOMEM) &&
        (status = alloc_wait_get_for(handle, bytes, &msg)) == 0)
        msg->state = MSG_APP;
    *out = msg;
    return status;
}

struct wanted {
    struct operation op;
    uint64_t bytes;
};

static int fits(const struct session *s, const void *arg) {
    const struct wanted *wanted = arg;
    const struct operation *op = &wanted->op;
    if (op->region && op->region->node != s->node)
        return SLUICE_EINVAL;
    bool atomic = op->code == OPERATION_ADD || op->code == OPERATION_SWAP;
    if (atomic && !atomic_load_explicit(&s->atomics, memory_order_relaxed))
        return SLUICE_EDEVICE;
    if (is_read(op) && !atomic_load_explicit(&s->reads, memory_order_relaxed))
        return SLUICE_EDEVICE; /* one of the two devices serves none, or does none */
    return SLUICE_OK;
}

static int submit(sluice_session handle, const struct wanted *wanted,
                  const sluice_send_options *o) {
    struct send_args args = {0};
    struct sluice_msg *msg;
    const sluice_region *region = wanted->op.region;
    if (o && send_options(&args, o) != 0)
        return SLUICE_EINVAL;
    args.kind = MSG_ONE_SIDED;
    int status = region ? region_hold(region) : SLUICE_OK;
    if (status != SLUICE_OK)
        return status;
    status = transfer_open(handle, sizeof(struct operation), fits, wanted, &msg);
    if (status == SLUICE_OK) {
        struct operation *op = operation_of(msg);
        *op = wanted->op;
        if (region)
            op->lkey = atomic_load_explicit(&region->lkey, memory_order_relaxed);
        msg->size = wanted->bytes;
        status = send_submit(handle, msg, &args);
        if (status != SLUICE_OK)
            sluice_free(msg);
    }
    if (status != SLUICE_OK && region)
        region_drop(region);
    return status;
}

/* Fills in where in the peer's memory it is. EINVAL: no token; EACCESS. */
static int set_target(struct operation *op, const sluice_token *given, uint64_t remote,
                      uint64_t bytes, uint32_t right) {
    struct token token;
    if (!given || !token_get(&token, given))
        return SLUICE_EINVAL;
    if (!(token.rights & right) || remote > token.bytes || bytes > token.bytes - remote)
        return SLUICE_EACCESS;
    op->rkey = token.rkey;
    op->remote = token.addr + remote;
    return SLUICE_OK;
}

static int move(sluice_session s, enum operation_code code, const sluice_region *r, uint64_t local,
                uint64_t bytes, const sluice_token *token, uint64_t remote, uint32_t value,
                const sluice_send_options *o) {
    struct wanted wanted = {.op = {.code = (uint8_t)code, .compare_add = value}, .bytes = bytes};
    if (forked_id(s.id) || forked_region(r))
        return SLUICE_EFORKED;
    if (r ? !region_has(r, local, bytes) : bytes > 0)
        return SLUICE_EINVAL;
    int status = set_target(&wanted.op, token, remote, bytes,
                            code == OPERATION_GET ? SLUICE_MAY_READ : SLUICE_MAY_WRITE);
    if (status != SLUICE_OK)
        return status;
    if (bytes > BYTES_MAX)
        return SLUICE_EMSGSIZE;
    if (r) {
        wanted.op.region = r;
        wanted.op.local = (uint64_t)(uintptr_t)r->addr + local;
    }
    return submit(s, &wanted, o);
}

int sluice_put(sluice_session s, const sluice_region *r, uint64_t local, uint64_t bytes,
               const sluice_token *token, uint64_t remote, const sluice_send_options *o) {
    return move(s, OPERATION_PUT, r, local, bytes, token, remote, 0, o);
}

int sluice_get(sluice_session s, const sluice_region *r, uint64_t local, uint64_t bytes,
               const sluice_token *token, uint64_t remote, const sluice_send_options *o) {
    return move(s, OPERATION_GET, r, local, bytes, token, remote, 0, o);
}

int sluice_put_notify(sluice_session s, const sluice_region *r, uint64_t local, uint64_t bytes,
                      const sluice_token *token, uint64_t remote, uint32_t value,
                      const sluice_send_options *o) {
    return move(s, OPERATION_NOTIFY, r, local, bytes, token, remote, value, o);
}

static int fetch(sluice_session s, enum operation_code code, const sluice_token *token,
                 uint64_t remote, uint64_t compare_add, uint64_t swap,
                 const sluice_send_options *o) {
    struct wanted wanted = {.op = {.code = (uint8_t)code, .compare_add = compare_add, .swap = swap},
                            .bytes = sizeof(uint64_t)};
    if (forked_id(s.id))
        return SLUICE_EFORKED;
    int status = set_target(&wanted.op, token, remote, sizeof(uint64_t), SLUICE_MAY_ATOMIC);
    if (status != SLUICE_OK)
        return status;
    if (wanted.op.remote % sizeof(uint64_t) != 0)
        return SLUICE_EINVAL;
    return submit(s, &wanted, o);
}

int sluice_fetch_add(sluice_session s, const sluice_token *token, uint64_t remote, uint64_t add,
                     const sluice_send_options *o) {
    return fetch(s, OPERATION_ADD, token, remote, add, 0, o);
}

int sluice_compare_swap(sluice_session s, const sluice_token *token, uint64_t remote,
                        uint64_t expected, uint64_t desired, const sluice_send_options *o) {
    return fetch(s, OPERATION_SWAP, token, remote, expected, desired, o);
}

int sluice_fence(sluice_session s, const sluice_send_options *o) {
    struct wanted wanted = {.op = {.code = OPERATION_FENCE}};
    if (forked_id(s.id))
        return SLUICE_EFORKED;
    return submit(s, &wanted, o);
}
