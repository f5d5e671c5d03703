/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * alone_test.c - a side that is left alone in the middle of a large message: its peer's memory goes before its queue
 * pair does, as when a kernel ends a killed process.
 */
#include "support/announced.h"

#define BYTES 65536u

TEST(memory_that_goes_before_it_was_read_is_the_peers_end) {
    struct pair p;
    memset(&p, 0, sizeof p);
    pair_open(&p, PAIR_NODE(.rendezvous_bytes = BYTES - 1, .rendezvous = SLUICE_RENDEZVOUS_READ),
              PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    announced_lost(&p, BYTES);
    pair_close(&p);
}
