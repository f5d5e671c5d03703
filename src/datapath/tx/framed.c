/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * framed.c - how many plain messages may go without another look (framed.h).
 */
#include "datapath/tx/framed.h"
#include "base/less.h"

uint16_t framed_end(const struct session *s) {
    const struct connection *c = session_connection(s);
    uint64_t inlined = c->sq.inline_max;
    if (inlined < FRAME_BYTES)
        return 0;
    uint64_t most = s->node->fabric->framed_most(c->extended, (uint32_t)inlined);
    return most > 0 ? (uint16_t)(less(most, less(s->tx.message_max, s->tx.frame_payload)) + 1) : 0;
}

bool framed_tokens(struct session *s) {
    const struct connection *c = session_connection(s);
    uint64_t own = atomic_load_explicit(&s->window.own_messages, memory_order_relaxed);
    uint64_t own_bytes = atomic_load_explicit(&s->window.own_bytes, memory_order_relaxed);
    uint64_t tokens = 0;
    if (connection_keeps(c)) { /* unacked_framed() looks itself */
        s->tokens = s->state == SESSION_UP && !s->tx.queue.head;
        return s->tokens;
    }
    if (s->state == SESSION_UP && !s->tx.queue.head && s->framed_end > 0 &&
        c->tx.credits > c->tx.reserve && sq_used(c) < c->sq.quick && own < s->window.messages &&
        own_bytes < s->window.bytes) {
        tokens = less(c->tx.credits - c->tx.reserve, c->sq.quick - sq_used(c));
        tokens = less(tokens, s->window.messages - own);
        tokens = less(tokens, (s->window.bytes - own_bytes) / s->framed_end);
    }
    s->tokens = (uint16_t)less(tokens, UINT16_MAX);
    return tokens > 0;
}

int framed_leave_slow(struct sluice_loop *l, struct sluice_msg *msg) {
    if (msg)
        framed_done(l, msg);
    else
        pool_look(l->pool, l->cache);
    loop_leave(l, atomic_load_explicit(&l->poll_busy, memory_order_relaxed) != 0);
    return SLUICE_OK;
}

bool framed_behind(struct sluice_loop *l, struct session *s, uint64_t id, const uint8_t *data,
                   uint64_t bytes, bool more) {
    loop_assert_inside(l);
    return framed_append(l, s, id, data, bytes, more);
}
