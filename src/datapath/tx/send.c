/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * send.c - sluice_send(): the window, and the path of a message.
 *
 * On the thread that owns the session's loop everything is plain: the window is two counters, and
 * with an empty queue, a credit and room the work request is posted before the call returns. Any
 * other thread takes a reference, which counts the message against the window and pins the
 * session, and puts it into the loop's mailbox; the loop posts it in its next turn.
 *
 * The window. Messages of the owner and of other threads are counted apart, because only so the owner needs no atomic
 * read-modify-write; each side looks at the other's counter. Both may accept the last free message at
 * the same moment: the window is exceeded by at most one message for each thread that does.
 *
 * EAGAIN and WRITABLE. The owner notes that it owes an event. Another thread posts a WRITABLE_WAIT message,
 * at most one at a time; the loop handles it after the completions that made room, or makes the
 * event due itself: no window can open without the event. EAGAIN for want of memory is alloc_wait.c's.
 */
#include <string.h>

#include "datapath/tx/send.h"
#include "core/wire/frame.h"
#include "datapath/tx/framed.h"
#include "datapath/loop/events.h"
#include "datapath/rx/alloc_wait.h"
#include "datapath/tx/post.h"
#include "core/context.h"
#include "datapath/loop/loop.h"
#include "datapath/rx/landing.h"
#include "datapath/rndv/rts.h"
#include "datapath/rpc/client.h"
#include "datapath/rx/message.h"
#include "datapath/rx/retain.h"
#include "core/forked.h"

static inline int options_of(struct send_args *args, const sluice_send_options *o, uint32_t flags);

/* Of a caller that was compiled with another version of the header. */
static int other_options(struct send_args *args, const sluice_send_options *o, uint32_t flags) {
    sluice_send_options known = {0};
    if (o->size < sizeof o->size)
        return SLUICE_EINVAL;
    memcpy(&known, o, o->size < sizeof known ? o->size : sizeof known);
    for (size_t i = sizeof known; i < o->size; i++)
        if (((const uint8_t *)o)[i] != 0)
            return SLUICE_EINVAL;
    known.size = sizeof known;
    return options_of(args, &known, flags);
}

static inline int options_of(struct send_args *args, const sluice_send_options *o, uint32_t flags) {
    if (unlikely(o->size != sizeof *o))
        return other_options(args, o, flags);
    if (unlikely(o->flags & ~flags || o->reserved))
        return SLUICE_EINVAL;
    args->tag = o->tag;
    args->deadline_ns = o->deadline_ns;
    args->flags = o->flags;
    args->id = 0;
    args->kind = MSG_PLAIN;
    return 0;
}

int send_options(struct send_args *args, const sluice_send_options *o) {
    return options_of(args, o, SLUICE_MORE);
}

int iov_send_options(struct send_args *args, const sluice_send_options *o) {
    return options_of(args, o, SLUICE_MORE | SLUICE_IN_PLACE);
}

/* One message always fits, however large. */
static inline bool window_has_room(struct session *s, uint64_t count, uint64_t bytes,
                                   uint64_t more) {
    return count == 0 || (count < s->window.messages && bytes + more <= s->window.bytes);
}

/*
 * The window opens when sends complete, and sends that went inline complete with the next signalled one. If the
 * window lets no signalled send through, send_flush() posts an empty signalled WRITE instead: WRITABLE depends on it.
 * Not here: the caller may be building a batch.
 */
static void want_signal(struct sluice_loop *l, struct session *s) {
    s->window.wants_signal = true;
    loop_dirty(l, s);
}

