/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fragment.c - a message that does not fit a frame, in several: each a header of the session's ring of headers, and a slice
 * of the message.
 *
 * The first fragment of a message says how large it is. That of a request or a reply is a frame of that type, with its id
 * in the header, and the size in front of the slice. The entry of the last one has the message.
 */
#include "datapath/tx/fragment.h"

#include <endian.h>

#include "core/wire/frame.h"
#include "datapath/tx/post.h"

/* The first one's type, and what it has in front of the slice. */
static enum frame_type begin(const struct sluice_msg *msg, uint8_t *header, uint32_t *ahead) {
    if (msg->kind == MSG_PLAIN)
        return FRAME_FRAG;
    *(uint64_t *)(void *)(header + FRAME_BYTES) = htole64(msg->size);
    *ahead = FRAME_WHOLE_BYTES;
    return msg->kind == MSG_REQUEST ? FRAME_REQUEST : FRAME_REPLY;
}

static void end(struct session *s, struct wr_batch *batch, struct sluice_msg *msg) {
    if (msg->kind == MSG_REQUEST)
        wr_batch_entry(s, msg, msg->tx.id, SQ_REQUEST);
    else
        wr_batch_entry(s, msg, wr_batch_counted(msg), SQ_MESSAGE);
    batch->waited_for = true;
}

enum build_result fragment_build(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                                 struct sluice_msg *msg, uint64_t total) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    uint32_t lkey, ahead = 0;
    uint8_t *header = wr_batch_header(l, s, &lkey);
    if (!header)
        return BUILD_NONE;
    bool first = msg->tx.sent == 0;
    enum frame_type type = first ? begin(msg, header, &ahead) : FRAME_FRAG;
    uint64_t left = msg->size - msg->tx.sent;
    uint32_t room = s->tx.frame_payload - ahead, size = left < room ? (uint32_t)left : room;
    bool last = left == size, reserved = type == FRAME_REPLY;
    struct ibv_sge *sge = l->send_sge[batch->count];
    sge[0] = (struct ibv_sge){(uintptr_t)header, FRAME_BYTES + ahead, lkey};
    sge[1] = (struct ibv_sge){(uintptr_t)(msg->data + msg->tx.sent), size, msg->lkey};
    struct ibv_send_wr *wr = wr_batch_add(l, s, batch, 2, 0);
    c->tx.sequence++;
    unsigned flags =
        (first ? FRAME_FIRST : 0) | (last ? FRAME_LAST : 0) | (reserved ? FRAME_RESERVED : 0);
    post_header(c, header, type, flags, size + ahead, first ? total : 0);
    c->tx.credits -= !reserved;
    if (last)
        end(s, batch, msg);
    else
        wr_batch_entry(s, NULL, 0, SQ_MESSAGE);
    msg->tx.sent += size;
    wr_batch_signal(s, batch, wr);
    l->totals.messages_sent += last;
    l->totals.bytes_sent += size;
    return last ? BUILD_DONE : BUILD_PARTIAL;
}
