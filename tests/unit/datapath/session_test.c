/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Sessions: what is sent arrives once and in order, outcomes come exactly once, and each ends once. */
#include "support/pair.h"

/* ---- messages -------------------------------------------------------------------------------- */

TEST(every_size_arrives_whole) {
    struct pair p;
    pair_open(&p, PAIR_NODE(.eager_bytes = 1024, .message_bytes_max = 1000000), PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    sluice_session_info info = pair_info(p.b.session);
    assert_int_equal(info.eager_bytes, 1024 - FRAME_BYTES);
    assert_int_equal(info.message_bytes_max, 1000000);
    const size_t eager = info.eager_bytes;
    const size_t sizes[] = {0,         1,         63,    64,     256,    eager - 1, eager,
                            eager + 1, 2 * eager, 65536, 100000, 999999, 1000000};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct side *from = i & 1 ? &p.a : &p.b, *to = i & 1 ? &p.b : &p.a;
        assert_int_equal(pair_send(from, sizes[i], i, SLUICE_SEND(.tag = i + 1)), 0);
        sluice_event event = pair_expect(&p, to, SLUICE_MESSAGE);
        assert_int_equal(event.bytes, sizes[i]);
        assert_true(pair_check(event.msg, sizes[i], i));
        event = pair_expect(&p, from, SLUICE_SENT);
        must_data_equal(event.tag, i + 1);
        assert_int_equal(event.status, 0);
        assert_int_equal(event.bytes, sizes[i]);
    }
    pair_close(&p);
}

TEST(larger_than_the_cap_is_refused) {
    struct pair p;
    sluice_msg *msg;
    memset(&p, 0, sizeof p);
    pair_clock = 0;
    pair_open_side(&p.a, PAIR_NODE(.message_bytes_max = 65536));
    pair_open_side(&p.b, PAIR_NODE(.message_bytes_max = 1 << 20));
    pair_listen(&p, PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    assert_int_equal(sluice_alloc(p.b.node, (1 << 20) + 1, &msg), SLUICE_EMSGSIZE);
    assert_int_equal(sluice_alloc(p.b.node, 65537, &msg), 0);
    assert_int_equal(sluice_send(p.b.session, msg, NULL), SLUICE_EMSGSIZE);
    sluice_trim(msg, 65536); /* still mine */
    pair_fill(msg, 3);
    assert_int_equal(sluice_send(p.b.session, msg, NULL), 0);
    sluice_event event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 65536, 3));
    /* of another node */
    assert_int_equal(sluice_alloc(p.a.node, 8, &msg), 0);
    assert_int_equal(sluice_send(p.b.session, msg, NULL), SLUICE_EINVAL);
    sluice_free(msg);
    pair_close(&p);
}

TEST(order_is_kept_and_outcomes_come_once) {
    enum { COUNT = 3000 };
    struct pair p;
    unsigned sent = 0, received = 0, outcomes = 0;
    pair_open(&p, PAIR_NODE(.eager_bytes = 512), PAIR_LINK(.credits = 8));
    pair_connect(&p, PAIR_LINK(.credits = 5, .window_messages = 40));
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while ((received < COUNT || outcomes < COUNT) && env_now(&env_default) < limit) {
        sluice_event events[8];
        while (sent < COUNT) {
            uint32_t number = sent;
            size_t bytes = sent % 7 == 0 ? 2000 : 4 + sent % 300;
            sluice_msg *msg;
            assert_int_equal(sluice_alloc(p.b.node, bytes, &msg), 0);
            memset(sluice_data(msg), 0, bytes);
            memcpy(sluice_data(msg), &number, sizeof number);
            unsigned flags = sent % 3 ? SLUICE_MORE : 0;
            int status =
                sluice_send(p.b.session, msg, SLUICE_SEND(.tag = sent + 1, .flags = flags));
            if (status != 0) {
                assert_int_equal(status, SLUICE_EAGAIN);
                sluice_free(msg);
                break;
            }
            sent++;
        }
        int n = sluice_poll(p.b.loop, events, 8, 0);
        for (int i = 0; i < n; i++) {
            if (events[i].type == SLUICE_WRITABLE)
                continue;
            assert_int_equal(events[i].type, SLUICE_SENT);
            assert_int_equal(events[i].status, 0);
            must_data_equal(events[i].tag, ++outcomes);
        }
        n = sluice_poll(p.a.loop, events, 1 + (int)(received % 8), 0);
        for (int i = 0; i < n; i++) {
            uint32_t number;
            assert_int_equal(events[i].type, SLUICE_MESSAGE);
            memcpy(&number, sluice_data(events[i].msg), sizeof number);
            must_data_equal(number, received++);
        }
    }
    must_data_equal(received, COUNT);
    must_data_equal(outcomes, COUNT);
    pair_close(&p);
}