void send_check_writable(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    uint64_t count = atomic_load_explicit(&s->window.own_messages, memory_order_relaxed) +
                     session_ref_count(&s->ref);
    uint64_t bytes = atomic_load_explicit(&s->window.own_bytes, memory_order_relaxed) +
                     atomic_load_explicit(&s->foreign.bytes, memory_order_relaxed);
    if (!session_accepts(s))
        return;
    if (count == 0 || (count <= s->window.messages - (s->window.messages + 3) / 4 &&
                       bytes <= s->window.bytes - s->window.bytes / 4)) {
        s->window.waits_writable = false;
        session_waits_no_more(s, WAIT_WINDOW);
        event_notice(l, s, NOTICE_WRITABLE);
    } else {
        want_signal(l, s);
    }
}

static inline void take(struct sluice_msg *msg, uint64_t id, const struct send_args *args,
                        bool foreign) {
    msg->state = MSG_SENDING;
    msg->tx.tag = args->tag;
    msg->tx.deadline_ns = args->deadline_ns;
    msg->tx.session_id = id;
    msg->foreign = foreign;
    msg->tx.sent = 0;
    msg->kind = args->kind;
    msg->tx.id = args->id;
}

/* Of this node: allocated or received. */
static inline bool is_owned(const struct session *s, const struct sluice_msg *msg) {
    return msg->pool == s->pool || msg->pool == s->rx_pool;
}

/* ---- another thread -------------------------------------------------------------------------- */

void send_wait_requested(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    uint32_t wants = atomic_exchange_explicit(&s->foreign.waits, 0, memory_order_acquire);
    session_waits(s, wants); /* again: what the loop noticed meanwhile was for an earlier one */
    if (wants & WAIT_WINDOW) {
        s->window.waits_writable = true;
        /* Also where WRITABLE is due at once: a large message needs them gone. */
        want_signal(l, s);
        send_check_writable(l, s);
    }
    if (wants & WAIT_REQUEST_ID)
        rpc_client_want(l, s);
    if (wants & WAIT_MEMORY)
        alloc_wait_requested(l, s);
}

/* Before foreign_full(): what it wants. */
static void foreign_want(struct session *s, uint32_t what) {
    session_waits(s, what);
    atomic_fetch_or_explicit(&s->foreign.waits, what, memory_order_relaxed);
}

static int foreign_full(struct session *s, struct sluice_loop *l) {
    atomic_fetch_sub_explicit(&s->ref, 1, memory_order_release);
    if (session_ref_set(&s->ref, SESSION_REF_WRITABLE_WAIT))
        loop_post(l, s, LOOP_MSG_WRITABLE_WAIT);
    session_ref_put(&s->ref);
    return SLUICE_EAGAIN;
}

