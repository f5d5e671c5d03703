/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * coalesce.c - frames that carry several small messages, requests and replies: filling them.
 *
 * Messages that wait in a queue at the moment it is flushed share a frame, if they are small: their
 * bytes are copied behind each other into one buffer, and the buffers they came in go back at once.
 * No message waits for a frame to fill. Messages with an outcome hang on the frame's entry of
 * the send queue, in a list; the window is counted there too, apart for the loop's thread and other threads.
 *
 * The receiving side of such a frame: rx/coalesced.c.
 *
 * Owner: the loop's thread.
 */
#include <string.h>

#include "datapath/tx/coalesce.h"
#include "base/less.h"
#include "common/copy_short.h"
#include "core/wire/frame.h"
#include "datapath/loop/events.h"
#include "datapath/tx/post.h"
#include "core/context.h"
#include "core/techniques.h"
#include "datapath/loop/loop.h"
#include "datapath/rpc/client.h"
#include "datapath/tx/send.h"

/*
 * Up to here copying a message costs less than a frame of its own does. Two always fit a frame.
 */
#define COALESCE_BYTES_MAX 512u /* measured (sluice-bw): to copy more costs more than a frame */

/* An entry's `bytes`: how many messages, and how many bytes of them; own ones and foreign ones. */
#define COALESCE_COUNT_BITS 10
#define COALESCE_SIZE_BITS 17
#define COALESCE_ITEMS_MAX ((1u << COALESCE_COUNT_BITS) - 1)
_Static_assert(2 * (COALESCE_COUNT_BITS + COALESCE_SIZE_BITS) <= SQ_WHAT_SHIFT,
               "counts fit an entry");
_Static_assert(COALESCE_OPEN_BYTES / COALESCE_ITEM_BYTES <= COALESCE_ITEMS_MAX,
               "a frame that is open cannot have too many");
_Static_assert((1u << COALESCE_SIZE_BITS) > 65536, "a frame's bytes fit their count");

void coalesce_begin(struct session *s) {
    s->tx.open_bytes = (uint16_t)less(s->tx.frame_payload, COALESCE_OPEN_BYTES);
    s->tx.coalesce_bound = 0;
    if (!(s->node->options.without & WITHOUT_COALESCE))
        s->tx.coalesce_bound = (uint16_t)(less(s->tx.frame_payload / 4, COALESCE_BYTES_MAX) + 1);
}

/* ---- sending --------------------------------------------------------------------------------- */

struct coalescing {
    struct sluice_msg *frame;
    uint32_t at;                          /* end of what is in it */
    uint32_t count;                       /* of messages */
    uint64_t window;                      /* what the entry gives back: see COALESCE_COUNT_BITS */
    struct sluice_msg *told, **told_tail; /* those that hear of the frame's completion */
    bool opened;                          /* it was in the queue, and its first item is a message */
};

struct sluice_msg *coalesce_open(struct sluice_loop *l, struct session *s,
                                 struct msg_queue *queue) {
    loop_assert_inside(l);
    struct sluice_msg *frame = message_of(pool_get(l->pool, l->cache, s->tx.open_bytes));
    if (!frame)
        return NULL;
    frame->state = MSG_SENDING;
    frame->kind = MSG_FRAME;
    frame->size = 0;
    frame->foreign = false;
    frame->tx.tag = frame->tx.deadline_ns = frame->tx.sent = 0;
    frame->tx.end = frame->tx.id = 0;
    msg_queue_push(queue, frame);
    session_disturb(s);
    loop_dirty(l, s);
    return frame;
}

/* Goes on with the frame at the head of the queue. Returns how long it may become. */
static uint32_t take_opened(struct sluice_loop *l, const struct session *s, struct coalescing *p,
                            struct msg_queue *queue) {
    struct sluice_msg *frame = msg_queue_pop(queue);
    p->frame = frame;
    p->at = frame->tx.end;
    p->count = frame->tx.items;
    uint32_t counted = frame->tx.items - frame->tx.requests;
    p->window = counted | frame->size << COALESCE_COUNT_BITS;
    p->opened = true;
    l->totals.messages_sent += counted; /* requests were counted as they came */
    l->totals.bytes_sent += frame->size;
    return s->tx.open_bytes;
}

void coalesce_unsent(struct sluice_loop *l, struct session *s, const struct sluice_msg *frame) {
    loop_assert_inside(l);
    struct coalesce_item item = {0};
    while (item.next < frame->tx.end &&
           !coalesce_item_get(&item, frame->data, frame->tx.end, item.next, false))
        if (item.type == FRAME_REQUEST) {
            rpc_client_unposted(s, (uint32_t)item.total);
            l->totals.messages_sent--;
            l->totals.bytes_sent -= item.length;
        }
}

/* How long a frame is that takes as many of these as there are and fit. */
static uint32_t measure(const struct session *s, const struct sluice_msg *msg) {
    uint32_t end = 0;
    for (unsigned count = 0; msg && count < COALESCE_ITEMS_MAX && coalesce_accepts(s, msg);
         count++) {
        uint32_t next = coalesce_round(end) + COALESCE_ITEM_BYTES + (uint32_t)msg->size;
        if (next > s->tx.frame_payload)
            break;
        end = next;
        msg = msg->next;
    }
    return end;
}

