/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * request_util.h - what the tests of requests share, on top of pair.h.
 */
#ifndef TESTS_REQUEST_UTIL_H
#define TESTS_REQUEST_UTIL_H

#include "support/pair.h"

PAIR_UNUSED static int request(struct side *side, size_t bytes, unsigned seed,
                               const sluice_send_options *o) {
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

PAIR_UNUSED static int reply(struct side *side, uint64_t token, size_t bytes, unsigned seed) {
    sluice_msg *msg;
    assert_int_equal(sluice_alloc(side->node, bytes, &msg), 0);
    pair_fill(msg, seed);
    int status = sluice_reply(side->session, token, msg);
    if (status != 0)
        sluice_free(msg);
    return status;
}

/* Turns until the peer's device has what was posted, and its loop has looked at it. */
PAIR_UNUSED static void settle(struct pair *p) {
    struct session *a = pair_session(&p->a), *b = pair_session(&p->b);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    do {
        pair_turn(p);
        assert_true(env_now(&env_default) < limit);
    } while (a->connection.tx.sequence != b->connection.rx.sequence ||
             b->connection.tx.sequence != a->connection.rx.sequence);
    for (int i = 0; i < 20; i++)
        pair_turn(p);
}

PAIR_UNUSED static uint32_t in_flight(struct side *side) {
    sluice_session_info info = {.size = sizeof info};
    assert_int_equal(sluice_session_get_info(side->session, &info), 0);
    return info.requests;
}

#endif
