/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Each technique of the data path can be left out, and all of them: what arrives is the same. */
#include "support/pair.h"

static void traffic_without(uint32_t without) {
    enum { COUNT = 600 };
    static const size_t sizes[] = {64, 0, 65, 64, 8, 200, 1000, 64, 9000, 64, 4000, 20000};
    const unsigned kinds = sizeof sizes / sizeof *sizes;
    struct pair p;
    unsigned sent[2] = {0}, received[2] = {0}, outcomes[2] = {0}, tagged[2] = {0};
    bool told[2][COUNT + 1] = {{0}};
    if (without & WITHOUT_WR_BATCH) /* a key and what tells it are always posted together */
        without |= WITHOUT_RENDEZVOUS;
    pair_without(without);
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    pair_connect(&p, PAIR_LINK(.window_messages = 50));
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while ((received[0] < COUNT || received[1] < COUNT || outcomes[0] < tagged[0] ||
            outcomes[1] < tagged[1]) &&
           env_now(&env_default) < limit) {
        for (unsigned k = 0; k < 2; k++) {
            struct side *side = k ? &p.b : &p.a;
            sluice_event events[16];
            for (; sent[k] < COUNT; sent[k]++) {
                bool tag = sent[k] % 5 == 0;
                if (pair_send(side, sizes[sent[k] % kinds], sent[k],
                              SLUICE_SEND(.tag = tag ? sent[k] + 1 : 0,
                                          .flags = sent[k] % 6 ? SLUICE_MORE : 0)) != 0)
                    break;
                tagged[k] += tag;
            }
            int n = sluice_poll(side->loop, events, 16, 0);
            for (int i = 0; i < n; i++) {
                if (events[i].type == SLUICE_SENT) {
                    assert_int_equal(events[i].status, 0);
                    /* Each once; that of a large message is not in line. */
                    must_data_equal(events[i].tag % 5, 1);
                    must_data(events[i].tag >= 1 && events[i].tag <= COUNT);
                    must_data(!told[k][events[i].tag]);
                    told[k][events[i].tag] = true;
                    outcomes[k]++;
                } else if (events[i].type == SLUICE_MESSAGE) {
                    unsigned at = received[k]++;
                    assert_true(pair_check(events[i].msg, sizes[at % kinds], at));
                }
            }
        }
    }
    must_data_equal(received[0], COUNT);
    must_data_equal(received[1], COUNT);
    const struct loop_totals *t = &p.a.loop->totals;
    if (without & WITHOUT_WR_BATCH)
        assert_int_equal(t->posts, t->send_wrs);
    if (without & WITHOUT_COALESCE)
        assert_true(t->frames_sent >= t->messages_sent);
    else if (!(without & WITHOUT_WR_BATCH))
        assert_true(t->posts < t->messages_sent);
    if (without & WITHOUT_INLINE)
        assert_int_equal(pair_session(&p.a)->connection->sq.inline_max, 0);
    if (without & WITHOUT_SIGNALLING)
        assert_int_equal(pair_session(&p.a)->connection->sq.signal_every, 1);
    if (without & WITHOUT_WC_BATCH)
        assert_int_equal(p.a.loop->wc_max, 1);
    pair_close(&p);
}

TEST(traffic_passes_without_each_technique) {
    for (uint32_t bit = 1; bit <= WITHOUT_ALL; bit <<= 1)
        traffic_without(bit);
}

TEST(traffic_passes_without_any_technique) {
    traffic_without(WITHOUT_ALL);
    traffic_without(0);
}

/* Like Soft-RoCE: each session has its own receives, and one poll finds messages of several. */
TEST(completions_of_many_sessions_in_one_poll_need_no_shared_receives) {
    enum { SESSIONS = 4 };
    struct pair p;
    struct side dialed[SESSIONS];
    pair_without(WITHOUT_SRQ);
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    for (unsigned i = 0; i < SESSIONS; i++) {
        pair_connect(&p, PAIR_LINK());
        dialed[i] = p.b;
    }
    assert_null(p.a.loop->srq.queue.srq);
    /* Which are found together is chance where each comes by a socket of its own, and so is which is first. */
    bool together = false;
    for (unsigned round = 0; round < 1000 && !together; round++) {
        unsigned missing = (1u << SESSIONS) - 1;
        for (unsigned i = 0; i < SESSIONS; i++)
            assert_int_equal(pair_send(&dialed[i], 64, i, NULL), 0);
        uint64_t before = p.a.loop->totals.polls;
        for (unsigned i = 0; i < SESSIONS; i++) {
            sluice_msg *msg = pair_expect(&p, &p.a, SLUICE_MESSAGE).msg;
            uint8_t from = *(const uint8_t *)sluice_data(msg); /* byte 0 of pattern i is i */
            assert_true(from < SESSIONS && (missing & 1u << from) != 0);
            assert_true(pair_check(msg, 64, from));
            missing &= ~(1u << from);
        }
        together = p.a.loop->totals.polls - before < SESSIONS;
    }
    assert_true(together);
    pair_close(&p);
}
