/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * alone_test.c - a side that is left alone in the middle of a large message: its peer's memory goes before its queue
 * pair does, as when a kernel ends a killed process.
 */
#include "support/announced.h"

#define BYTES 65536u

static void memory_that_goes_before_it_was_read_is_the_peers_end(void **state) {
    (void)state;
    struct pair p;
    memset(&p, 0, sizeof p);
    pair_open(&p, PAIR_NODE(.rendezvous_bytes = BYTES - 1, .rendezvous = SLUICE_RENDEZVOUS_READ),
              PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    announced_lost(&p, BYTES);
    pair_close(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_goes_before_it_was_read_is_the_peers_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
