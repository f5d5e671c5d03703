/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* landing.c - see landing.h. */
#include "support/landing.h"

const struct landing_peer *landing_be_of(struct pair *p, uint64_t number) {
    struct session *s = pair_session(&p->a);
    landing_peer_put(&p->a.node->landing_peers, s->landing.peer);
    s->landing.peer = landing_peer_get(&p->a.node->landing_peers, number, "");
    assert_non_null(s->landing.peer);
    return s->landing.peer;
}
