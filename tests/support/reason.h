/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * reason.h - what the tests of reasons share: a CLOSED event is compared whole, with what
 * sluice_session_get_info() keeps beside it.
 */
#ifndef TESTS_SUPPORT_REASON_H
#define TESTS_SUPPORT_REASON_H

#include "support/watched.h"

#define NOTHING (-1) /* the stack did not speak */
#define ANY 0xfffffffeu

struct end {
    sluice_reason reason;
    sluice_status status;
    uint32_t vendor;
    int32_t cm_event, cm_status, wc_status;
    const char *text; /* NULL: whatever it is, there is one */
};

/* The next CLOSED of this side says all that. */
void expect_end(struct pair *p, struct side *side, const struct end *end);

#define EXPECT_END(p, side, ...) expect_end(p, side, &(struct end){__VA_ARGS__})

#define ONCE PAIR_LINK(.flags = SLUICE_ONCE)
#define LOST_LINE                                                                                  \
    SLUICE_REASON_PEER_LOST, SLUICE_EUNKNOWN, 0, RDMA_CM_EVENT_DISCONNECTED, 0, NOTHING, NULL

/* Dials once. */
void reason_dial(struct pair *p);

#endif