static int send_foreign(struct session *s, uint64_t id, struct sluice_msg *msg,
                        const struct send_args *args) {
    if (!session_ref_tryget(&s->ref, (uint32_t)id, SESSION_REF_OPEN, 1))
        return SLUICE_ECLOSED;
    /* Pinned, so these belong to the session of this handle. */
    struct sluice_loop *l = session_mail(s);
    int status = SLUICE_OK;
    if (!is_owned(s, msg) || (msg->state != MSG_APP && msg->state != MSG_LOANED))
        status = SLUICE_EINVAL;
    else if (msg->size > s->tx.message_max && args->kind != MSG_ONE_SIDED)
        status = SLUICE_EMSGSIZE;
    if (status != SLUICE_OK) {
        atomic_fetch_sub_explicit(&s->ref, 1, memory_order_release);
        session_ref_put(&s->ref);
        return status;
    }
    uint64_t size = msg->size;
    uint64_t count = session_ref_count(&s->ref) - 1 +
                     atomic_load_explicit(&s->window.own_messages, memory_order_relaxed);
    uint64_t bytes = atomic_fetch_add_explicit(&s->foreign.bytes, size, memory_order_relaxed) +
                     atomic_load_explicit(&s->window.own_bytes, memory_order_relaxed);
    if (!window_has_room(s, count, bytes, size) && args->kind != MSG_REPLY) {
        atomic_fetch_sub_explicit(&s->foreign.bytes, size, memory_order_relaxed);
        foreign_want(s, WAIT_WINDOW);
        return foreign_full(s, l);
    }
    if ((args->kind == MSG_REQUEST || args->kind == MSG_REPLY) &&
        (status = rpc_client_admit(s, args, true)) != SLUICE_OK) {
        atomic_fetch_sub_explicit(&s->foreign.bytes, size, memory_order_relaxed);
        if (status == SLUICE_EAGAIN)
            return foreign_full(s, l);
        atomic_fetch_sub_explicit(&s->ref, 1, memory_order_release);
        session_ref_put(&s->ref);
        return status;
    }
    /* Kept from this very session: the loop sees to its credit, with buffers of its own cache. */
    bool moves =
        msg->state == MSG_APP && (msg->flags & MSG_RETAINED) && msg->retained.session_id == id;
    if (moves)
        status = landing_may_pass(s, msg) ? SLUICE_OK : SLUICE_ENOMEM;
    else if (retain_holds(msg))
        status = retain_pass(msg);
    if (status != SLUICE_OK) {
        if (args->kind == MSG_REQUEST || args->kind == MSG_REPLY)
            rpc_client_admit_undo(s, args, true);
        atomic_fetch_sub_explicit(&s->foreign.bytes, size, memory_order_relaxed);
        atomic_fetch_sub_explicit(&s->ref, 1, memory_order_release);
        session_ref_put(&s->ref);
        return status;
    }
    if (moves)
        landing_passed(s, msg);
    take(msg, id, args, true);
    mailbox_post(&l->mailbox, &msg->item, LOOP_MSG_SEND, s->slot, (uint32_t)id);
    session_ref_put(&s->ref);
    return SLUICE_OK;
}

void send_arrived(struct sluice_loop *l, struct sluice_msg *msg) {
    loop_assert_inside(l);
    struct session *s = session_table_at(msg->tx.session_id);
    session_assert_mine(s, l);
    s->window.foreign_taken++;
    l->traffic = true;
    if (msg->flags & MSG_RETAINED)
        retain_moved(l, s, msg);
    if (s->state < SESSION_DOWN || s->state > SESSION_FLUSHING) {
        finish_unsent(l, s, msg, SLUICE_ECLOSED);
        return;
    }
    if (msg->tx.deadline_ns)
        loop_deadline(l, msg->tx.deadline_ns);
    if (s->state == SESSION_DOWN)
        session_mark_behind(s, msg);
    msg_queue_push(msg->kind == MSG_REPLY ? &s->tx.replies : &s->tx.queue, msg);
    session_disturb(s);
    loop_dirty(l, s);
}

/* ---- the owner's thread ---------------------------------------------------------------------- */

/* Posts a whole message that fits into one frame; credit and room were checked. */
static inline void post_one(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    struct connection *c = session_connection(s);
    uint32_t size = (uint32_t)msg->size, bytes = size + FRAME_BYTES;
    uint8_t *at = msg->data - FRAME_BYTES;
    c->tx.sequence++;
    post_header(c, at, FRAME_DATA, 0, size, 0);

    /* Inline, the buffer is free when the call returns, and its completion is not needed: one in
     * signal_every keeps the send queue and the window moving. */
    bool inlined = bytes <= c->sq.inline_max;
    bool keep = msg->tx.tag != 0 || !inlined;
    bool signal = keep || c->sq.unsignalled + 1 >= c->sq.signal_every;
    c->sq.unsignalled = signal ? 0 : c->sq.unsignalled + 1;

    uint32_t tail = c->sq.tail;
    struct sq_entry *entry = &c->sq.entries[tail & c->sq.mask];
    entry->msg = keep ? msg : NULL;
    entry->bytes = size | SQ_COUNTED;
    c->sq.tail = tail + 1;
    c->tx.credits--;

    l->sge.addr = (uintptr_t)at;
    l->sge.length = bytes;
    l->sge.lkey = msg->lkey;
    l->wr.wr_id = wr_send_id(c, tail);
    l->wr.send_flags = (inlined ? IBV_SEND_INLINE : 0u) | (signal ? IBV_SEND_SIGNALED : 0u);
    struct ibv_send_wr *bad;
    int error = post_wrs(c, &l->wr, &bad);
    if (unlikely(error != 0))
        post_failed(l, s, tail, error);
    if (!keep)
        msg_discard(l, msg);
    l->totals.posts++;
    l->totals.send_wrs++;
    l->totals.frames_sent++;
    l->totals.messages_sent++;
    l->totals.bytes_sent += size;
}

