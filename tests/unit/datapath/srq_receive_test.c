/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Sessions of a loop share receives: who does and who does not, a peer that takes more than it may,
 * the end of a queue pair and of the device, what an idle session costs.
 */
#include "support/pair.h"
#include "support/log.h"

#include <sys/resource.h>

#include "datapath/rx/recv_queue.h"
#include "datapath/rx/srq.h"
#include "datapath/tx/post.h"

static bool is_shared(sluice_session session) {
    sluice_session_info info = pair_info(session);
    return info.shared;
}

/* Every shared receive the device has is a credit, reserved, or spare. */
static void assert_covered(struct sluice_loop *l) {
    uint32_t promised = l->srq.queue.spare;
    for (struct session *s = l->sessions; s; s = s->next)
        if (s->connection->qp && s->connection->rx.queue->srq)
            promised += s->connection->rx.granted + s->connection->rx.unreported +
                        s->connection->recv.reserved;
    assert_int_equal(promised, l->srq.queue.posted);
}

TEST(sessions_share_unless_they_must_not) {
    static const char secret[] = "0123456789abcdef";
    static const sluice_key key = {.id = 7, .bytes = 16, .secret = secret};
    struct pair p;
    for (int i = 0; i < 4; i++) {
        pair_without(i == 3 ? WITHOUT_SRQ : 0);
        pair_open(&p, PAIR_NODE(),
                  PAIR_LINK(.flags = i == 1 ? SLUICE_ISOLATED : 0, .key_count = i == 2,
                            .keys = i == 2 ? &key : NULL));
        pair_connect(&p, PAIR_LINK(.key_count = i == 2, .keys = i == 2 ? &key : NULL));
        assert_int_equal(is_shared(p.a.session), i == 0);
        assert_int_equal(is_shared(p.b.session), i != 3);
        assert_int_equal(pair_session(&p.a)->connection->recv.own.posted,
                         i == 0 ? 0 : CREDITS_INITIAL);
        assert_int_equal(pair_send(&p.b, 100, 1, NULL), 0);
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 100, 1));
        assert_int_equal(pair_send(&p.a, 100000, 2, NULL), 0);
        assert_true(pair_check(pair_expect(&p, &p.b, SLUICE_MESSAGE).msg, 100000, 2));
        pair_close(&p);
    }
}

PAIR_WITH(pair_opened, a_share_of_the_cq_is_only_for_sends) {
    struct pair *p = *state;
    uint32_t before = p->a.loop->cq_used;
    assert_int_equal(before, p->a.loop->srq.queue.depth);
    pair_connect(p, PAIR_LINK());
    assert_int_equal(p->a.loop->cq_used - before, 128);
}

/*
 * Of 32 places 24 are for the first credits of six sessions, and four more for what those grow by: the others are for replies, so
 * that a session with a request gets on whatever the others have.
 */
TEST(places_are_kept_for_growth_and_for_replies) {
    enum { SHARING = 6 };
    struct pair p;
    sluice_session at_a[SHARING + 1], at_b[SHARING + 1];
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    struct sluice_loop *l = p.a.loop;
    uint32_t depth = l->srq.queue.depth;
    l->srq.queue.depth = 32;
    for (int i = 0; i <= SHARING; i++) {
        pair_connect(&p, PAIR_LINK());
        at_a[i] = p.a.session;
        at_b[i] = p.b.session;
        assert_int_equal(is_shared(at_a[i]), i < SHARING);
    }
    for (unsigned round = 0; round < 20; round++)
        for (int i = 0; i < SHARING; i++) {
            p.b.session = at_b[i];
            assert_int_equal(pair_send(&p.b, 100, round, NULL), 0);
            sluice_free(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg);
        }
    pair_turns(&p, 100);
    assert_covered(l);
    uint32_t places = l->srq.next_slot - l->srq.free_count;
    assert_int_equal(places, 28);
    p.a.session = at_a[0];
    p.b.session = at_b[0];
    sluice_msg *request;
    assert_int_equal(sluice_alloc(p.a.node, 10, &request), 0);
    assert_int_equal(sluice_request(p.a.session, request, NULL), 0);
    sluice_event event = pair_expect(&p, &p.b, SLUICE_REQUEST);
    assert_int_equal(sluice_reply(p.b.session, event.token, event.msg), 0);
    event = pair_expect(&p, &p.a, SLUICE_REPLY);
    assert_int_equal(event.status, 0);
    sluice_free(event.msg);
    l->srq.queue.depth = depth; /* as the completion queue counts them */
    pair_close(&p);
}

