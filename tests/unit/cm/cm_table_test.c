/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* The CM thread survives every event in every state: each pair has a handler or a reason. */
#include "support/test.h"

#include <string.h>

#include "cm/cm_table.h"

TEST(every_pair_is_filled_exactly_once) {
    for (unsigned row = 0; row < CM_STATE_COUNT; row++) {
        for (unsigned column = 0; column < CM_EVENT_COUNT; column++) {
            const struct cm_cell *cell = &cm_table[row][column];
            bool run = cell->run != NULL;
            bool ignored = cell->ignored != NULL && strlen(cell->ignored) > 10;
            if (run == ignored)
                fail_msg("%s while waiting for %s: %s", cm_event_name(column), cm_state_name(row),
                         run ? "handled and ignored" : "neither handled nor ignored");
        }
    }
}

TEST(every_state_and_event_has_a_name) {
    for (unsigned row = 0; row < CM_STATE_COUNT; row++)
        assert_string_not_equal(cm_state_name(row), "?");
    for (unsigned column = 0; column < CM_EVENT_COUNT; column++)
        assert_non_null(cm_event_name(column));
    assert_string_equal(cm_state_name(CM_STATE_COUNT), "?");
    assert_string_equal(cm_event_name(CM_EVENT_COUNT), "?");
}

/* Where a connection may be lost at any time, losing it is not ignored. */
TEST(losses_are_handled_wherever_something_was_sent) {
    static const unsigned rows[] = {CM_CONNECTING,          CM_MODIFYING_QP, CM_AWAITING_APP,
                                    CM_CREATING_QP_PASSIVE, CM_ACCEPTING,    CM_UP};
    static const unsigned columns[] = {RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_UNREACHABLE,
                                       RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_DISCONNECTED,
                                       RDMA_CM_EVENT_DEVICE_REMOVAL};
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
        for (unsigned k = 0; k < sizeof columns / sizeof *columns; k++)
            assert_non_null(cm_table[rows[i]][columns[k]].run);
}

/* Whatever has an id that is bound, or is on its way to be, tells of it. */
TEST(an_address_that_changes_is_never_ignored_where_there_is_one) {
    for (unsigned row = 0; row < CM_STATE_COUNT; row++) {
        bool without = row == CM_IDLE || row == CM_RESOLVING_ADDRINFO || row == CM_RESOLVING_NAME ||
                       row == CM_BACKOFF || row == CM_FAILED || row == CM_RELEASED;
        assert_int_equal(cm_table[row][RDMA_CM_EVENT_ADDR_CHANGE].run != NULL, !without);
    }
}
