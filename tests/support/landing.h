/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* landing.h - sessions of several peers, where all are of one process. */
#ifndef TESTS_SUPPORT_LANDING_H
#define TESTS_SUPPORT_LANDING_H

#include "support/pair.h"

/* Makes the session that was opened last, which has had no large message yet, one of the peer of that number. */
const struct landing_peer *landing_be_of(struct pair *p, uint64_t number);

#endif