TEST(both_directions_at_full_window_do_not_deadlock) {
    enum { COUNT = 5000 };
    struct pair p;
    unsigned sent[2] = {0}, received[2] = {0};
    pair_open(&p, PAIR_NODE(.eager_bytes = 512), PAIR_LINK(.credits = 4));
    pair_connect(&p, PAIR_LINK(.credits = 4));
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while ((received[0] < COUNT || received[1] < COUNT) && env_now(&env_default) < limit) {
        for (int k = 0; k < 2; k++) {
            struct side *side = k ? &p.b : &p.a;
            sluice_event events[4];
            while (sent[k] < COUNT && pair_send(side, 700, sent[k], NULL) == 0)
                sent[k]++;
            int n = sluice_poll(side->loop, events, 4, 0);
            for (int i = 0; i < n; i++)
                if (events[i].type == SLUICE_MESSAGE)
                    assert_true(pair_check(events[i].msg, 700, received[k]++));
        }
    }
    must_data_equal(received[0], COUNT);
    must_data_equal(received[1], COUNT);
    pair_close(&p);
}

/* ---- flow control ---------------------------------------------------------------------------- */

PAIR_WITH(pair_opened, a_full_window_answers_eagain_and_one_writable) {
    struct pair *p = *state;
    unsigned accepted = 0, writable = 0, received = 0;
    pair_connect(p, PAIR_LINK(.window_messages = 16));
    int status;
    while ((status = pair_send(&p->b, 64, accepted, NULL)) == 0)
        accepted++;
    assert_int_equal(status, SLUICE_EAGAIN);
    assert_int_equal(accepted, 16);
    assert_int_equal(pair_send(&p->b, 64, 0, NULL), SLUICE_EAGAIN); /* same episode */
    for (int i = 0; i < 2000 && received < 16; i++) {
        sluice_event event;
        if (sluice_poll(p->a.loop, &event, 1, 0) == 1)
            received++;
        if (sluice_poll(p->b.loop, &event, 1, 0) == 1) {
            assert_int_equal(event.type, SLUICE_WRITABLE);
            writable++;
        }
    }
    assert_int_equal(received, 16);
    for (int i = 0; i < 100; i++) {
        sluice_event event;
        writable += sluice_poll(p->b.loop, &event, 1, 0) == 1;
    }
    assert_int_equal(writable, 1);
    assert_int_equal(pair_send(&p->b, 64, 0, NULL), 0);
}

PAIR_WITH(pair_opened, one_message_always_fits_the_window) {
    struct pair *p = *state;
    pair_connect(p, PAIR_LINK(.window_bytes = 1000, .window_messages = 100));
    assert_int_equal(pair_send(&p->b, 500000, 1, NULL), 0);
    assert_int_equal(pair_send(&p->b, 1, 1, NULL), SLUICE_EAGAIN);
    pair_expect(p, &p->a, SLUICE_MESSAGE);
    pair_expect(p, &p->b, SLUICE_WRITABLE);
    assert_int_equal(pair_send(&p->b, 400, 1, NULL), 0);
}

TEST(a_receiver_that_does_not_poll_stalls_only_the_sender) {
    struct pair p;
    unsigned sent = 0;
    sluice_event event;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 8));
    pair_connect(&p, PAIR_LINK(.window_messages = 100));
    while (pair_send(&p.b, 64, sent, NULL) == 0)
        sent++;
    assert_int_equal(sent, 100);
    for (int i = 0; i < 1000; i++)
        assert_true(sluice_poll(p.b.loop, &event, 1, 0) >= 0);
    assert_int_equal(pair_session(&p.b)->connection->tx.credits, CREDIT_RESERVE);
    assert_true(p.b.loop->totals.credit_stalls > 0);
    for (unsigned i = 0; i < sent; i++) {
        event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 64, i));
    }
    pair_close(&p);
}

