/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_onesided.h - what the tests of one-sided operations share: a pair whose target lies in a
 * mapped region, in private memory the kernel reaches, or where only the target itself reaches.
 */
#ifndef TESTS_SUPPORT_SOFTVERBS_ONESIDED_H
#define TESTS_SUPPORT_SOFTVERBS_ONESIDED_H

#include "support/softverbs.h"

enum way { MAPPED, PROCESS, RING, WAYS };

extern const char *const onesided_way_name[WAYS];

#define ALL_REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define ONESIDED_BYTES (1u << 20)

struct onesided {
    struct sv_end a, b;  /* a asks, b is the target and never has to poll */
    struct ibv_mr *open; /* b's memory with all remote rights */
};

/* Connects one end with these rights and this depth. */
void onesided_to_rts(struct sv_end *e, uint32_t dest, int access, uint8_t depth);
/* Two connected ends with so much memory each; the target lies where `way` says. */
void onesided_open_bytes(struct onesided *p, size_t bytes, enum way way, int qp_access,
                         int mr_access, uint8_t depth);
/* onesided_open_bytes() with ONESIDED_BYTES. */
void onesided_open(struct onesided *p, enum way way, int qp_access, int mr_access, uint8_t depth);
/* Closes both. */
void onesided_close(struct onesided *p);
/* Posts a WRITE, READ or SEND to the target; the status. */
int onesided_post(struct onesided *p, enum ibv_wr_opcode opcode, size_t local, size_t bytes,
                  size_t remote, uint32_t rkey, unsigned flags);
/* Posts an atomic to the target; the status. */
int onesided_post_atomic(struct onesided *p, bool swap, size_t local, size_t remote,
                         uint64_t compare_add, uint64_t swap_to);
/* The next completion is this. */
void onesided_expect(struct onesided *p, enum ibv_wc_status status, enum ibv_wc_opcode opcode);
/* Refused at the target: both ends are in error, and the target was told why. */
void onesided_refused(struct onesided *p, enum ibv_wc_status status, enum ibv_event_type event);

#endif
