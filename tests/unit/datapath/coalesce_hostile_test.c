/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A pack that is not right, or is not any more when it is opened, delivers nothing of it and ends its session. */
#include "support/pair.h"
#include "support/pool_stats.h"

#include "datapath/tx/coalesce.h"
#include "datapath/tx/post.h"

#define ITEM(type, length) ((uint64_t)(type) | (uint64_t)(length) << 32)

static const struct hostile {
    const char *name;
    unsigned bytes, flags;
    uint64_t words[12];
} hostile[] = {
    {"shorter than an item", 8, 0, {ITEM(FRAME_DATA, 0)}},
    {"an item longer than the frame", 24, 0, {ITEM(FRAME_DATA, 9)}},
    {"an item of 4 GiB", 24, 0, {ITEM(FRAME_DATA, UINT32_MAX)}},
    {"a length that wraps", 24, 0, {ITEM(FRAME_DATA, UINT32_MAX - 15)}},
    {"a second item cut off", 40 - 8, 0, {ITEM(FRAME_DATA, 8), 0, 0, ITEM(FRAME_DATA, 0)}},
    {"bytes behind the last item", 24, 0, {ITEM(FRAME_DATA, 7)}},
    {"a word behind the last item", 24, 0, {ITEM(FRAME_DATA, 0)}},
    {"type 0", 16, 0, {ITEM(0, 0)}},
    {"a pack in a pack", 16, 0, {ITEM(FRAME_COALESCED, 0)}},
    {"a fragment", 24, 0, {ITEM(FRAME_FRAG, 8), 8}},
    {"a control frame", 16, 0, {ITEM(FRAME_BYE, 0)}},
    {"bytes next to the type", 16, 0, {ITEM(FRAME_DATA | 0x100, 0)}},
    {"a message with a total", 16, 0, {ITEM(FRAME_DATA, 0), 1}},
    {"bytes between items", 40, 0, {ITEM(FRAME_DATA, 1), 0, 0x100, ITEM(FRAME_DATA, 0)}},
    {"a wrong item behind good ones", 48, 0, {ITEM(1, 0), 0, ITEM(1, 0), 0, ITEM(99, 0)}},
};

TEST(a_pack_that_is_wrong_delivers_nothing) {
    for (unsigned i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        const struct hostile *h = &hostile[i];
        struct pair p;
        pair_open(&p, PAIR_NODE(.log = NULL), PAIR_LINK());
        pair_connect(&p, PAIR_LINK());
        struct session *b = pair_session(&p.b);
        b->connection->tx.sequence++;
        assert_true(send_control_with(p.b.loop, b, FRAME_COALESCED, h->words, h->bytes));
        sluice_event event = {0};
        assert_true(pair_next(&p, &p.a, &event));
        if (event.type != SLUICE_CLOSED || event.reason != SLUICE_REASON_PROTOCOL)
            fail_msg("%s: %s", h->name, sluice_event_name(event.type));
        assert_int_equal(pool_in_use(p.a.node->pool), 0);
        pair_close(&p);
    }
}

TEST(requests_and_replies_are_known_in_packs) {
    struct coalesce_item item;
    uint64_t words[] = {ITEM(FRAME_REQUEST, 8), 77, 5, ITEM(FRAME_REPLY, 3), 78, 5};
    const uint8_t *payload = (const uint8_t *)words;
    assert_null(coalesce_item_get(&item, payload, 43, 0, false));
    assert_int_equal(item.type, FRAME_REQUEST);
    assert_int_equal(item.total, 77);
    assert_int_equal(item.at, 16);
    assert_int_equal(item.next, 24);
    assert_null(coalesce_item_get(&item, payload, 43, 24, true));
    assert_int_equal(item.type, FRAME_REPLY);
    assert_int_equal(item.length, 3);
    assert_int_equal(item.next, 43);
    assert_non_null(coalesce_item_get(&item, payload, 43, 0, true)); /* no place for a request */
}

/* A peer that can write to the frame does so after it was checked. */
TEST(a_pack_that_changes_while_it_waits_ends_the_session) {
    const struct {
        unsigned word;
        uint64_t value;
    } changes[] = {{4, ITEM(FRAME_DATA, 9000)},
                   {4, ITEM(FRAME_COALESCED, 8)},
                   {5, 1},
                   {4, ITEM(FRAME_DATA, 64)},
                   {4, ITEM(FRAME_DATA, UINT32_MAX)}};
    for (unsigned i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct pair p;
        sluice_event event;
        pair_open(&p, PAIR_NODE(), PAIR_LINK());
        pair_connect(&p, PAIR_LINK());
        for (unsigned k = 0; k < 3; k++) /* waiting together, and then posted */
            assert_int_equal(
                pair_send(&p.b, 16, 1 + k, k < 2 ? SLUICE_SEND(.flags = SLUICE_MORE) : NULL), 0);
        event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        struct session *a = pair_session(&p.a);
        assert_non_null(a->rx.held.head);
        uint64_t *words = (uint64_t *)(void *)a->rx.held.head->data;
        words[changes[i].word] = changes[i].value;
        event = pair_expect(&p, &p.a, SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_PROTOCOL);
        assert_int_equal(pool_in_use(p.a.node->pool), 0);
        pair_close(&p);
    }
}