TEST(a_deadline_drops_what_was_not_handed_over) {
    struct pair p;
    unsigned count = 0, late = 0, good = 0;
    sluice_event event;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 8));
    pair_connect(&p, PAIR_LINK(.window_messages = 20));
    pair_grant_all(&p, pair_session(&p.b), pair_session(&p.a));
    uint64_t deadline = pair_now(NULL) + 100000000000ull;
    while (pair_send(&p.b, 64, count, SLUICE_SEND(.tag = count + 1, .deadline_ns = deadline)) == 0)
        count++;
    assert_int_equal(count, 20);
    pair_clock += 200000000000ull;
    /* The receiver is looked at only afterwards: 6 of 8 credits went before the deadline. */
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (late < 14 && env_now(&env_default) < limit)
        if (sluice_poll(p.b.loop, &event, 1, 0) == 1 && event.type == SLUICE_SENT)
            *(event.status == SLUICE_ETIMEDOUT ? &late : &good) += 1;
    assert_int_equal(late, 14);
    for (unsigned i = 0; i < 6; i++) {
        event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 64, i));
    }
    pair_expect_nothing(&p, &p.a);
    pair_close(&p);
}

/* ---- ownership ------------------------------------------------------------------------------- */

TEST(kept_messages_are_mine_and_credits_come_back) {
    enum { COUNT = 30 }; /* each withholds a credit */
    struct pair p;
    sluice_msg *kept[COUNT];
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = COUNT + CREDIT_RESERVE));
    pair_connect(&p, PAIR_LINK());
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(pair_send(&p.b, 100 + i, i, NULL), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        sluice_event event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        kept[i] = event.msg;
        sluice_keep(kept[i]);
        sluice_keep(kept[i]); /* twice is once */
    }
    for (unsigned i = 0; i < COUNT; i++)
        assert_true(pair_check(kept[i], 100 + i, i));
    for (unsigned i = 0; i < COUNT; i += 2)
        sluice_free(kept[i]);
    for (unsigned i = 1; i < COUNT; i += 2)
        assert_int_equal(sluice_send(p.a.session, kept[i], NULL), 0);
    for (unsigned i = 1; i < COUNT; i += 2) {
        sluice_event event = pair_expect(&p, &p.b, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 100 + i, i));
    }
    pair_close(&p);
}

TEST(a_borrowed_message_may_be_sent_on) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.credits = 4));
    pair_connect(&p, PAIR_LINK(.credits = 4));
    assert_int_equal(pair_send(&p.b, 9000, 5, NULL), 0);
    for (int i = 0; i < 200; i++) {
        struct side *here = i & 1 ? &p.b : &p.a;
        sluice_event event = pair_expect(&p, here, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, 9000, 5));
        assert_int_equal(sluice_send(here->session, event.msg, NULL), 0);
    }
    pair_close(&p);
}

TEST(memory_shortage_delays_and_loses_nothing) {
    struct pair p;
    struct pool_buffer *hoard[64];
    unsigned count = 0;
    sluice_event event;
    pair_open(&p, PAIR_NODE(.memory_bytes_max = 8 << 20, .message_bytes_max = 2 << 20),
              PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    while (count < 64 && (hoard[count] = pool_get(p.a.node->rx_pool, NULL, 256 << 10)))
        count++; /* of what is for receiving */
    assert_uint_in_range(count, 4, 63);
    assert_int_equal(pair_send(&p.b, 700000, 1, NULL), 0);
    assert_int_equal(pair_send(&p.b, 10, 2, NULL), 0);
    pair_expect_nothing(&p, &p.a);
    assert_true(p.a.loop->totals.alloc_stalls > 0);
    while (count > 0)
        pool_put(p.a.node->rx_pool, NULL, hoard[--count]);
    event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 700000, 1));
    event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 10, 2));
    pair_close(&p);
}

/* ---- decisions ------------------------------------------------------------------------------- */

TEST(the_application_accepts_with_an_argument) {
    struct pair p;
    int mine;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK));
    pair_dial(&p, PAIR_LINK(.arg = &mine));
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
    assert_string_not_equal(event.peer->address, "");
    assert_int_equal(event.peer->version, 1);
    assert_int_equal(pair_send(&p.a, 1, 1, NULL), SLUICE_ECLOSED); /* not up yet */
    assert_int_equal(sluice_accept(event.session, &p), 0);
    assert_int_equal(sluice_accept(event.session, &p), SLUICE_ECLOSED);
    assert_int_equal(sluice_refuse(event.session, 1, "no"), SLUICE_ECLOSED);
    event = pair_expect(&p, &p.a, SLUICE_UP);
    assert_ptr_equal(event.arg, &p);
    event = pair_expect(&p, &p.b, SLUICE_UP);
    assert_ptr_equal(event.arg, &mine);
    pair_close(&p);
}