/* Always inline: a plain message without options is made a path of its own by the compiler. */
static inline __attribute__((always_inline)) int send_own(struct sluice_loop *l, struct session *s,
                                                          uint64_t id, struct sluice_msg *msg,
                                                          const struct send_args *args,
                                                          bool nested) {
    struct connection *c = session_connection(s);
    if (unlikely(atomic_load_explicit(&s->id, memory_order_relaxed) != id ||
                 s->state != SESSION_UP) &&
        (atomic_load_explicit(&s->id, memory_order_relaxed) != id || !session_accepts(s)))
        return SLUICE_ECLOSED;
    if (unlikely(!is_owned(s, msg) || (msg->state != MSG_APP && msg->state != MSG_LOANED)))
        return SLUICE_EINVAL;
    if (unlikely(msg->size > s->tx.message_max) && args->kind != MSG_ONE_SIDED)
        return SLUICE_EMSGSIZE;
    uint64_t own = atomic_load_explicit(&s->window.own_messages, memory_order_relaxed);
    uint64_t own_bytes = atomic_load_explicit(&s->window.own_bytes, memory_order_relaxed);
    uint64_t bytes = own_bytes + atomic_load_explicit(&s->foreign.bytes, memory_order_relaxed);
    uint64_t foreign = session_ref_count_open(&s->ref);
    bool room = window_has_room(s, own + foreign, bytes, msg->size);
    if (unlikely(!room) && foreign > SESSION_REF_COUNT)
        return SLUICE_ECLOSED; /* hung up, and this loop has not taken that yet */
    if (unlikely(!room) && args->kind != MSG_REPLY) {
        s->window.waits_writable = true;
        session_waits(s, WAIT_WINDOW);
        want_signal(l, s);
        l->totals.window_full++;
        l->totals_moved = true;
        return SLUICE_EAGAIN;
    }
    int status = SLUICE_OK;
    if ((args->kind == MSG_REQUEST || args->kind == MSG_REPLY) &&
        (status = rpc_client_admit(s, args, false)) != SLUICE_OK) {
        l->totals.window_full += status == SLUICE_EAGAIN;
        return status;
    }
    if (unlikely(retain_holds(msg)) && (status = retain_pass(msg)) != SLUICE_OK) {
        if (args->kind == MSG_REQUEST || args->kind == MSG_REPLY)
            rpc_client_admit_undo(s, args, false);
        return status;
    }
    take(msg, id, args, false);
    atomic_store_explicit(&s->window.own_messages, own + 1, memory_order_relaxed);
    atomic_store_explicit(&s->window.own_bytes, own_bytes + msg->size, memory_order_relaxed);
    l->totals_moved = true;
    session_disturb(s);

    /* In a handler with more messages at hand, what several handlers send goes out together. */
    bool later = (args->flags & SLUICE_MORE) ||
                 (unlikely(nested) && (l->wc_next < l->wc_count || l->unpacking));
    if (likely(!later && !s->tx.queue.head && !args->deadline_ns && args->kind == MSG_PLAIN &&
               c->tx.credits > c->tx.reserve && sq_used(c) < c->sq.quick)) {
        if (likely(msg->size <= s->tx.frame_payload)) {
            post_one(l, s, msg);
            return SLUICE_OK;
        }
        if (msg->size > s->tx.rndv_above && rndv_announce(l, s, msg))
            return SLUICE_OK;
    }
    if (args->deadline_ns) {
        loop_clock(l);
        loop_deadline(l, args->deadline_ns);
    }
    msg_queue_push(args->kind == MSG_REPLY ? &s->tx.replies : &s->tx.queue, msg);
    if (later)
        loop_dirty(l, s);
    else
        send_flush(l, s);
    return SLUICE_OK;
}

