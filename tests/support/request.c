/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* request.c - see request.h. */
#include "support/request.h"

int pair_request(struct side *side, size_t bytes, unsigned seed, const sluice_send_options *o) {
    sluice_msg *msg;
    int status = sluice_alloc(side->node, bytes, &msg);
    if (status != 0)
        return status;
    pair_fill(msg, seed);
    status = sluice_request(side->session, msg, o);
    if (status != 0)
        sluice_free(msg);
    return status;
}

int pair_reply(struct side *side, uint64_t token, size_t bytes, unsigned seed) {
    sluice_msg *msg;
    assert_int_equal(sluice_alloc(side->node, bytes, &msg), 0);
    pair_fill(msg, seed);
    int status = sluice_reply(side->session, token, msg);
    if (status != 0)
        sluice_free(msg);
    return status;
}

void pair_settle(struct pair *p) {
    struct session *a = pair_session(&p->a), *b = pair_session(&p->b);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    do {
        pair_turn(p);
        assert_true(env_now(&env_default) < limit);
    } while (a->connection->tx.sequence != b->connection->rx.sequence ||
             b->connection->tx.sequence != a->connection->rx.sequence);
    pair_turns(p, 20);
}

uint32_t pair_in_flight(struct side *side) {
    return pair_info(side->session).requests;
}