TEST(a_refusal_reaches_the_dialer_with_code_and_text) {
    struct pair p;
    sluice_session_info info = {.size = sizeof info};
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK));
    pair_dial(&p, PAIR_LINK());
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
    assert_int_equal(sluice_refuse(event.session, 4711, "not on\na \x01 Sunday"), 0);
    event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.status, SLUICE_EREJECTED);
    assert_int_equal(event.reason, SLUICE_REASON_REFUSED);
    assert_int_equal(event.vendor, 4711);
    assert_int_equal(sluice_session_get_info(event.session, &info), 0);
    assert_int_equal(info.close_code, 4711);
    assert_string_equal(info.close_text, "not on?a ? Sunday");
    event = pair_expect(&p, &p.a, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_LOCAL_CLOSE);
    pair_close(&p);
}

TEST(undecided_requests_end_in_time) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK, .timeout_ns = 3000000000ull));
    pair_dial(&p, PAIR_LINK(.timeout_ns = 100000000000ull));
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
    sluice_session asked = event.session;
    pair_clock += 4000000000ull;
    event = pair_expect(&p, &p.a, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_TIMEOUT);
    event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_TIMEOUT);
    assert_int_equal(event.status, SLUICE_ETIMEDOUT);
    pair_expect_nothing(&p, &p.a);
    assert_int_equal(sluice_accept(asked, NULL), SLUICE_ECLOSED);
    pair_close(&p);
}

TEST(the_dialer_gives_up_in_time) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK, .timeout_ns = SLUICE_OFF));
    pair_dial(&p, PAIR_LINK(.timeout_ns = 2000000000ull));
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
    sluice_session asked = event.session;
    pair_clock += 2500000000ull;
    event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_TIMEOUT);
    /* The listener learns it at the latest when it accepts. */
    pair_turn(&p);
    int status = sluice_accept(asked, NULL);
    assert_true(status == 0 || status == SLUICE_ECLOSED);
    event = pair_expect(&p, &p.a, SLUICE_CLOSED);
    sluice_session_info info = pair_info(event.session);
    if (event.reason != SLUICE_REASON_PEER_LOST)
        fail_msg("%s: %s (%u)", sluice_reason_text(event.reason), info.close_text, event.vendor);
    pair_close(&p);
}

TEST(unlisten_refuses_who_is_waiting) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK));
    pair_dial(&p, PAIR_LINK());
    pair_expect(&p, &p.a, SLUICE_CONNECT);
    sluice_unlisten(p.listener);
    sluice_unlisten(p.listener);
    assert_int_equal(sluice_listener_port(p.listener), SLUICE_ECLOSED);
    sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_NO_LISTENER);
    pair_expect(&p, &p.a, SLUICE_CLOSED);
    /* and whoever comes later */
    pair_dial(&p, PAIR_LINK());
    event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_NO_LISTENER);
    assert_int_equal(event.vendor, 8);
    pair_close(&p);
}

/* ---- handles --------------------------------------------------------------------------------- */