static inline __attribute__((always_inline)) int
submit(sluice_session handle, struct sluice_msg *msg, const struct send_args *args) {
    struct session *s = session_table_find(handle.id);
    if (!s)
        return SLUICE_ECLOSED;
    struct sluice_loop *l = atomic_load_explicit(&s->loop, memory_order_relaxed);
    bool nested;
    if (likely(l && loop_enter(l, &nested))) {
        int status = send_own(l, s, handle.id, msg, args, nested);
        loop_leave(l, nested);
        return status;
    }
    return send_foreign(s, handle.id, msg, args);
}

int send_submit(sluice_session handle, struct sluice_msg *msg, const struct send_args *args) {
    return submit(handle, msg, args);
}

/* The sends that framed_submit() does not take. */
static __attribute__((noinline)) int send_other(sluice_session handle, sluice_msg *msg,
                                                const sluice_send_options *o) {
    static const struct send_args plain = {.kind = MSG_PLAIN};
    struct send_args args;
    if (forked_id(handle.id) || forked_msg(msg))
        return SLUICE_EFORKED;
    if (unlikely(!msg))
        return SLUICE_EINVAL;
    if (!o)
        return send_submit(handle, msg, &plain);
    if (unlikely(send_options(&args, o) != 0))
        return SLUICE_EINVAL;
    return send_submit(handle, msg, &args);
}

static __attribute__((noinline)) int send_plain(sluice_session handle, sluice_msg *msg) {
    if (likely(msg && forked_bits() == 0) && likely(framed_submit(handle.id, msg)))
        return SLUICE_OK;
    return send_other(handle, msg, NULL);
}

/* With options, in a frame that is yet to be opened, or with a message that is not as short as most. */
static __attribute__((noinline)) int send_with(sluice_session handle, sluice_msg *msg,
                                               const sluice_send_options *o) {
    struct framed_options is = framed_options(o);
    if (unlikely(!is.plain || is.tag))
        return send_other(handle, msg, o);
    if (!is.more)
        return send_plain(handle, msg);
    if (likely(msg && forked_bits() == 0) && likely(framed_submit_more(handle.id, msg)))
        return SLUICE_OK;
    return send_other(handle, msg, o);
}

/*
 * With options, what waits for more goes into a frame that lies open. Every call here is the last thing done, so that
 * the usual way, which makes none, saves no registers.
 */
static __attribute__((noinline)) int send_more(sluice_session handle, sluice_msg *msg,
                                               const sluice_send_options *o) {
    struct framed_options is = framed_options(o);
    struct sluice_loop *l;
    struct session *s;
    uint64_t bytes;
    uint32_t at;
    bool nested;
    if (unlikely(!msg || !is.plain || is.tag || !is.more || forked_bits() != 0) ||
        unlikely((bytes = msg->size) > COPY_SHORT_MAX) ||
        unlikely(!(s = framed_enter(handle.id, &l, &nested))))
        return send_with(handle, msg, o);
    struct sluice_msg *frame =
        likely(framed_may_take(l, msg)) ? framed_open(s, handle.id, bytes, &at) : NULL;
    if (unlikely(!frame)) {
        loop_leave(l, nested);
        return send_with(handle, msg, o);
    }
    framed_count(l, s, bytes);
    framed_put(frame, at, msg->data, (uint32_t)bytes, FRAME_DATA, 0);
    return framed_leave(l, msg, nested);
}

int sluice_send(sluice_session handle, sluice_msg *msg, const sluice_send_options *o) {
    return o ? send_more(handle, msg, o) : send_plain(handle, msg);
}

