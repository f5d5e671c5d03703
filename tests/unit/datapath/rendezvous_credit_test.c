/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rendezvous_credit_test.c - large messages that are written among small ones, of which the application keeps as many as
 * leave a few credits: whatever waits at the receiver for a large one, the WRITE that ends it has a credit.
 */
#include "support/pair.h"

#define MESSAGES 400u
#define KEPT_MOST 64u

struct row {
    sluice_rendezvous way;
    unsigned credits, spare; /* all but so many messages are kept; then all are freed at once */
};

/* In one frame, shared or not; in several; and large. */
static size_t size_of(unsigned i) {
    static const size_t sizes[] = {0, 1, 100, 20000, 13, 4000, 70000, 0, 512, 200000};
    return sizes[i % (sizeof sizes / sizeof *sizes)];
}

static void what_is_kept_holds_no_large_message_up(void **state) {
    const struct row *row = *state;
    sluice_msg *kept[KEPT_MOST];
    struct pair p;
    unsigned sent = 0, received = 0, keeps = 0;
    pair_open(&p, PAIR_NODE(.rendezvous = row->way), PAIR_LINK(.credits = row->credits));
    pair_connect(&p, PAIR_LINK(.credits = row->credits));
    while (received < MESSAGES) {
        while (sent < MESSAGES && pair_send(&p.b, size_of(sent), sent, NULL) == 0)
            sent++;
        sluice_event event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
        assert_true(pair_check(event.msg, size_of(received), received));
        received++;
        sluice_keep(event.msg);
        kept[keeps++] = event.msg;
        if (keeps == row->credits - row->spare || received == MESSAGES)
            for (; keeps > 0; keeps--)
                sluice_free(kept[keeps - 1]);
    }
    pair_close(&p);
}

#define ROW(way, credits, spare)                                                                   \
    {                                                                                              \
        "what_is_kept_holds_no_large_message_up__" #way "_" #credits "_" #spare,                   \
            what_is_kept_holds_no_large_message_up, NULL, NULL, &(struct row) {                    \
            SLUICE_RENDEZVOUS_##way, credits, spare                                                \
        }                                                                                          \
    }

TEST_CASES(ROW(READ, 32, 6), ROW(WRITE, 32, 6), ROW(WRITE, 32, 3), ROW(WRITE, 16, 6),
           ROW(WRITE, 16, 3), ROW(WRITE, 8, 3));