static void put_item(struct sluice_loop *l, struct coalescing *p, struct sluice_msg *msg,
                     uint64_t total) {
    static const uint8_t types[] = {
        [MSG_PLAIN] = FRAME_DATA, [MSG_REQUEST] = FRAME_REQUEST, [MSG_REPLY] = FRAME_REPLY};
    uint32_t size = (uint32_t)msg->size, at = coalesce_round(p->at);
    bool foreign = msg->foreign;
    uint64_t *word = (uint64_t *)(void *)(p->frame->data + at);
    word[0] = htole64(types[msg->kind] | (uint64_t)size << 32);
    word[1] = htole64(total);
    if (size & 7)
        word[2 + size / 8] = 0; /* no old bytes of the buffer lie between two items */
    copy_short((uint8_t *)(word + 2), msg->data, size);
    p->at = at + COALESCE_ITEM_BYTES + size;
    p->count++;
    l->totals.messages_sent++;
    l->totals.bytes_sent += size;
    if (msg->kind == MSG_REQUEST) {
        rpc_client_copied(msg); /* it counts until its outcome, and needs no frame for that */
        return;
    }
    p->window += (1ull | (uint64_t)size << COALESCE_COUNT_BITS)
                 << (foreign ? COALESCE_COUNT_BITS + COALESCE_SIZE_BITS : 0);
    if (msg->tx.tag == 0) {
        msg_discard(l, msg);
        return;
    }
    msg->next = NULL;
    *p->told_tail = msg;
    p->told_tail = &msg->next;
}

/* False: the head of the queue waits for something. */
static bool fill(struct sluice_loop *l, struct session *s, struct coalescing *p, uint32_t bytes,
                 struct msg_queue *queue) {
    struct sluice_msg *msg;
    while ((msg = queue->head) && p->count < COALESCE_ITEMS_MAX && coalesce_accepts(s, msg)) {
        if (msg->tx.deadline_ns && l->now_ns >= msg->tx.deadline_ns) {
            finish_unsent(l, s, msg_queue_pop(queue), SLUICE_ETIMEDOUT);
            continue;
        }
        if (coalesce_round(p->at) + COALESCE_ITEM_BYTES + msg->size > bytes)
            return true;
        uint64_t total = 0;
        if (msg->kind != MSG_PLAIN && !rpc_client_assign(l, s, msg, &total))
            return false;
        put_item(l, p, msg_queue_pop(queue), total);
    }
    return true;
}

static void post_coalesced(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                           const struct coalescing *p, bool reserved) {
    struct connection *c = session_connection(s);
    struct sluice_msg *frame = p->frame;
    /* Opened for more, and none came: its only message goes as one does. */
    bool alone = p->opened && p->count == 1;
    uint32_t skip = alone ? COALESCE_ITEM_BYTES : 0, bytes = p->at - skip;
    uint8_t *at = frame->data + skip - FRAME_BYTES;
    const uint64_t *first = (const uint64_t *)(const void *)frame->data;
    unsigned type = alone ? (uint8_t)le64toh(first[0]) : FRAME_COALESCED;
    uint64_t total = alone ? le64toh(first[1]) : 0;
    bool inlined = bytes + FRAME_BYTES <= c->sq.inline_max;
    l->send_sge[batch->count][0] =
        (struct ibv_sge){(uintptr_t)at, bytes + FRAME_BYTES, frame->lkey};
    struct ibv_send_wr *wr = wr_batch_add(l, s, batch, 1, inlined ? IBV_SEND_INLINE : 0);
    c->tx.sequence++;
    post_header(c, at, type, reserved ? FRAME_RESERVED : 0, bytes, total);
    if (!reserved)
        c->tx.credits--;
    frame->next = p->told;
    wr_batch_entry(s, inlined ? p->told : frame, p->window | SQ_COUNTED, SQ_COALESCED);
    if (inlined)
        batch->done[batch->done_count++] = frame;
    if (!inlined || p->told)
        batch->waited_for = true;
    c->sq.unsignalled += p->count - 1; /* signal_every is in messages: the window is */
    wr_batch_signal(s, batch, wr);
}

enum build_result coalesce_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                 struct msg_queue *queue) {
    loop_assert_inside(l);
    struct coalescing p = {0};
    uint32_t bytes;
    p.told_tail = &p.told;
    if (queue->head->kind == MSG_FRAME) {
        bytes = take_opened(l, s, &p, queue);
    } else {
        bytes = measure(s, queue->head);
        p.frame = message_of(pool_get(l->pool, l->cache, coalesce_round(bytes)));
    }
    if (!p.frame) { /* then each by itself: that needs no memory */
        enum build_result built = wr_batch_message(l, s, batch, queue->head);
        if (built == BUILD_DONE)
            msg_queue_pop(queue);
        return built == BUILD_DONE ? BUILD_PARTIAL : built;
    }
    p.frame->state = MSG_SENDING;
    p.frame->tx.tag = 0;
    p.frame->kind = MSG_PLAIN;
    bool free = fill(l, s, &p, bytes, queue);
    if (p.count == 0) {
        msg_discard(l, p.frame);
        return free ? BUILD_PARTIAL : BUILD_NONE;
    }
    post_coalesced(l, s, batch, &p, queue == &s->tx.replies);
    return BUILD_PARTIAL;
}

static void release_share(struct session *s, uint64_t share, bool foreign) {
    uint32_t count = (uint32_t)share & COALESCE_ITEMS_MAX;
    if (count > 0)
        window_release(s, count, share >> COALESCE_COUNT_BITS & ((1u << COALESCE_SIZE_BITS) - 1),
                       foreign);
}

void coalesce_completed(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                        uint64_t bytes, sluice_status status) {
    loop_assert_inside(l);
    release_share(s, bytes, false);
    release_share(s, bytes >> (COALESCE_COUNT_BITS + COALESCE_SIZE_BITS), true);
    for (struct sluice_msg *next; msg; msg = next) {
        next = msg->next;
        if (msg->tx.tag)
            event_outcome(l, s, msg, status);
        else
            msg_discard(l, msg); /* the frame itself */
    }
}