/* What framed_submit_copy() leaves: by way of a message. */
static __attribute__((noinline)) int copy_other(sluice_session handle, const void *data,
                                                size_t bytes, const sluice_send_options *o) {
    if (forked_id(handle.id))
        return SLUICE_EFORKED;
    if (!data && bytes > 0)
        return SLUICE_EINVAL;
    struct session *s = session_table_find(handle.id);
    if (!s)
        return SLUICE_ECLOSED;
    /* The owner needs no pin: while it is inside, only it could end the session. */
    struct sluice_loop *l = atomic_load_explicit(&s->loop, memory_order_relaxed);
    bool nested, own = l && loop_enter(l, &nested);
    if (!own && !session_ref_tryget(&s->ref, (uint32_t)handle.id, SESSION_REF_OPEN, 0))
        return SLUICE_ECLOSED;
    bool up = !own || (session_accepts(s) &&
                       atomic_load_explicit(&s->id, memory_order_relaxed) == handle.id);
    sluice_node *node = s->node;
    uint64_t max = s->tx.message_max;
    if (own)
        loop_leave(l, nested);
    else
        session_ref_put(&s->ref);
    if (!up)
        return SLUICE_ECLOSED;
    if (bytes > max)
        return SLUICE_EMSGSIZE;
    sluice_msg *msg = message_get(node->pool, bytes);
    int status = likely(msg != NULL) ? SLUICE_OK : alloc_wait_get_for(handle, bytes, &msg);
    if (status != SLUICE_OK)
        return status;
    if (bytes > 0)
        memcpy(sluice_data(msg), data, bytes);
    status = sluice_send(handle, msg, o);
    if (status != SLUICE_OK)
        sluice_free(msg);
    return status;
}

static __attribute__((noinline)) int copy_plain(sluice_session handle, const void *data,
                                                size_t bytes) {
    if (likely(data && forked_bits() == 0) && likely(framed_submit_copy(handle.id, data, bytes)))
        return SLUICE_OK;
    return copy_other(handle, data, bytes, NULL);
}

/* As send_with(). */
static __attribute__((noinline)) int copy_with(sluice_session handle, const void *data,
                                               size_t bytes, const sluice_send_options *o) {
    struct framed_options is = framed_options(o);
    if (unlikely(!is.plain || is.tag))
        return copy_other(handle, data, bytes, o);
    if (!is.more)
        return copy_plain(handle, data, bytes);
    if (likely(data && forked_bits() == 0) &&
        likely(framed_submit_copy_more(handle.id, data, bytes)))
        return SLUICE_OK;
    return copy_other(handle, data, bytes, o);
}

/* As send_more(). */
static __attribute__((noinline)) int copy_more(sluice_session handle, const void *data,
                                               size_t bytes, const sluice_send_options *o) {
    struct framed_options is = framed_options(o);
    struct sluice_loop *l;
    struct session *s;
    uint32_t at;
    bool nested;
    if (unlikely(!data || !is.plain || is.tag || !is.more || forked_bits() != 0) ||
        unlikely(bytes > COPY_SHORT_MAX) || unlikely(!(s = framed_enter(handle.id, &l, &nested))))
        return copy_with(handle, data, bytes, o);
    struct sluice_msg *frame = framed_open(s, handle.id, bytes, &at);
    if (unlikely(!frame)) {
        loop_leave(l, nested);
        return copy_with(handle, data, bytes, o);
    }
    framed_count(l, s, bytes);
    framed_put(frame, at, data, (uint32_t)bytes, FRAME_DATA, 0);
    loop_leave(l, nested);
    return SLUICE_OK;
}

int sluice_send_copy(sluice_session handle, const void *data, size_t bytes,
                     const sluice_send_options *o) {
    return o ? copy_more(handle, data, bytes, o) : copy_plain(handle, data, bytes);
}