/* Three sessions; one overruns its credits by hand. The others go on, and nothing is lost of them. */
TEST(a_peer_that_overruns_its_credits_loses_its_own_session_only) {
    struct pair p;
    sluice_session at_a[3], at_b[3];
    pair_open(&p, PAIR_NODE(.log = log_nothing), PAIR_LINK());
    struct sluice_loop *l = p.a.loop;
    for (unsigned round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++) {
            pair_connect(&p, PAIR_LINK());
            at_a[i] = p.a.session;
            at_b[i] = p.b.session;
        }
        struct session *cheat = session_table_find(at_b[1].id),
                       *victim = session_table_find(at_a[1].id);
        pair_turns(&p, 200);
        assert_covered(l);
        uint32_t buffers = l->srq.next_slot - l->srq.free_count;
        l->srq.queue.spare += victim->connection->rx.granted; /* as if it had been told of none */
        victim->connection->rx.granted = 0;
        for (uint32_t i = 1; i <= 6; i++) { /* before a look is taken at any of it */
            struct frame f = {.type = FRAME_DATA, .sequence = i, .length = 8};
            sluice_msg *msg;
            assert_int_equal(sluice_alloc(p.b.node, 64, &msg), 0);
            uint8_t *at = (uint8_t *)sluice_data(msg) - FRAME_BYTES;
            frame_put(at, &f);
            struct ibv_sge sge = {(uintptr_t)at, FRAME_BYTES + 8, msg->lkey};
            struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
            assert_int_equal(ibv_post_send(cheat->connection->qp, &wr, &bad), 0);
        }
        unsigned got[3] = {0}, sent[3] = {0}, closed_a = 0, closed_b = 0;
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
        while (got[0] < 50 || got[2] < 50 || !closed_a || !closed_b) {
            sluice_event event;
            for (int i = 0; i < 3; i += 2) {
                p.b.session = at_b[i];
                if (sent[i] < 50 && pair_send(&p.b, 100, sent[i], NULL) == 0)
                    sent[i]++;
            }
            cm_progress(p.a.node->cm, 0);
            cm_progress(p.b.node->cm, 0);
            if (sluice_poll(p.a.loop, &event, 1, 0) == 1) {
                if (event.type == SLUICE_CLOSED) {
                    assert_true(event.session.id == at_a[1].id);
                    assert_int_equal(event.reason, SLUICE_REASON_CREDITS);
                    closed_a++;
                } else {
                    int i = event.session.id == at_a[0].id   ? 0
                            : event.session.id == at_a[2].id ? 2
                                                             : 1;
                    assert_int_equal(event.type, SLUICE_MESSAGE);
                    if (i != 1)
                        assert_true(pair_check(event.msg, 100, got[i]));
                    got[i]++;
                }
            }
            if (sluice_poll(p.b.loop, &event, 1, 0) == 1) {
                assert_int_equal(event.type, SLUICE_CLOSED);
                assert_true(event.session.id == at_b[1].id);
                closed_b++;
            }
            assert_true(env_now(&env_default) < limit);
        }
        assert_int_equal(got[1], 0);
        pair_turns(&p, 200);
        assert_covered(l); /* what it took is there again */
        assert_true(l->srq.next_slot - l->srq.free_count >= buffers);
        sluice_hangup(at_b[0], 0);
        sluice_hangup(at_b[2], 0);
        for (int i = 0; i < 2; i++)
            pair_expect(&p, &p.a, SLUICE_CLOSED);
        for (int i = 0; i < 2; i++)
            pair_expect(&p, &p.b, SLUICE_CLOSED);
        assert_int_equal(l->srq.queue.spare, l->srq.queue.posted);
    }
    pair_close(&p);
}

/* Fewer than are posted at once, of sessions that have credits left: until one comes alone. */
PAIR_WITH(pair_opened, buffers_of_many_sessions_are_posted_together) {
    struct pair *p = *state;
    enum { SESSIONS = 10 };
    sluice_session at_b[SESSIONS];
    sluice_event events[SESSIONS];
    struct sluice_loop *l = p->a.loop;
    for (int i = 0; i < SESSIONS; i++) {
        pair_connect(p, PAIR_LINK());
        at_b[i] = p->b.session;
    }
    pair_turns(p, 200);
    for (unsigned round = 0; round < 20; round++) {
        for (int i = 0; i < SESSIONS; i++) {
            p->b.session = at_b[i];
            assert_int_equal(pair_send(&p->b, 100, round, NULL), 0);
        }
        assert_int_equal(sluice_poll(l, events, SESSIONS, 0), SESSIONS);
        assert_int_equal(sluice_poll(l, events, SESSIONS, 0), 0); /* they are back */
        if (round == 0)
            assert_int_equal(l->srq.queue.waiting, SESSIONS);
        assert_int_equal(pair_send(&p->b, 100, round, NULL), 0);
        assert_int_equal(sluice_poll(l, events, SESSIONS, 0), 1);
        assert_int_equal(sluice_poll(l, events, SESSIONS, 0), 0);
        if (round == 0) /* those of the others; with more credits its own wait for each other */
            assert_true(l->srq.queue.waiting <= 1);
        pair_turns(p, 10);
        assert_covered(l);
    }
}

