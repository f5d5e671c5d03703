/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * reply_hostile_test.c - replies that break the rules, in the room that a request brought for one: their session ends,
 * and the receives that sessions share are counted as before. One that was counted and is not there would be missed by
 * another session.
 */
#include "support/pair.h"
#include "datapath/tx/post.h"

#define ITEM(type, length) ((uint64_t)(type) | (uint64_t)(length) << 32)

static const struct forged {
    enum frame_type type;
    uint64_t total;
    uint32_t length;
    uint64_t word[2];
} forged[] = {
    {FRAME_REPLY, 0xff00, 8, {0}},              /* to nothing */
    {FRAME_REPLY, 1ull << 32 | 0x100, 8, {0}},  /* a code, and more */
    {FRAME_REPLY, 17ull << 32 | 0x100, 0, {0}}, /* a code that there is not */
    {FRAME_COALESCED, 0, 16, {ITEM(FRAME_DATA, 0)}},
    {FRAME_COALESCED, 0, 16, {ITEM(FRAME_REPLY, 0), 0xff00}},
    {FRAME_RTS, 100000, FRAME_RTS_BYTES, {(uint64_t)FRAME_DATA << 16 | 2 << 24}},
};

static void post(struct pair *p, const struct forged *f) {
    const struct frame frame = {
        .type = (uint8_t)f->type, .flags = FRAME_RESERVED, .length = f->length, .total = f->total};
    uint8_t payload[FRAME_RTS_BYTES] = {0};
    for (unsigned i = 0; i < 2; i++) {
        uint64_t word = htole64(f->word[i]);
        memcpy(payload + 8 * i, &word, sizeof word);
    }
    pair_session(&p->b)->connection->tx.sequence++;
    sluice_msg *msg = pair_forge(&p->b, &frame, payload, sizeof payload);
    sluice_free(msg); /* nobody takes it before the bytes are gone: the test allocates no more */
}

static void ask(struct pair *p) {
    sluice_msg *msg;
    assert_int_equal(sluice_alloc(p->a.node, 8, &msg), 0);
    assert_int_equal(sluice_request(p->a.session, msg, SLUICE_SEND(.tag = 1)), 0);
    pair_expect(p, &p->b, SLUICE_REQUEST);
}

static sluice_event expect_closed(struct pair *p, struct side *side) {
    sluice_event event;
    do
        assert_true(pair_next(p, side, &event));
    while (event.type != SLUICE_CLOSED);
    return event;
}

TEST(a_wrong_reply_takes_no_receive_from_others) {
    struct pair p;
    pair_open(&p, PAIR_NODE(.log = NULL), PAIR_LINK());
    const struct recv_queue *shared = &p.a.loop->srq.queue;
    for (unsigned i = 0; shared->srq && i < sizeof forged / sizeof forged[0]; i++) {
        pair_connect(&p, PAIR_LINK());
        ask(&p);
        post(&p, &forged[i]);
        assert_int_equal(expect_closed(&p, &p.a).reason, SLUICE_REASON_PROTOCOL);
        expect_closed(&p, &p.b);
        assert_int_equal(shared->posted, shared->spare); /* there is no session any more */
    }
    pair_close(&p);
}