TEST(stale_and_invented_handles_are_closed) {
    struct pair p;
    sluice_msg *msg;
    sluice_session_info info = {.size = sizeof info};
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    sluice_session old = p.b.session;
    sluice_hangup(old, 0);
    pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(sluice_session_get_info(old, &info), 0); /* within CLOSED */
    pair_expect(&p, &p.a, SLUICE_CLOSED);
    pair_expect_nothing(&p, &p.b);
    assert_int_equal(sluice_alloc(p.b.node, 8, &msg), 0);
    uint64_t ids[] = {
        old.id, 0, UINT64_MAX, old.id + 1, old.id ^ 1ull << 40, 1ull << 56, old.id | 0xffull << 56};
    for (unsigned i = 0; i < sizeof ids / sizeof *ids; i++) {
        sluice_session handle = {ids[i]};
        assert_int_equal(sluice_send(handle, msg, NULL), SLUICE_ECLOSED);
        assert_int_equal(sluice_send_copy(handle, "x", 1, NULL), SLUICE_ECLOSED);
        assert_int_equal(sluice_accept(handle, NULL), SLUICE_ECLOSED);
        assert_int_equal(sluice_session_get_info(handle, &info), SLUICE_ECLOSED);
        sluice_hangup(handle, 0);
        assert_int_equal(sluice_listener_port((sluice_listener){ids[i] ^ 1ull << 33}),
                         SLUICE_ECLOSED);
    }
    /* The slot's next session does not answer to the old handle. */
    pair_connect(&p, PAIR_LINK());
    assert_int_equal((uint32_t)(p.b.session.id >> 32), (uint32_t)(old.id >> 32));
    assert_int_equal(sluice_send(old, msg, NULL), SLUICE_ECLOSED);
    sluice_hangup(old, 0);
    assert_int_equal(sluice_send(p.b.session, msg, NULL), 0);
    pair_expect(&p, &p.a, SLUICE_MESSAGE);
    pair_close(&p);
    assert_int_equal(sluice_send(p.b.session, msg, NULL), SLUICE_ECLOSED);
}

PAIR_WITH(pair_opened, bad_arguments_have_clear_answers) {
    struct pair *p = *state;
    sluice_error e;
    sluice_session s;
    sluice_listener l;
    sluice_event event;
    sluice_msg *msg;
    static const char *const wrong[] = {"",
                                        "x",
                                        ":1",
                                        "127.0.0.1",
                                        "127.0.0.1:",
                                        "127.0.0.1:0",
                                        "127.0.0.1:65536",
                                        "127.0.0.1:-1",
                                        "127.0.0.1:7x",
                                        "127.0.0.999:7",
                                        "[::1:7",
                                        "[zz]:7",
                                        "*:7",
                                        "::1:7:"};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(sluice_dial(p->b.node, wrong[i], SLUICE_LINK(.loop = p->b.loop), &s, &e),
                         SLUICE_EADDRESS);
        assert_true(strlen(e.text) > 10);
    }
    assert_int_equal(sluice_dial(p->b.node, NULL, SLUICE_LINK(.loop = p->b.loop), &s, &e),
                     SLUICE_EADDRESS);
    assert_int_equal(sluice_dial(p->b.node, p->address, NULL, &s, &e), SLUICE_EINVAL);
    assert_int_equal(sluice_dial(p->b.node, p->address, SLUICE_LINK(.loop = p->a.loop), &s, &e),
                     SLUICE_EINVAL);
    assert_int_equal(
        sluice_dial(p->b.node, p->address, SLUICE_LINK(.loop = p->b.loop, .credits = 3), &s, &e),
        SLUICE_EINVAL);
    assert_int_equal(
        sluice_dial(p->b.node, p->address, &(sluice_link_options){.loop = p->b.loop}, &s, &e),
        SLUICE_EINVAL);
    assert_int_equal(sluice_listen(p->b.node, p->address, SLUICE_LINK(.loop = p->b.loop), &l, &e),
                     SLUICE_EADDRESS);
    assert_non_null(strstr(e.text, "in use"));
    assert_int_equal(
        sluice_listen(p->b.node, "192.0.2.77:0", SLUICE_LINK(.loop = p->b.loop), &l, &e),
        SLUICE_EADDRESS);
    assert_int_equal(sluice_poll(p->b.loop, NULL, 1, 0), SLUICE_EINVAL);
    assert_int_equal(sluice_poll(NULL, &event, 1, 0), SLUICE_EINVAL);
    pair_connect(p, PAIR_LINK());
    assert_int_equal(sluice_send(p->b.session, NULL, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_alloc(p->b.node, 8, &msg), 0);
    assert_int_equal(sluice_send(p->b.session, msg, SLUICE_SEND(.flags = 2)), SLUICE_EINVAL);
    assert_int_equal(sluice_send(p->b.session, msg, SLUICE_SEND(.reserved = 2)), SLUICE_EINVAL);
    struct {
        sluice_send_options o;
        uint64_t newer;
    } longer = {.o.size = sizeof longer, .newer = 1};
    assert_int_equal(sluice_send(p->b.session, msg, &longer.o), SLUICE_EINVAL);
    longer.newer = 0;
    assert_int_equal(sluice_send(p->b.session, msg, &longer.o), 0);
    assert_int_equal(sluice_loop_close(p->b.loop), SLUICE_EINVAL);
}
