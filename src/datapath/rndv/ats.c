/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ats.c - tells the peer which of its large messages are here, so that their memory and their numbers are its own
 * again.
 *
 * The numbers are gathered, and told together: by an RTS that goes to that peer anyway, or by an ATS at the end of the
 * turn. An application that answers a large message with a large one does so before its next poll, so what such a session
 * has taken waits for that RTS: in_kind. If none was sent when the next turn begins, an ATS tells it in that turn, and
 * the session waits no more until a large message follows upon an ATS again.
 *
 * A number is in use until it was told.
 *
 * Owner: the loop's thread.
 */
#include "core/context.h"
#include "core/wire/frame.h"
#include "datapath/loop/loop.h"
#include "datapath/rndv/internal.h"
#include "datapath/rndv/rndv.h"
#include "datapath/tx/post.h"

static uint32_t turn(const struct sluice_loop *l) {
    return atomic_load_explicit(&l->progress_count, memory_order_relaxed);
}

/* Until the next turn begins. */
static void wait_for_rts(struct sluice_loop *l, struct session *s) {
    if (s->rndv->is_late)
        return;
    s->rndv->is_late = true;
    s->rndv->late_next = l->late;
    l->late = s;
}

void rndv_answer_late(struct sluice_loop *l) {
    loop_assert_inside(l);
    for (struct session *s; (s = l->late);) {
        l->late = s->rndv->late_next;
        s->rndv->is_late = false;
        if (!s->rndv->taken)
            continue;
        s->rndv->in_kind = false;
        rndv_dirty(l, s);
    }
}

void rndv_answer_forget(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (!s->rndv->is_late)
        return;
    struct session **link = &l->late;
    while (*link != s)
        link = &(*link)->rndv->late_next;
    *link = s->rndv->late_next;
}

void rndv_leave(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    if (s->rndv->is_late)
        rndv_answer_forget(l, s);
    s->rndv->is_late = s->rndv->in_kind = false;
    s->rndv->told_turn = 0;
}

static bool is_gathered(const struct session *s, const struct rndv_rx *a) {
    return a->outcome == RNDV_OUTCOME_OK && rndv_agreed_answers(s);
}

static void gather(struct rndv *r, struct rndv_rx *a) {
    r->taken |= UINT32_C(1) << a->number;
    rndv_rx_release(r, a);
}

bool rndv_answer_at_once(struct sluice_loop *l, struct session *s, struct rndv_rx *a) {
    loop_assert_inside(l);
    if (!is_gathered(s, a) || !rndv_rx_may_release(s->rndv, a))
        return false;
    gather(s->rndv, a);
    if (!s->rndv->in_kind)
        return false;
    wait_for_rts(l, s);
    return true;
}

static bool send_ats(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                     uint64_t numbers, uint64_t outcome) {
    uint32_t lkey;
    const struct frame f = {.type = FRAME_ATS, .total = outcome << 32 | numbers};
    if (!rndv_room_control(l, s, batch))
        return false;
    if (batch->count == 0 && rndv_post_words(l, s, f, NULL))
        return true;
    if (!wr_batch_header(l, s, &lkey)) {
        session_block(s);
        return false;
    }
    return rndv_post_frame(l, s, batch, f, NULL);
}

void rndv_answer(struct sluice_loop *l, struct session *s, struct wr_batch *batch,
                 struct rndv_rx *a) {
    loop_assert_inside(l);
    if (!rndv_rx_may_release(s->rndv, a))
        return; /* what is delivered makes the session dirty */
    if (is_gathered(s, a))
        gather(s->rndv, a);
    else if (send_ats(l, s, batch, a->number, a->outcome))
        rndv_rx_release(s->rndv, a);
}

void rndv_answer_flush(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    if (r->in_kind) {
        wait_for_rts(l, s);
        return;
    }
    bool one = (r->taken & (r->taken - 1)) == 0;
    if (send_ats(l, s, batch, one ? (uint64_t)__builtin_ctz(r->taken) : r->taken,
                 one ? RNDV_OUTCOME_OK : RNDV_OUTCOME_SEVERAL)) {
        r->taken = 0;
        r->told_turn = turn(l);
    }
}

void rndv_answer_refused(struct sluice_loop *l, struct session *s, struct wr_batch *batch) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    while (r->refuse != 0 &&
           send_ats(l, s, batch, (uint64_t)__builtin_ctz(r->refuse), RNDV_OUTCOME_NO_MEMORY))
        r->refuse &= r->refuse - 1;
}

uint32_t rndv_answer_take(struct sluice_loop *l, struct session *s) {
    loop_assert_inside(l);
    struct rndv *r = s->rndv;
    uint32_t numbers = r->taken;
    r->in_kind |= numbers != 0 || r->told_turn == turn(l);
    r->taken = 0;
    return numbers;
}
