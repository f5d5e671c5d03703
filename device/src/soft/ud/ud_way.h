/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ud_way.h - the rings through which a UD QP sends, one for each number that it sends to.
 *
 * Owner: the control lock.
 */
#ifndef SOFT_UD_UD_WAY_H
#define SOFT_UD_UD_WAY_H

#include <stdbool.h>
#include <stdint.h>

struct soft_peer;
struct soft_ud;
struct soft_ud_way;

struct soft_ud_msg {
    uint32_t from_qpn, to_qpn; /* sender and receiver of the datagrams */
    uint32_t recv_cq;          /* OK: word of the receiver's board */
    uint32_t zero;
};

/* Makes a ring and offers it to the owner of the number; twice is fine. */
void soft_ud_way_open(struct soft_ud *ud, uint32_t qpn);
/* The answer of the process that it was offered to. */
void soft_ud_way_on_answer(struct soft_peer *peer, uint32_t type, const struct soft_ud_msg *msg);
/* Its receiver is gone or does not want it; what it has not read is lost. */
void soft_ud_way_lost(struct soft_ud *ud, struct soft_ud_way *way);
/* tell: the receiver hears that nothing more comes. */
void soft_ud_way_free(struct soft_ud *ud, struct soft_ud_way *way, bool tell);

#endif
