/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_share_test.c - how the entries of a completion queue are divided: sessions_max sessions find room whatever their options are,
 * what is left over goes to those that come first, and all of it comes back.
 *
 * The connections are made without a device: only what they take of the queue is looked at.
 */
#include "support/pair.h"

#include "datapath/loop/cq_share.h"

struct queue {
    struct sluice_node node;
    struct sluice_loop loop;
    struct session session; /* of all connections: each test changes its options */
    struct connection *conns;
    uint32_t count;
};

/* Of a device that has queues of so many entries, and takes work requests of any number. */
static struct queue *queue_open(uint32_t sessions, int entries_most) {
    struct queue *q = calloc(1, sizeof *q);
    assert_non_null(q);
    q->node.device_attr = (struct ibv_device_attr){.max_cqe = entries_most, .max_qp_wr = 16384};
    q->node.options.sessions_max = sessions;
    q->loop.node = &q->node;
    q->loop.cq_size = cq_share_entries(&q->node);
    q->session.node = &q->node;
    q->session.link_config = (struct link_config){.credits = 32, .requests = 64};
    q->conns = calloc(sessions + 1, sizeof *q->conns);
    assert_non_null(q->conns);
    return q;
}

static struct connection *join(struct queue *q, bool own) {
    struct connection *c = &q->conns[q->count];
    c->session = &q->session;
    if (!cq_share_take(&q->loop, c, own))
        return NULL;
    q->count++;
    return c;
}

static void queue_close(struct queue *q) {
    while (q->count > 0)
        cq_share_give_back(&q->loop, &q->conns[--q->count]);
    assert_int_equal(q->loop.cq_used, 0);
    assert_int_equal(q->loop.cq_shares, 0);
    free(q->conns);
    free(q);
}

/* What the device may complete at a time is what the connection has taken. */
static void check(const struct queue *q, const struct connection *c, bool own) {
    const struct link_config *link = &q->session.link_config;
    assert_int_equal(c->cq_share, c->sq.depth + (own ? c->recv.own.depth : 0));
    assert_true(c->sq.depth >= 16 && c->sq.depth <= 128 && !(c->sq.depth & (c->sq.depth - 1)));
    assert_true(q->loop.cq_used <= (uint32_t)q->loop.cq_size);
    assert_true(c->credits.max >= CREDITS_INITIAL && c->credits.max <= link->credits);
    if (own) /* a request finds a receive for its reply, whatever the credits have become */
        assert_true(c->recv.own.depth > c->credits.max);
}

/* A million entries are the software device's, and 32,767 those of Soft-RoCE. */
static const struct {
    uint32_t sessions;
    int most;
} nodes[] = {{1, 1 << 20},     {46, 1 << 20}, {4096, 1 << 20}, {20016, 1 << 20}, {37449, 1 << 20},
             {65536, 1 << 22}, {1, 32767},    {585, 32767},    {1170, 32767},    {4096, 0}};

TEST(as_many_sessions_as_were_promised_find_room_whatever_their_options) {
    static const struct link_config links[] = {{.credits = 32, .requests = 64},
                                               {.credits = 1024, .requests = 256},
                                               {.credits = 4, .requests = 1}};
    for (unsigned i = 0; i < sizeof nodes / sizeof *nodes; i++)
        for (unsigned l = 0; l < sizeof links / sizeof *links; l++)
            for (unsigned kind = 0; kind < 3; kind++) { /* shared receives, own ones, in turn */
                struct queue *q = queue_open(nodes[i].sessions, nodes[i].most);
                q->session.link_config = links[l];
                if (kind != 1)
                    q->loop.cq_used = cq_share_receives(&q->loop);
                uint32_t receives = q->loop.cq_used;
                for (uint32_t n = 0; n < nodes[i].sessions; n++) {
                    bool own = kind == 1 || (kind == 2 && n % 2);
                    struct connection *c = join(q, own);
                    assert_non_null(c);
                    check(q, c, own);
                }
                q->loop.cq_used -= receives;
                queue_close(q);
            }
}

TEST(the_first_sessions_have_queues_of_full_depth) {
    for (unsigned i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        struct queue *q = queue_open(nodes[i].sessions, nodes[i].most);
        uint32_t most = nodes[i].most ? (uint32_t)nodes[i].most : UINT32_MAX;
        if (most / nodes[i].sessions > 40) { /* else each has its least */
            struct connection *c = join(q, true);
            assert_int_equal(c->sq.depth, 128);
            assert_int_equal(c->recv.own.depth, 32 + 64);
            assert_int_equal(c->credits.max, 32);
        }
        queue_close(q);
    }
}

/* One that ends makes room for another, of the same depth. */
TEST(a_share_comes_back) {
    struct queue *q = queue_open(4096, 1 << 20);
    for (uint32_t n = 0; n < 4096; n++)
        assert_non_null(join(q, true));
    uint32_t used = q->loop.cq_used;
    for (unsigned round = 0; round < 100; round++) {
        struct connection last = q->conns[--q->count];
        cq_share_give_back(&q->loop, &q->conns[q->count]);
        struct connection *c = join(q, true);
        assert_non_null(c);
        assert_int_equal(c->cq_share, last.cq_share);
    }
    assert_int_equal(q->loop.cq_used, used);
    queue_close(q);
}

/* A second connection of a session takes of what is left over, and never of what others were promised. */
TEST(one_more_connection_than_sessions_takes_of_what_is_left_over) {
    struct queue *q = queue_open(1170, 32767);
    for (uint32_t n = 0; n < 1170; n++)
        assert_non_null(join(q, true));
    assert_null(join(q, true));
    queue_close(q);
    q = queue_open(2, 32767);
    for (uint32_t n = 0; n < 3; n++)
        assert_non_null(join(q, true));
    queue_close(q);
}

/* The node says before it opens how many there can be, and opens with fewer where the number is its own. */
TEST(a_node_promises_as_many_sessions_as_its_queue_holds) {
    sluice_node *n;
    sluice_error e = {0};
    bool small = pair_is_like("rxe") || pair_is_like("rxe7");
    sluice_node_info info = {.size = sizeof info};
    const sluice_node_options *given = SLUICE_NODE(.device = "soft", .workers = SLUICE_NO_WORKERS);
    assert_int_equal(sluice_open(&n, given, &e), 0);
    assert_int_equal(sluice_node_get_info(n, &info), 0);
    uint32_t least = cq_share_least(&n->device_attr);
    uint32_t holds = (uint32_t)n->device_attr.max_cqe / least;
    assert_int_equal(info.sessions_max, small ? holds / 2 : 4096);
    sluice_close(n, 0);
    if (holds >= SESSION_TABLE_MAX) /* then that is the bound */
        return;
    given = SLUICE_NODE(.device = "soft", .workers = SLUICE_NO_WORKERS, .sessions_max = holds + 1,
                        .eager_bytes = 512, .memory_bytes_max = 1ull << 30);
    assert_int_equal(sluice_open(&n, given, &e), SLUICE_EINVAL);
    char need[80];
    snprintf(need, sizeof need, "%u sessions x %u completions need a queue of %u", holds + 1, least,
             (holds + 1) * least);
    assert_non_null(strstr(e.text, need));
    snprintf(need, sizeof need, "lower sessions_max to %u", holds);
    assert_non_null(strstr(e.text, need));
}
