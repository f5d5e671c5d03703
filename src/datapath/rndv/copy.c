/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * copy.c - large messages of the peer that lie in memory both sides have mapped: copied by this side, with no key and no
 * work request. A short one is copied when its announcement arrives and delivered in its place; the others at the end of
 * turns, a share of their bytes in each.
 *
 * Owner: the loop's thread. What the peer says of its memory is checked by the device (fabric.h, fetch).
 */
#include <errno.h>

#include "datapath/rndv/copy.h"
#include "core/context.h"
#include "datapath/rx/landing.h"
#include "datapath/loop/upward.h"
#include "datapath/tx/post.h"
#include "fabric/fast.h"

/* The next so many bytes; the error of fabric_fetch(). */
static int copy_part(struct sluice_loop *l, struct session *s, struct rndv_rx *a, uint32_t bytes) {
    uint32_t lkey;
    uint8_t *at = rndv_rx_place(a, &lkey) + a->offset;
    struct ibv_sge to = {(uintptr_t)at, bytes, lkey};
    int error = fabric_fetch(l->node->fabric, session_connection(s)->qp, a->rkey,
                             a->address + a->offset, &to);
    a->offset += error == 0 ? bytes : 0;
    return error;
}

/* The peer, or the memory of this side, is not what it was said to be. */
static void copy_failed(struct sluice_loop *l, struct session *s, int error) {
    if (error == EINVAL)
        session_close(l, s, SLUICE_REASON_PROTOCOL, 0, "an RTS of memory that is not shared");
    else
        session_close(l, s, SLUICE_REASON_DEVICE_ERROR, (uint32_t)error,
                      "the memory for a large message cannot be written");
}

void rndv_copy_at_once(struct sluice_loop *l, struct session *s, struct rndv_rx *a) {
    loop_assert_inside(l);
    struct sluice_msg *landing = landing_passing(l, s, a->bytes);
    if (!landing)
        return; /* it is looked for, and copied to, at the end of the turn */
    a->landing = landing;
    if (copy_part(l, s, a, (uint32_t)a->bytes) == 0) {
        a->answer = true;
        a->state = RNDV_RX_HERE;
        return;
    }
    a->landing = NULL;
    msg_discard(l, landing);
}

bool rndv_copy_some(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                    struct rndv_rx *a, uint32_t *left) {
    const struct connection *c = session_connection(s);
    loop_assert_inside(l);
    uint32_t bytes = rndv_chunk(s, a->bytes, a->offset);
    bytes = bytes < *left ? bytes : *left;
    int error = bytes ? copy_part(l, s, a, bytes) : 0;
    if (error != 0 && error != EAGAIN) {
        if (error == ECONNRESET)
            return false;           /* the device is about to say that the session ends */
        wr_batch_post(l, s, batch); /* over the connection that has their places */
        if (!rndv_is_over(s, c))
            copy_failed(l, s, error);
        return false;
    }
    if (a->offset == a->bytes) {
        rndv_rx_whole(l, s, a);
        return true;
    }
    *left -= error == 0 ? bytes : 0;
    s->rndv->goes_on |= error == 0;
    session_block(s);
    (void)loop_retry(l, s);
    return false;
}
