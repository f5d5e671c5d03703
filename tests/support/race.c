/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* race.c - see race.h. */
#include "support/race.h"

struct race race;

static int race_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                          enum rdma_port_space ps) {
    int rc = soft_create_id(channel, id, context, ps);
    race.alive += rc == 0 && channel == race.channel;
    return rc;
}

static int race_destroy_id(struct rdma_cm_id *id) {
    for (unsigned i = 0; i < DIALER_TRIES; i++)
        if (race.ids[i] == id)
            race.ids[i] = NULL;
    race.alive -= id->channel == race.channel;
    return soft_destroy_id(id);
}

static int race_reach(struct rdma_cm_id *id, int ms) {
    unsigned number = race.asked++;
    if (number >= DIALER_TRIES || !(race.held >> number & 1))
        return soft_cm_reach(id, ms);
    race.ids[number] = id;
    return 1;
}

int race_opened(void **state) {
    static struct pair of_test;
    *state = &of_test;
    dialer_open(*state, PAIR_NODE(.soft_net = SLUICE_SOFT_NET_REQUIRE), PAIR_LINK());
    memset(&race, 0, sizeof race);
    dialer_ops.create_id = race_create_id;
    dialer_ops.destroy_id = race_destroy_id;
    dialer_fast.reach = race_reach;
    race.channel = of_test.b.node->cm->channel;
    race.alive = of_test.b.node->cm->watch.id != NULL;
    return 0;
}

struct cm_conn *race_conn(struct pair *p) {
    return &pair_session(&p->b)->connection->cm;
}

void race_await(struct pair *p, unsigned asked) {
    pair_await(p, race.asked == asked);
}

void race_let(unsigned number) {
    assert_non_null(race.ids[number]);
    struct rdma_cm_id *id = race.ids[number];
    race.ids[number] = NULL;
    assert_int_equal(soft_cm_reach(id, 1000000), 1);
}

void race_expect_one_session(struct pair *p) {
    assert_int_equal(race.alive, 1 + (p->b.node->cm->watch.id != NULL));
    assert_int_equal(dialer.connects, 1);
    pair_expect_nothing(p, &p->a);
    pair_expect_nothing(p, &p->b);
    assert_int_equal(atomic_load(&p->a.node->stats.page->cm.requests), 1);
    assert_int_equal(atomic_load(&p->a.node->stats.page->cm.refused), 0);
}
