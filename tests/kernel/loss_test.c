/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * loss_test.c - two hosts whose network loses two packets of a hundred, in each direction: no session ends of it,
 * whatever passes over it, and all of it arrives whole, once and in order.
 */
#include "suite.h"

#define KEEPALIVE_NS (5000 * MS)
#define MESSAGES 400u
#define ROUNDS 25u /* of memory that is written, read and added to */

LEVEL_BOTH(messages_survive_two_per_cent_of_loss) {
    struct far_flow f;
    far_flow_open(&f, handlers_of(state), KEEPALIVE_NS);
    uint64_t begun = sluice_now();
    far_flow_messages(&f, MESSAGES);
    print_message("%u messages there and back: %llu ms\n", MESSAGES,
                  (unsigned long long)((sluice_now() - begun) / MS));
    far_flow_close(&f);
}

/* Soft-RoCE of 7.x ended these, and called a part of the bytes all of them: docs/kernel.md. */
LEVEL_TEST(memory_survives_two_per_cent_of_loss, "polled", 0) {
    memory_there(ROUNDS);
    memory_here(ROUNDS);
}

/* ---- */

static int lose(void **state) {
    int failed = far_warm_up(state);
    far_weather("loss 2%");
    return failed;
}

int main(void) {
    return tests_run(lose, far_restore);
}