/* A frame in the room of a reply, on b's queue pair. */
static void post_reply(struct pair *p, uint64_t total) {
    static uint64_t frame[FRAME_BYTES / 8];
    struct session *s = pair_session(&p->b);
    s->connection->tx.sequence++;
    post_header(s->connection, (uint8_t *)frame, FRAME_REPLY, FRAME_RESERVED, 0, total);
    struct ibv_sge sge = {(uintptr_t)frame, FRAME_BYTES, 0};
    struct ibv_send_wr *bad, wr = {.wr_id = wr_send_id(s->connection, s->connection->sq.tail),
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND,
                                   .send_flags = IBV_SEND_INLINE};
    assert_int_equal(ibv_post_send(s->connection->qp, &wr, &bad), 0);
}

/* Else each such session would leave one more behind, for credits that nothing is posted for. */
TEST(the_receive_of_a_reply_that_is_wrong_is_spare_once) {
    struct pair p;
    sluice_msg *msg;
    sluice_event event;
    pair_open(&p, PAIR_NODE(.log = log_nothing), PAIR_LINK());
    struct sluice_loop *l = p.a.loop;
    for (unsigned round = 0; round < 5; round++) {
        pair_connect(&p, PAIR_LINK());
        assert_int_equal(sluice_alloc(p.a.node, 100, &msg), 0);
        assert_int_equal(sluice_request(p.a.session, msg, SLUICE_SEND(.tag = 1)), 0);
        pair_expect(&p, &p.b, SLUICE_REQUEST);
        post_reply(&p, 12345);
        assert_int_equal(pair_expect(&p, &p.a, SLUICE_REPLY).status, SLUICE_EUNKNOWN);
        event = pair_expect(&p, &p.a, SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_PROTOCOL);
        while (session_table_used_count(p.a.node->index) > 0)
            pair_turn(&p);
        assert_true(recv_queue_post(l, &l->srq.queue, NULL)); /* what is on its way back */
        assert_covered(l);
        do
            assert_true(pair_next(&p, &p.b, &event));
        while (event.type != SLUICE_CLOSED);
    }
    pair_close(&p);
}

PAIR_WITH(pair_connected, a_completion_of_nobody_goes_back) {
    struct pair *p = *state;
    struct sluice_loop *l = p->a.loop;
    struct sluice_msg *msg = l->srq.all[0];
    uint32_t posted = l->srq.queue.posted;
    assert_null(msg->owner);
    assert_null(srq_connection(l, 0xffffff));
    assert_null(srq_connection(l, UINT32_MAX));
    assert_ptr_equal(srq_connection(l, pair_session(&p->a)->connection->qp->qp_num),
                     pair_session(&p->a)->connection);
    l->wc[0] = (struct ibv_wc){.wr_id = (uintptr_t)msg, .qp_num = 0xabcdef, .byte_len = 100};
    l->wc_next = 0;
    l->wc_count = 1;
    pair_turns(p, 10);
    assert_int_equal(l->srq.queue.posted, posted);
    assert_ptr_equal(l->srq.all[0], msg);
}

PAIR_WITH(pair_opened, ends_do_not_wait_for_the_limit) {
    struct pair *p = *state;
    for (unsigned i = 0; i < 50; i++) {
        pair_connect(p, PAIR_LINK());
        const struct connection *c = pair_session(&p->a)->connection;
        assert_int_equal(pair_send(&p->b, 100, i, NULL), 0);
        pair_expect(p, &p->a, SLUICE_MESSAGE);
        sluice_hangup(i & 1 ? p->a.session : p->b.session, 0);
        pair_expect(p, &p->a, SLUICE_CLOSED);
        pair_expect(p, &p->b, SLUICE_CLOSED);
        assert_true(c->drain.settled); /* the device said it was done, and it was */
        assert_int_equal(p->a.loop->settling + p->b.loop->settling, 0);
        assert_int_equal(p->a.loop->srq.queue.spare, p->a.loop->srq.queue.posted);
        assert_int_equal(p->a.loop->srq.queue.posted, 4);
    }
}

/* One after the other, a loop's own numbers: registered bytes and the process's memory. */
PAIR_WITH(pair_opened, a_thousand_idle_sessions_are_small) {
    struct pair *p = *state;
    enum { N = 1000 };
    pair_connect(p, PAIR_LINK()); /* what the first brings with it */
    struct rusage before, after;
    uint64_t bytes = pool_bytes(p->a.node->pool) + pool_bytes(p->a.node->rx_pool);
    getrusage(RUSAGE_SELF, &before);
    for (unsigned i = 0; i < N; i++)
        pair_connect(p, PAIR_LINK());
    getrusage(RUSAGE_SELF, &after);
    bytes = pool_bytes(p->a.node->pool) + pool_bytes(p->a.node->rx_pool) - bytes;
    uint64_t resident = (uint64_t)(after.ru_maxrss - before.ru_maxrss) * 1024;
    print_message("registered %lu, resident %lu bytes a session, both ends of it\n",
                  (unsigned long)(bytes / N), (unsigned long)(resident / N));
    assert_true(bytes / N <= 64 << 10);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(resident / N <= 2 * (64 << 10));
#endif
}
