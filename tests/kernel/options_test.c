/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * options_test.c - what rdma_set_option does in the kernel: type of service, ACK timeout and the
 * reuse of an address are taken on every id this library sets them on, and are seen in the queue
 * pairs of sessions that work. links: static (queue pairs of sessions, the stack below the library)
 */
#include "support/guest.h"

#include <arpa/inet.h>

#include "core/session.h"
#include "core/session_table.h"
#include "fabric/fabric.h"

/* The end of a session that is up belongs to nobody else here: the test polls its loop. */
static struct ibv_qp_attr queried(sluice_session session) {
    struct session *s = session_table_find(session.id);
    struct ibv_qp_attr attr = {0};
    struct ibv_qp_init_attr init;
    must(s && s->connection->qp);
    must(fabric_system.query_qp(s->connection->qp, &attr, IBV_QP_TIMEOUT | IBV_QP_AV, &init) == 0);
    return attr;
}

static void echo_one(struct couple *c) {
    must(side_send(&c->b, c->at_b, 70000, 1, 0) == 0);
    struct note note = side_expect(&c->a, SLUICE_MESSAGE);
    must(it_matches(note.msg, 70000, 1));
    note_free(&note);
}

static void connect_with(struct couple *c, const sluice_link_options *listening,
                         const sluice_link_options *dialing) {
    couple_open(c, false, NULL);
    c->port = side_listen(&c->a, listening, &c->listener);
    couple_connect(c, dialing);
    echo_one(c);
}

/* On iWARP it is TCP that has a type of service and a timeout, and Soft-iWARP tells it neither. */
static bool in_queue_pairs(void) {
    return !it_iwarp();
}

LEVEL_TEST(what_is_asked_for_is_in_the_queue_pairs, "polled", 0) {
    struct couple c;
    if (!in_queue_pairs())
        skip();
    connect_with(&c, &(sluice_link_options){.tos = 40, .ack_timeout = 10},
                 &(sluice_link_options){.tos = 96, .ack_timeout = 21});
    struct ibv_qp_attr listener = queried(c.at_a), dialer = queried(c.at_b);
    assert_int_equal(dialer.timeout, 21);
    assert_int_equal(dialer.ah_attr.grh.traffic_class, 96);
    assert_int_equal(listener.timeout, 10);
    assert_int_equal(listener.ah_attr.grh.traffic_class, 40); /* rdma_cm alone takes the dialer's */
    couple_close(&c);
}

LEVEL_TEST(nothing_asked_for_is_the_stacks_own_choice, "polled", 0) {
    struct couple c;
    if (!in_queue_pairs())
        skip();
    connect_with(&c, NULL, NULL);
    struct ibv_qp_attr listener = queried(c.at_a), dialer = queried(c.at_b);
    assert_int_equal(listener.timeout, dialer.timeout); /* from the same path */
    assert_uint_in_range(dialer.timeout, 1, 31);
    assert_int_equal(listener.ah_attr.grh.traffic_class, 0);
    assert_int_equal(dialer.ah_attr.grh.traffic_class, 0);
    couple_close(&c);
}

/* The limits of both, on both sides at once, and one side without the other. */
LEVEL_TEST(every_value_in_range_makes_a_session, "polled", 0) {
    static const struct {
        uint32_t tos, ack_timeout;
    } cases[] = {{1, 0}, {255, 0}, {0, 1}, {0, 31}, {255, 31}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct couple c;
        const sluice_link_options link = {.tos = cases[i].tos, .ack_timeout = cases[i].ack_timeout};
        sluice_link_options none = {0};
        connect_with(&c, i % 2 ? &link : &none, &link);
        struct ibv_qp_attr dialer = queried(c.at_b);
        must(!in_queue_pairs() || dialer.ah_attr.grh.traffic_class == cases[i].tos);
        must(!in_queue_pairs() || cases[i].ack_timeout == 0 ||
             dialer.timeout == cases[i].ack_timeout);
        couple_close(&c);
    }
}

/* ---- the reuse of an address --------------------------------------------------------------------- */

static int listen_at(struct side *side, uint16_t port, uint32_t flags, sluice_listener *out) {
    sluice_link_options link = side_link(side, &(sluice_link_options){.flags = flags});
    sluice_error e = {0};
    int status = sluice_listen(side->node, it_address(port), &link, out, &e);
    if (status != 0)
        print_message("%s\n", e.text);
    return status;
}

/*
 * An id that shares its address, bound and not listening. With REUSE a listener gets past the bind,
 * and has to wait for the other's end to listen; a listener that is there is never joined.
 */
LEVEL_TEST(reuse_listens_when_the_other_is_gone, "polled", 0) {
    struct side side;
    sluice_listener listener, second;
    side_open(&side, false, NULL);
    struct rdma_event_channel *channel = fabric_system.create_event_channel();
    struct rdma_cm_id *other = NULL;
    struct sockaddr_in in = {.sin_family = AF_INET};
    int reuse = 1;
    must(inet_pton(AF_INET, it_host(), &in.sin_addr) == 1);
    must(channel && fabric_system.create_id(channel, &other, NULL, RDMA_PS_TCP) == 0);
    must(fabric_system.set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse,
                                  sizeof reuse) == 0);
    must(fabric_system.bind_addr(other, (struct sockaddr *)&in) == 0);
    uint16_t port = ntohs(fabric_system.get_src_port(other));
    assert_int_equal(listen_at(&side, port, 0, &listener), SLUICE_EADDRESS);
    assert_int_equal(listen_at(&side, port, SLUICE_REUSE, &listener), SLUICE_EADDRESS);
    must(fabric_system.destroy_id(other) == 0);
    assert_int_equal(listen_at(&side, port, SLUICE_REUSE, &listener), 0);
    assert_int_equal(listen_at(&side, port, SLUICE_REUSE, &second), SLUICE_EADDRESS);
    fabric_system.destroy_event_channel(channel);
    side_close(&side, 0);
}

/* The port of a listener whose sessions live, and of one whose sessions have just ended. */
LEVEL_TEST(a_port_is_listened_at_again_at_once, "polled", 0) {
    for (unsigned alive = 0; alive < 2; alive++) {
        struct couple c;
        const sluice_link_options link = {.flags = SLUICE_REUSE};
        connect_with(&c, &link, NULL);
        if (!alive) {
            sluice_hangup(c.at_b, 0);
            side_expect_closed(&c.b, SLUICE_REASON_LOCAL_CLOSE);
            side_expect_closed(&c.a, SLUICE_REASON_PEER_CLOSE);
        }
        sluice_unlisten(c.listener);
        uint64_t until = sluice_now() + LIMIT_NS;
        while (listen_at(&c.a, (uint16_t)c.port, SLUICE_REUSE, &c.listener) != 0)
            must(sluice_now() < until); /* until the CM thread has closed the first */
        if (alive)
            echo_one(&c);
        couple_connect(&c, NULL);
        echo_one(&c);
        couple_close(&c);
    }
}

int main(void) {
    return tests_run(guest_warm_up, NULL);
}
